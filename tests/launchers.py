"""Turns a test's order for ranks into command lines of a launcher."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from oddrank.launch import launchers

# Environment variables that hold a process's rank, the innermost launcher's first.
RANK_VARIABLES = tuple(name for row in launchers.LAUNCHERS for name in row.rank.split())


@dataclass(frozen=True)
class Order:
    """An order for ranks, spread evenly over `nodes`. tool: the arguments of Python."""

    tool: list[str]
    ranks: int
    nodes: int
    master: tuple[str, int]
    environ: dict[str, str]
    local_ranks: Mapping[int, int] = field(default_factory=dict)
    absent: Sequence[int] = ()


# Processes to start: (node, command line, environment) of each.
Plan: TypeAlias = "list[tuple[int, list[str], dict[str, str]]]"
Launcher: TypeAlias = Callable[[Order], Plan]


def torchrun(order: Order) -> Plan:
    """Plans one torchrun agent per node."""
    assert not order.absent, "torchrun starts all ranks or none"
    program = order.tool
    if order.local_ranks:
        cases = "".join(
            f"{rank}) export LOCAL_RANK={is_};; " for rank, is_ in order.local_ranks.items()
        )
        script = f'case "$RANK" in {cases}esac; exec "$0" "$@"'
        program = ["--no-python", "sh", "-c", script, sys.executable, *order.tool]
    here = str(order.ranks // order.nodes)
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", here]
    if order.nodes == 1:
        return [(0, [*run, *program], order.environ)]
    where = ["--master-addr", order.master[0], "--master-port", str(order.master[1])]
    nodes = ["--nnodes", str(order.nodes)]
    return [
        (node, [*run, *nodes, "--node-rank", str(node), *where, *program], order.environ)
        for node in range(order.nodes)
    ]


def env(order: Order) -> Plan:
    """Plans one process per rank, with torchrun's variables and no launcher."""
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
    """Plans Open MPI's mpirun, on this host."""
    assert order.nodes == 1, "to other hosts it would go by ssh"
    run = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(order.ranks)]
    # It kills a second after SIGTERM: too soon for a judge that gets no core.
    run += ["--mca", "odls_base_sigkill_timeout", "10"]
    return [(0, [*run, sys.executable, *order.tool], order.environ)]


def hydra(order: Order) -> Plan:
    """Plans MPICH's mpiexec.hydra, on this host; Intel MPI's derives from it."""
    assert order.nodes == 1, "to other hosts it would go by ssh"
    run = ["mpiexec.hydra", "-n", str(order.ranks)]
    return [(0, [*run, sys.executable, *order.tool], order.environ)]


LAUNCHERS: dict[str, Launcher] = {
    "torchrun": torchrun,
    "env": env,
    "mpirun": mpirun,
    "hydra": hydra,
}
