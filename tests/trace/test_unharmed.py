"""arm() must never end a script, slow it down, fill its memory, or change what it does."""

import os
import sys

import pytest

from oddrank.trace import ranks
from processes import captured
from texts import cases, texts

# Scripts, a variable of their environment, and what they print if they run as without.
SAYS = cases(__file__)


@pytest.mark.parametrize("name", SAYS)
def test_a_script_runs_as_without(script, name):
    source, variable, says = SAYS[name]
    environ = dict([variable.split("=")]) if variable else {}
    assert script.armed(source, **environ).stdout == says


def test_python_behaves_as_without(script, source):
    armed, plain = script.armed(source), script(source)
    assert "closed" in armed.stdout
    assert armed.stdout == plain.stdout
    assert armed.stderr == plain.stderr == ""


def test_the_last_few_jobs_stay(script):
    for i in range(6):
        script.armed("\n", ODDRANK_JOB=f"dead{i}")
    left = {folder.name for folder in (script.folder / "records").glob("dead*")}
    assert {"dead3", "dead4", "dead5"} <= left
    assert not {"dead0", "dead1"} & left


IN_64_MIB = 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"'
# The children live at once: records of dead ones make room for others.
FORKS = texts(__file__)["forks"]


@pytest.mark.needs("netns")
def test_a_dev_shm_of_64_mib_as_in_containers_is_left_to_data_loaders(tmp_path):
    environ = {name: value for name, value in os.environ.items() if name != "ODDRANK_DIR"}
    done = captured(
        ["unshare", "--mount", "sh", "-c", IN_64_MIB, "sh", sys.executable, "-c", FORKS],
        env={**environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (f"{[0] * 8}\n", "")
    found, refused = ranks.read([*tmp_path.glob(f"oddrank-{os.geteuid()}/*/*.trace")])
    assert not refused
    assert sorted(rank.is_child for rank in found) == [False, *[True] * 8]
