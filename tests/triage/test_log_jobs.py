"""Starts real jobs that die, and reads what their launcher printed."""

import os
import shutil
import subprocess
import sys

import pytest

from oddrank.triage import verdict
from oddrank.triage.evidence import Notes, kinds, launcher, tracebacks, watchdog
from oddrank.triage.view import view
from triage.facts_of import item_of

pytestmark = [pytest.mark.job, pytest.mark.needs("torch"), pytest.mark.timeout(300)]

JOB = """
import datetime, os, signal, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=200))
how, rank = sys.argv[1], dist.get_rank()
for step in range(3):
    dist.all_reduce(torch.ones(8))
    if rank == 1 and step == 1:
        if how == "raises":
            raise ValueError("boom")
        if how == "exits":
            os._exit(7)
        os.kill(os.getpid(), {"killed": 9, "crashes": 11}[how])
    if how == "all":
        raise KeyError("everywhere")
"""


def verdict_of(path):
    logs = (launcher.KIND, tracebacks.KIND, watchdog.KIND)
    facts = [f for *_, found in kinds.read([item_of(path)], Notes(), logs) for f in found]
    return [s for s in verdict.suspects(view(facts)) if s.certainty > 0]


def output(tmp_path, command, how):
    script = tmp_path / "train.py"
    script.write_text(JOB)
    path = tmp_path / "job.log"
    with path.open("wb") as file:
        subprocess.run([*command, script, how], stdout=file, stderr=file, timeout=240, check=False)
    return path


@pytest.mark.parametrize(
    ("how", "death"),
    [("raises", "exception"), ("killed", "signal"), ("crashes", "signal"), ("exits", "exit")],
)
def test_torchruns_output_names_the_rank_that_ended_first(tmp_path, how, death):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3"]
    (suspect,) = verdict_of(output(tmp_path, torchrun, how))
    assert [p.rank for p in suspect.processes] == [1]
    assert (suspect.cause, suspect.death.how) == ("dead", death)


def test_torchruns_output_of_a_job_that_raised_everywhere_blames_all(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3"]
    (suspect,) = verdict_of(output(tmp_path, torchrun, "all"))
    assert suspect.death.text.startswith("KeyError")
    assert suspect.cause == "dead"


SRUN_JOB = """
import os, sys, time
how = sys.argv[1]
if os.environ["SLURM_PROCID"] == "2":
    if how == "raises":
        raise ValueError("boom")
    if how == "exits":
        os._exit(7)
    os.kill(os.getpid(), {"killed": 9, "crashes": 11}[how])
time.sleep(300)
"""


@pytest.mark.needs("slurm", "netns")
@pytest.mark.parametrize("label", [(), ("--label",)])
@pytest.mark.parametrize(
    ("how", "death"),
    [("killed", ("signal", 9)), ("crashes", ("signal", 11)), ("exits", ("exit", 7)),
     ("raises", ("exception", None))],
)  # fmt: skip
def test_sruns_output_names_the_task_that_ended_first(slurm, tmp_path, label, how, death):
    script = tmp_path / "job.py"
    script.write_text(SRUN_JOB)
    path = tmp_path / "slurm.out"
    srun = ["srun", "-N", "2", "--ntasks-per-node", "2", "--kill-on-bad-exit=1", *label]
    with path.open("wb") as file:
        subprocess.run(
            [*slurm.inside(0), *srun, sys.executable, script, how],
            stdout=file, stderr=file, timeout=200, check=False, env=slurm.environ(os.environ),
        )  # fmt: skip
    (suspect,) = verdict_of(path)
    assert [(p.rank, p.host) for p in suspect.processes] == [(2, slurm.hosts[1].name)]
    assert (suspect.death.how, suspect.death.signal or suspect.death.code) == death


@pytest.mark.needs("mpi")
def test_mpiruns_output_names_the_rank_that_was_killed(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(
        "import os, time\n"
        "rank = os.environ.get('OMPI_COMM_WORLD_RANK', os.environ.get('PMI_RANK'))\n"
        "if rank == '1':\n    time.sleep(0.5)\n    os.kill(os.getpid(), 9)\ntime.sleep(60)\n"
    )
    path = tmp_path / "job.log"
    mpirun = [shutil.which("mpirun"), "--allow-run-as-root", "--oversubscribe", "-n", "3"]
    with path.open("wb") as file:
        subprocess.run(
            [*mpirun, sys.executable, script], stdout=file, stderr=file, timeout=120, check=False
        )
    (suspect,) = verdict_of(path)
    assert [p.rank for p in suspect.processes] == [1], path.read_text()
    assert suspect.death.signal == 9
