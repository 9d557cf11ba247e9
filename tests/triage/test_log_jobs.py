"""Starts real jobs that die, and reads what their launcher printed."""

import os
import sys

import pytest

from logs.logs_command import output
from oddrank.inputs import Notes
from oddrank.triage import verdict
from oddrank.triage.evidence import kinds, launcher, tracebacks, watchdog
from oddrank.triage.view import view
from texts import texts
from triage.facts_of import item_of

pytestmark = [pytest.mark.job, pytest.mark.needs("torch"), pytest.mark.timeout(600)]

JOB = texts(__file__)["job"]


def culprits(tmp_path, command, program, *arguments, **more):
    """Runs a program under a launcher. Returns whom its output names, surely."""
    log = output(tmp_path, command, *arguments, script=program, **more)
    logs = (launcher.KIND, tracebacks.KIND, watchdog.KIND)
    facts = [f for *_, found in kinds.read([item_of(log)], Notes(), logs) for f in found]
    return [s for s in verdict.suspects(view(facts)) if s.certainty > 0]


@pytest.mark.parametrize(
    ("how", "death"),
    [("raises", "exception"), ("killed", "signal"), ("crashes", "signal"), ("exits", "exit"),
     ("all", "exception")],
)  # fmt: skip
def test_torchruns_output_names_the_rank_that_ended_first(tmp_path, how, death):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3"]
    (suspect,) = culprits(tmp_path, torchrun, JOB, how)
    assert (suspect.cause.name, suspect.death.how) == ("dead", death)
    if how == "all":  # as many as came to it before the launcher ended them
        assert suspect.death.text.startswith("KeyError")
    else:
        assert [p.rank for p in suspect.processes] == [1]


SRUN_JOB = texts(__file__)["srun job"]


@pytest.mark.needs("slurm", "netns")
@pytest.mark.parametrize("label", [(), ("--label",)])
@pytest.mark.parametrize(
    ("how", "death"),
    [("killed", ("signal", 9)), ("crashes", ("signal", 11)), ("exits", ("exit", 7)),
     ("raises", ("exception", None))],
)  # fmt: skip
def test_sruns_output_names_the_task_that_ended_first(slurm, tmp_path, label, how, death):
    srun = [*slurm.inside(0), "srun", "-N", "2", "--ntasks-per-node", "2", "--kill-on-bad-exit=1"]
    (suspect,) = culprits(
        tmp_path, [*srun, *label, sys.executable], SRUN_JOB, how, env=slurm.environ(os.environ)
    )
    assert [(p.rank, p.host) for p in suspect.processes] == [(2, slurm.hosts[1].name)]
    assert (suspect.death.how, suspect.death.signal or suspect.death.code) == death


@pytest.mark.needs("mpi")
def test_mpiruns_output_names_the_rank_that_was_killed(tmp_path):
    program = (
        "import os, time\n"
        "rank = os.environ.get('OMPI_COMM_WORLD_RANK', os.environ.get('PMI_RANK'))\n"
        "if rank == '1':\n    time.sleep(0.5)\n    os.kill(os.getpid(), 9)\ntime.sleep(60)\n"
    )
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", sys.executable]
    (suspect,) = culprits(tmp_path, mpirun, program)
    assert ([p.rank for p in suspect.processes], suspect.death.signal) == ([1], 9)
