"""Three real gloo ranks: one stops, the others wait for it longer than their own timeout."""

from pathlib import Path

import pytest

from debugger.programs import attach, started
from oddrank.triage import report
from patience import until

pytestmark = [pytest.mark.job, pytest.mark.needs("torch"), pytest.mark.timeout(600)]
JOB = str(Path(__file__).with_name("breakpoint_job.py"))
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
WAIT = "!import time; time.sleep(16)\n"


def test_a_rank_stops_steps_over_a_collective_and_the_others_wait_beyond_their_timeout(tmp_path):
    with started(tmp_path, [*TORCHRUN, "3", JOB], OMP_NUM_THREADS="1") as job:
        (session,) = job.waits()
        assert session.rank == 1
        # After the first step the others wait for it in the collective.
        typed = f"p step\nn\n{WAIT}n\nn\np 'reduced', total.item()\nc\n"
        done = attach(tmp_path, "1", typed=typed)
        assert done.returncode == 0, done.stderr
        said = job.ends()
    assert "(Pdb) 2\n" in done.stdout
    assert "('reduced', 15.0)" in done.stdout
    for rank in range(3):
        assert f"rank {rank}: total 54.0, waited=True, again=True" in said, said
        # A group that lives on at exit may abort the rank.
        assert f"rank {rank}: gone=True" in said, said
    # The rank itself says how to attach, and so does another one.
    assert said.count("oddrank attach 1\n") == 2


def _verdict(folder: Path) -> str:
    records = sorted(map(str, folder.glob("*/*.trace")))
    return report.made(report.read(records)).summary


@pytest.mark.needs("torch-build")
def test_a_worker_of_a_dataloader_stops_alone_and_its_rank_is_not_stuck(tmp_path):
    command = [*TORCHRUN, "2", "-m", "oddrank", "run", "--no-watch", JOB, "worker"]
    with started(tmp_path, command, OMP_NUM_THREADS="1") as job:
        (session,) = job.waits()
        assert session.rank == 1
        # Rank 0 may still be on its way to the collective in which it waits.
        stands = "rank 1 stands in a breakpoint (breakpoint_job"
        until(lambda: _verdict(tmp_path).startswith(stands))
        done = attach(tmp_path, "1", typed="p 'index', index\nq\n")
        said = job.ends()
    assert "('index', 3)" in done.stdout
    assert said.count("again=True") == 2
