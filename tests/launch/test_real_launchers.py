"""Ranks of the real torchrun, Open MPI, Hydra and SLURM find their rank numbers."""

import subprocess
import sys

import pytest

# Each rank writes its own file: launchers mix the output of ranks.
ASK = """
from pathlib import Path
from oddrank import launch
me = launch.current()
facts = me.launcher, me.rank, me.world, me.local_rank, me.local_world, me.node, me.nodes, me.job
Path(__file__).with_suffix(f".{me.rank}").write_text(" ".join(map(str, facts)))
assert me.master is not None
"""


def answers(script, *launcher):
    run = subprocess.run(
        [*launcher, str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    return [script.with_suffix(f".{rank}").read_text().split() for rank in (0, 1)]


@pytest.fixture
def script(tmp_path):
    (tmp_path / "ask.py").write_text(ASK)
    return tmp_path / "ask.py"


@pytest.mark.needs("torch")
def test_torchrun_starts_two_ranks_that_know_it(script):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    one, two = answers(script, *torchrun)
    assert one[:7] == ["torchrun", "0", "2", "0", "2", "0", "1"]
    assert two[:7] == ["torchrun", "1", "2", "1", "2", "0", "1"]
    assert one[7] == two[7]


@pytest.mark.needs("hydra")
def test_hydra_starts_two_ranks_that_know_it(script):
    one, two = answers(script, "mpiexec.hydra", "-n", "2", sys.executable)
    assert one[:7] == ["pmi", "0", "2", "0", "2", "0", "1"]
    assert two[:7] == ["pmi", "1", "2", "1", "2", "0", "1"]
    assert one[7] == two[7]


@pytest.mark.needs("mpi")
def test_mpirun_starts_two_ranks_that_know_it(script):
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable]
    one, two = answers(script, *mpirun)
    assert one[:7] == ["openmpi", "0", "2", "0", "2", "0", "1"]
    assert two[:7] == ["openmpi", "1", "2", "1", "2", "0", "1"]
    assert one[7] == two[7]


@pytest.mark.needs("slurm", "netns")
@pytest.mark.timeout(300)  # starts SLURM
def test_srun_starts_two_ranks_on_two_nodes_that_know_it(script, slurm):
    slurm.call("srun", "-N2", "--ntasks-per-node=1", sys.executable, str(script))
    one, two = (script.with_suffix(f".{rank}").read_text().split() for rank in (0, 1))
    assert one[:7] == ["slurm", "0", "2", "0", "1", "0", "2"]
    assert two[:7] == ["slurm", "1", "2", "0", "1", "1", "2"]
    assert one[7] == two[7]
