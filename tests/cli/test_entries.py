"""Every way to start oddrank runs the same program, and --help is fast."""

import sys
import sysconfig
from importlib import import_module
from pathlib import Path

import click
import pytest

from oddrank import __version__, cli
from oddrank.trace.command import command as trace
from processes import captured, typed

SCRIPT = Path(sysconfig.get_path("scripts")) / "oddrank"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1"]
ENTRIES = [
    pytest.param([str(SCRIPT)], id="oddrank"),
    pytest.param([sys.executable, "-m", "oddrank"], id="python -m"),
    pytest.param([*TORCHRUN, "-m", "oddrank"], id="torchrun", marks=pytest.mark.needs("torch")),
]


def output(*command, **environ):
    run = captured(command, **environ)
    assert (run.returncode, run.stderr if environ else "") == (0, ""), run.stderr
    return run.stdout


def in_process(*arguments):
    done = typed(*arguments)
    assert done.returncode == 0
    return done.stdout


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_is_the_same_program(entry):
    assert output(*entry, "--version") == f"oddrank {__version__}\n"


def test_help_names_every_command_and_the_exit_codes_and_cuts_no_sentence():
    text = in_process("--help")
    for name, (_, line) in cli._COMMANDS.items():
        assert f"{name} " in text
        assert line in text
    assert "Exit codes" in text
    text = " ".join(in_process("trace", "--help").split())
    for name, one in trace.commands.items():
        sentence = one.help.partition("\n\n")[0]
        assert f"{name} {' '.join(sentence.split())}" in text


def test_every_shell_gets_its_completion_script_and_completes_commands_and_options():
    for shell in ("bash", "zsh", "fish"):
        script = output(str(SCRIPT), _ODDRANK_COMPLETE=f"{shell}_source")
        assert "_ODDRANK_COMPLETE" in script, shell
    for begun, offered in (
        ("oddrank sel", "selftest"), ("oddrank bench com", "compare"),
        ("oddrank doctor --js", "--json"), ("oddrank selftest --fail-on odd,inc", "odd,incomplete"),
        ("oddrank bench run --collectives barrier,all_r", "barrier,all_reduce"),
        ("oddrank plan mfu --gpu mi325", "MI325X"),
        ("oddrank selftest --only health,dev", "health,device"),
        ("oddrank selftest --write", "--write-exclude"), ("oddrank run --stal", "--stall"),
    ):  # fmt: skip
        words = {"COMP_WORDS": begun, "COMP_CWORD": str(len(begun.split()) - 1)}
        said = output(str(SCRIPT), _ODDRANK_COMPLETE="bash_complete", **words)
        assert said == f"plain,{offered}\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("plan dp --world x", "--gpus"), ("plan flops --batch x", "--gbs"),
        ("selftest --exclude=", "--write-exclude"), ("run --exclude= a.py", "--write-exclude"),
    ],
)  # fmt: skip
def test_an_option_takes_its_old_name(old, new):
    done = typed(*old.split())
    assert done.returncode == 2
    assert f"Invalid value for '{new}'" in done.stderr


@pytest.mark.parametrize("argument", ["--help", "--version", "--no-such-option"])
def test_explaining_itself_loads_no_torch_no_numpy_no_rich_no_compiled_part_no_subject(argument):
    script = (
        "import sys, atexit\n"
        "from oddrank import cli\n"
        "atexit.register(lambda: print('LOADED', *sys.modules))\n"
        f"cli.main([{argument!r}])\n"
    )
    loaded = captured([sys.executable, "-c", script]).stdout.rpartition("LOADED")[2].split()
    assert "oddrank.cli" in loaded
    subjects = {module.rpartition(".")[0] for module, _ in cli._COMMANDS.values()}
    compiled = {"oddrank._core", "oddrank._cuda", "oddrank._torch"}
    assert not {"torch", "numpy", "rich", *subjects, *compiled} & set(loaded)


def test_every_command_of_the_table_is_one_and_explains_itself():
    for name, (module, _) in cli._COMMANDS.items():
        command = import_module(module).command
        assert isinstance(command, click.Command), name
        assert command.help, name
        assert "Usage" in in_process(name, "--help"), name
