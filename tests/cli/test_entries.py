"""Every way to start oddrank runs the same program, and --help is fast."""

import os
import subprocess
import sys
import sysconfig
from importlib import import_module
from pathlib import Path

import click
import pytest

from oddrank import __version__, cli
from oddrank.trace.command import command as trace

SCRIPT = Path(sysconfig.get_path("scripts")) / "oddrank"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1"]
ENTRIES = [
    pytest.param([str(SCRIPT)], id="oddrank"),
    pytest.param([sys.executable, "-m", "oddrank"], id="python -m"),
    pytest.param([*TORCHRUN, "-m", "oddrank"], id="torchrun", marks=pytest.mark.needs("torch")),
]


def output(*command):
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_is_the_same_program(entry):
    assert output(*entry, "--version") == f"oddrank {__version__}\n"


def test_help_names_every_command_and_the_exit_codes():
    text = output(sys.executable, "-m", "oddrank", "--help")
    for name, (_, line) in cli._COMMANDS.items():
        assert f"{name} " in text
        assert line in text
    assert "Exit codes" in text


def test_help_cuts_no_commands_sentence():
    text = " ".join(output(sys.executable, "-m", "oddrank", "trace", "--help").split())
    for name, one in trace.commands.items():
        sentence = one.help.partition("\n\n")[0]
        assert f"{name} {' '.join(sentence.split())}" in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_completion_script(shell):
    environ = {**os.environ, "_ODDRANK_COMPLETE": f"{shell}_source"}
    run = subprocess.run(
        [str(SCRIPT)], env=environ, capture_output=True, text=True, timeout=100, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert "_ODDRANK_COMPLETE" in run.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("oddrank sel", "selftest"),
        ("oddrank bench com", "compare"),
        ("oddrank doctor --js", "--json"),
    ],
)
def test_a_shell_completes_commands_and_options(typed, offered):
    environ = {**os.environ, "_ODDRANK_COMPLETE": "bash_complete"}
    environ |= {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    run = subprocess.run(
        [str(SCRIPT)], env=environ, capture_output=True, text=True, timeout=100, check=False
    )
    assert (run.returncode, run.stdout) == (0, f"plain,{offered}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["--no-such-option"]])
def test_explaining_itself_loads_no_torch_no_numpy_no_rich_no_compiled_part_no_subject(arguments):
    script = (
        "import sys, atexit\n"
        "from oddrank import cli\n"
        "atexit.register(lambda: print('LOADED', *sys.modules))\n"
        f"cli.main({arguments!r})\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False
    )
    loaded = run.stdout.rpartition("LOADED")[2].split()
    assert "oddrank.cli" in loaded
    subjects = {module.rpartition(".")[0] for module, _ in cli._COMMANDS.values()}
    compiled = {"oddrank._core", "oddrank._cuda", "oddrank._torch"}
    assert not {"torch", "numpy", "rich", *subjects, *compiled} & set(loaded)


@pytest.mark.parametrize("name", cli._COMMANDS)
def test_every_command_of_the_table_is_one_and_explains_itself(name):
    module, _ = cli._COMMANDS[name]
    command = import_module(module).command
    assert isinstance(command, click.Command)
    assert command.help
    assert "Usage" in output(sys.executable, "-m", "oddrank", name, "--help")
