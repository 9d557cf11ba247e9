"""Real hangs of a 4-rank gloo DDP job: `trace where` shows each rank's place, alive and dead."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import forked
from oddrank import _native
from oddrank.trace.ranks import read
from patience import PATIENCE, until
from trace_command import oddrank

pytestmark = [pytest.mark.needs("torch"), pytest.mark.timeout(600)]
TRAINING = Path(__file__).parents[2] / "examples" / "trace_training.py"
# Kind of hang of the last rank -> the function that it hangs in.
HANGS = {
    "collective": "skip_the_collective",
    "data": "next_batch",
    "lock": "wait_for_the_lock",
    "callback": "average_in_a_callback",
}


class Job:
    """The example under torchrun, and its `trace where`."""

    def __init__(self, folder, *arguments):
        self.folder = folder
        self.launcher = forked.popen(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4",
             str(TRAINING), *arguments],
            env={**os.environ, "ODDRANK_DIR": str(folder), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def where(self):
        done = oddrank("where", "--json", "-", folder=self.folder)
        return json.loads(done.stdout)["data"]["ranks"] if done.returncode == 0 else []

    def living(self):
        """Returns the living ranks without `where`, so they are killed even if it is slow."""
        found, _ = read(list(self.folder.rglob("*.trace")))
        return [rank.pid for rank in found if rank.alive]

    def kill_all(self):
        # All stop first: a rank that sees another one die would go on, and raise.
        ranks = self.living()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in ranks:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        with suppress(ProcessLookupError):  # torchrun has already ended
            os.killpg(self.launcher.pid, signal.SIGKILL)
        self.launcher.wait()
        until(lambda: not self.living())


def functions(rank):
    return [
        frame["function"]
        for thread in rank["threads"] if thread["tid"] == rank["pid"]
        for frame in thread["stack"]
    ]  # fmt: skip


def without_a_stack(rank):
    return [note for note in rank["notes"] if "without a stack" in note]


@pytest.mark.parametrize("how", HANGS)
def test_a_hang_is_shown_alive_and_after_all_were_killed(tmp_path, how):
    job = Job(tmp_path / "records", "--hang", how, "--steps", "1000")

    def hanging():
        ranks = job.where()
        inside = [HANGS[how] in functions(rank) for rank in ranks]
        if inside != [False] * 3 + [True] or any(rank["step"] != 3 for rank in ranks):
            return False
        in_data, in_callback = ranks[3]["sections"] == ["data"], bool(without_a_stack(ranks[3]))
        return (in_data, in_callback) == (how == "data", how == "callback") and ranks

    try:
        alive = until(hanging, 240)
    finally:
        job.kill_all()
    dead = job.where()
    assert [rank["alive"] for rank in alive] == [True] * 4
    assert [rank["alive"] for rank in dead] == [False] * 4
    for ranks in (alive, dead):
        assert [rank["rank"] for rank in ranks] == [0, 1, 2, 3]
        for rank in ranks:
            assert functions(rank)[:3] == ["<module>", "main", "train"]
            assert (HANGS[how] in functions(rank)) == (rank["rank"] == 3)
    assert alive[3]["sections"] == (["data"] if how == "data" else [])
    assert len(without_a_stack(alive[3])) == (1 if how == "callback" else 0)


def test_the_example_trains_to_its_end_and_its_record_stays(tmp_path):
    """Ignores the exit code: torch sometimes aborts when gloo's threads are destroyed."""
    job = Job(tmp_path / "records", "--steps", "5")
    try:
        job.launcher.wait(PATIENCE.seconds(240))
    finally:
        job.kill_all()
    assert [(rank["alive"], rank["step"]) for rank in job.where()] == [(False, 4)] * 4
    for file in job.folder.rglob("rank*.trace"):
        _, events, _ = _native.core().trace_history(str(file), 1000)
        assert "trained" in {mark for *_, mark in events}
