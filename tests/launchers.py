"""How tests start the ranks of a job: from what is asked to the command lines of a launcher."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

# What tells that a process is a rank, and which one.
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


@dataclass(frozen=True)
class Order:
    """Ranks of `tool`, the arguments of a Python, shared equally by `nodes`."""

    tool: list[str]
    ranks: int
    nodes: int
    master: tuple[str, int]
    environ: dict[str, str]
    local_ranks: Mapping[int, int] = field(default_factory=dict)
    absent: Sequence[int] = ()


# (the node it runs on, its command line, its environment) of every process that is to be started.
Plan: TypeAlias = "list[tuple[int, list[str], dict[str, str]]]"
Launcher: TypeAlias = Callable[[Order], Plan]


# torchrun, with torch out of the garbage collector's hands: hundreds of jobs start one.
_TORCHRUN = """
import gc
gc.disable()
from torch.distributed.run import main
gc.freeze()
gc.enable()
main()
"""


def torchrun(order: Order) -> Plan:
    """One agent a node."""
    assert not order.absent, "torchrun starts all ranks or none"
    program = order.tool
    if order.local_ranks:
        cases = "".join(
            f"{rank}) export LOCAL_RANK={is_};; " for rank, is_ in order.local_ranks.items()
        )
        script = f'case "$RANK" in {cases}esac; exec "$0" "$@"'
        program = ["--no-python", "sh", "-c", script, sys.executable, *order.tool]
    here = str(order.ranks // order.nodes)
    run = [sys.executable, "-c", _TORCHRUN, "--nproc-per-node", here]
    if order.nodes == 1:
        return [(0, [*run, *program], order.environ)]
    where = ["--master-addr", order.master[0], "--master-port", str(order.master[1])]
    nodes = ["--nnodes", str(order.nodes)]
    return [
        (node, [*run, *nodes, "--node-rank", str(node), *where, *program], order.environ)
        for node in range(order.nodes)
    ]


def env(order: Order) -> Plan:
    """One process a rank, with torchrun's variables only."""
    here = order.ranks // order.nodes
    return [
        (
            rank // here,
            [sys.executable, *order.tool],
            {
                **order.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(order.ranks),
                "LOCAL_RANK": str(order.local_ranks.get(rank, rank % here)),
                "LOCAL_WORLD_SIZE": str(here),
                "MASTER_ADDR": order.master[0],
                "MASTER_PORT": str(order.master[1]),
            },
        )
        for rank in range(order.ranks)
        if rank not in order.absent
    ]


def mpirun(order: Order) -> Plan:
    """Open MPI's, on this host."""
    assert order.nodes == 1, "to other hosts it would go by ssh"
    run = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(order.ranks)]
    return [(0, [*run, sys.executable, *order.tool], order.environ)]


def hydra(order: Order) -> Plan:
    """MPICH's, on this host; Intel MPI's is made from it."""
    assert order.nodes == 1, "to other hosts it would go by ssh"
    run = ["mpiexec.hydra", "-n", str(order.ranks)]
    return [(0, [*run, sys.executable, *order.tool], order.environ)]


LAUNCHERS: dict[str, Launcher] = {
    "torchrun": torchrun,
    "env": env,
    "mpirun": mpirun,
    "hydra": hydra,
}
