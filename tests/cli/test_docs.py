"""README, docs/ and other pages name commands, options, files and links that exist."""

import json
import re
from importlib import import_module
from pathlib import Path

import click
import pytest

from oddrank import cli
from oddrank.selftest import Options
from oddrank.selftest.stages import TABLE, choose
from processes import typed

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "SKILL.md", "llms.txt", "CONTRIBUTING.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))
WORD = r"[a-z]+(?:-[a-z]+)? ?"
LINE = re.compile(rf"(?:^|\$ |-m |srun |srun .*? |mpirun .*? )oddrank ((?:{WORD})+)([^#|]*)")


@pytest.fixture(params=PAGES, ids=lambda page: page.name)
def page(request):
    return request.param


def command_of(words):
    """Returns the click command that these words begin with, and how many of them name it."""
    found, used = None, 0
    for word in words:
        group = found.commands if isinstance(found, click.Group) else None
        if found is None and word in cli._COMMANDS:
            found = import_module(cli._COMMANDS[word][0]).command
        elif group and word in group:
            found = group[word]
        else:
            break
        used += 1
    return found, used


def code(page):
    """Returns the lines of a page's code blocks, and its texts between backticks."""
    prose, *blocks = re.split(r"^```.*$", page.read_text().replace("\\\n", " "), flags=re.M)
    prose += "".join(blocks[1::2])
    lines = [line for block in blocks[::2] for line in block.splitlines()]
    return lines + re.findall(r"`([^`]+)`", prose)


def test_every_command_and_option_of_a_page_exists(page):
    for words, rest in [found for line in code(page) for found in LINE.findall(line)]:
        command, used = command_of(words.split())
        assert used, f"no command {words!r}"
        known = {name for option in command.params for name in option.opts} | {"--help"}
        for name in re.findall(r"(?<=\s)--[a-z][a-z-]*", f" {rest}".partition(".py")[0]):
            assert name in known, f"{words}has no option {name}"


def leaves(name, command):
    """Yields the names of the commands below `command` that do something themselves."""
    if not isinstance(command, click.Group):
        yield name
        return
    for word, one in command.commands.items():
        yield from leaves(f"{name} {word}", one)


def test_every_command_is_shown_on_a_page():
    shown = set()
    for line in (line for page in PAGES for line in code(page)):
        for words, _ in LINE.findall(line):
            _, used = command_of(words.split())
            shown.add(" ".join(words.split()[:used]))
    every = {
        leaf
        for name, (module, _) in cli._COMMANDS.items()
        for leaf in leaves(name, import_module(module).command)
    }
    assert every - shown == set()


@pytest.mark.needs("samples")
@pytest.mark.parametrize(
    ("evidence", "verdict", "ranks"),
    [
        ("fr_dumps_nvrx/lock_gil_1st", "odd", [9, 14]),
        ("small/nccl2-aborts", "unknown", [5]),
        ("small/nccl-diag-ecc.txt", "odd", [5]),
    ],
)
def test_the_commands_for_agents_give_the_verdicts_that_it_tells(
    tmp_path, samples, evidence, verdict, ranks
):
    (command,) = re.findall(r"`oddrank (triage .*) FOLDER`", (ROOT / "SKILL.md").read_text())[:1]
    typed(*command.split(), samples / evidence, cwd=tmp_path)
    told = json.loads((tmp_path / "report.json").read_text())
    assert (told["verdict"], told["findings"][0]["who"]["ranks"]) == (verdict, ranks)
    assert {"level", "why"} <= set(told["findings"][0]["confidence"])


def test_the_self_tests_page_has_every_stage():
    rows = re.findall(r"^\| ([a-z_, ]+) \|", (ROOT / "docs/selftest.md").read_text(), re.M)
    shown = {name for row in rows for name in row.split(", ")}
    stages = choose(TABLE, Options("full")).stages
    assert {stage.name for stage in stages if stage.shown} - shown == set()


def test_every_link_and_file_of_a_page_exists(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (page.parent / target).exists(), target
    for path in re.findall(r"`((?:benchmarks|tests|examples|python|csrc)/[\w./-]+)`", text):
        assert path.endswith("/X.txt") or (ROOT / path).exists(), path


def test_readme_is_one_page():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 150
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_prose_has_at_most_100_columns(page):
    fenced = False
    for line in page.read_text().splitlines():
        fenced ^= line.startswith("```")
        assert fenced or len(line) <= 100 or line.startswith(("|", "![")), line
