"""Ranks of the real torchrun, Open MPI, Hydra and SLURM find their rank numbers."""

import sys

import pytest

from patience import PATIENCE
from processes import captured
from texts import texts

# Each rank writes its own file: launchers mix the output of ranks.
ASK = texts(__file__)["ask"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable]
HYDRA = ["mpiexec.hydra", "-n", "2", sys.executable]


@pytest.fixture
def script(tmp_path):
    (tmp_path / "ask.py").write_text(ASK)
    return tmp_path / "ask.py"


def places(script):
    """Returns what the two ranks found, without the job's name, which must be the same."""
    one, two = (script.with_suffix(f".{rank}").read_text().split() for rank in (0, 1))
    assert one.pop() == two.pop()
    return [" ".join(one), " ".join(two)]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        pytest.param("torchrun", TORCHRUN, marks=pytest.mark.needs("torch"), id="torchrun"),
        pytest.param("openmpi", MPIRUN, marks=pytest.mark.needs("mpi"), id="mpirun"),
        pytest.param("pmi", HYDRA, marks=pytest.mark.needs("hydra"), id="hydra"),
    ],
)
def test_two_ranks_of_one_host_know_their_place(script, name, line):
    run = captured([*line, script], limit=PATIENCE.job)
    assert run.returncode == 0, run.stderr
    assert places(script) == [f"{name} 0 2 0 2 0 1", f"{name} 1 2 1 2 0 1"]


@pytest.mark.needs("slurm", "netns")
@pytest.mark.timeout(600)  # starts SLURM
def test_srun_starts_two_ranks_on_two_nodes_that_know_it(script, slurm):
    slurm.call("srun", "-N2", "--ntasks-per-node=1", sys.executable, str(script))
    assert places(script) == ["slurm 0 2 0 1 0 2", "slurm 1 2 0 1 1 2"]
