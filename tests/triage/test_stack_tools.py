"""Takes stacks of real gloo ranks with real tools: one waits for a queue, the others for it."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gloo_ranks import ranks
from oddrank.triage.evidence.stacks import KIND
from oddrank.triage.judges.stacks import judge
from oddrank.triage.suspects import Suspect
from oddrank.triage.view import view
from patience import until
from processes import held_port
from texts import texts
from triage.facts_of import facts_of

pytestmark = pytest.mark.timeout(600)  # tools that read torch's symbols take long
SCRIPT = texts(__file__)["script"]


def tool(name: str) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which(name, path=path) or name


@pytest.fixture(scope="module")
def hang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[int]]]:
    """Starts three ranks. Yields their folder and pids once all stand where they stay."""
    folder = tmp_path_factory.mktemp("hang")
    line = [sys.executable, "-c", SCRIPT, folder]
    with held_port() as port, ranks(line, folder, 3, MASTER_PORT=str(port)) as started:
        until(lambda: len(list(folder.glob("*.ready"))) == 3, normal=180)
        pids = [rank.pid for rank in started]
        until(lambda: _rest(pids), normal=180)
        yield folder, pids


def _rest(pids: Sequence[int]) -> bool:
    """Whether the processes sleep and take no CPU time for a second."""

    def looks() -> list[list[str]]:
        stats = [Path(f"/proc/{pid}/stat").read_text() for pid in pids]
        words = [stat.rpartition(")")[2].split() for stat in stats]
        return [[each[0], each[11], each[12]] for each in words]

    before = looks()
    time.sleep(1)
    return looks() == before and all(each[0] == "S" for each in before)


def judged(folder: Path) -> Suspect:
    (suspect,) = judge(view(facts_of(KIND, *sorted(folder.iterdir()))))
    assert suspect.at is not None
    assert suspect.at.op == "all_reduce"
    return suspect


COMMANDS = {
    "py-spy": ["dump", "--pid"], "py-spy --native": ["dump", "--native", "--pid"],
    "py-spy --locals": ["dump", "--locals", "--pid"], "pystack": ["remote"],
    "pystack --native": ["remote", "--native"],
}  # fmt: skip


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.needs(name.partition(" ")[0])) for name in COMMANDS],
)
def test_the_rank_outside_is_named_from_a_tools_real_output(hang, tmp_path, name):
    program = tool(name.partition(" ")[0])
    _, pids = hang
    for pid in pids:
        done = subprocess.run(
            [program, *COMMANDS[name], str(pid)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"{name} may not look at other processes here: {done.stderr[-200:]}")
        (tmp_path / f"{pid}.txt").write_text(done.stdout)
    suspect = judged(tmp_path)
    assert [process.pid for process in suspect.processes] == [pids[1]]
    assert {process.pid for process in suspect.waiting} == {pids[0], pids[2]}
    assert suspect.leaf is not None
    assert (suspect.leaf.function, suspect.leaf_class) == ("load", "queue")


@pytest.mark.needs("torch")
def test_the_rank_outside_is_named_from_faulthandlers_real_output(hang, tmp_path):
    folder, pids = hang
    for pid in pids:
        os.kill(pid, 10)
    files = [folder / f"rank{rank}.txt" for rank in range(3)]
    until(lambda: all("<module>" in file.read_text() for file in files), normal=60)
    for file in files:
        shutil.copy(file, tmp_path)
    suspect = judged(tmp_path)
    assert [process.rank for process in suspect.processes] == [1]
    assert [process.rank for process in suspect.waiting] == [0, 2]
