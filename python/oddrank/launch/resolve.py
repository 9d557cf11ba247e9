"""From a row of the table to a place in the job; no launcher is known by name here."""

import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from oddrank import job
from oddrank.errors import LaunchError
from oddrank.launch.launchers import LAUNCHERS, Launcher
from oddrank.launch.variables import (
    Environ,
    Number,
    check_below,
    check_world,
    contradiction,
    find,
    needed,
    number,
    say,
)

_DEFAULT_PORT = 29500  # torch's


@dataclass(frozen=True)
class Launch:
    """One process's place in its job.

    Where the launcher does not say, `node` and `nodes` assume that ranks are placed node by node
    (`node_is_known` is then false), and `local_world` is the most that there can be.
    one_parent: all ranks of this host are children of one process that starts this job alone.
    clears_up: once the launcher sees a rank end, it may kill all that runs here, and at once.
    """

    launcher: str
    rank: int
    local_rank: int
    world: int
    local_world: int
    node: int
    nodes: int
    host: str
    master: tuple[str, int] | None
    job: str
    node_is_known: bool = True
    one_parent: bool = False
    clears_up: bool = False

    @property
    def note(self) -> str:
        """Behind the ranks of a summary: whoever wanted more must not take this for all of them."""
        return " (no launcher found: this process alone)" if self.launcher == "alone" else ""

    def as_world(self) -> dict[str, object]:
        """The `world` entry of a report."""
        return {
            "size": self.world,
            "nodes": self.nodes,
            "launcher": self.launcher,
            "job": self.job,
        }


def current(environ: Environ = os.environ) -> Launch:
    """This process's place in its job; rank 0 of 1 where nothing launched it.

    LaunchError names the variables and values that contradict each other or are no numbers.
    """
    active = [row for row in LAUNCHERS if row.is_active(environ)]
    starters = [row for row in active if not row.relabels]
    # A PMI without a local rank is srun's own plugin: SLURM's row, further down, knows more.
    starters.sort(key=lambda row: find(environ, row.local_rank) is None)
    started = _read(starters[0], environ) if starters else None
    for row in active:
        if row.relabels and (started is None or _names_anew(row, starters[0], started, environ)):
            return _read(row, environ)
    if started is not None:
        return started
    return Launch("alone", 0, 0, 1, 1, 0, 1, os.uname().nodename, None, job.job_name(environ))


def refuse_half(environ: Environ = os.environ) -> None:
    """LaunchError for a size or a local rank without a rank, which a batch script may well export.

    For commands over ranks: one process would take itself for the whole job.
    """
    for row in (row for row in LAUNCHERS if row.relabels):
        for names, harmless in ((row.world, 1), (row.local_rank, 0)):
            found = number(environ, names)
            if found and found[1] != harmless:
                raise LaunchError(f"{say(found)} is set without {row.rank}: set both or neither")


def fakes_terminals(environ: Environ = os.environ) -> bool:
    """Whether this rank's stdout looks like a terminal, whatever the launcher's own is."""
    return any(row.fakes_terminals and row.is_active(environ) for row in LAUNCHERS)


def job_folder(launch: Launch, environ: Environ = os.environ) -> Path:
    """Where this job's files lie on this host: a name; who writes there makes and checks it."""
    return job.job_folder(environ)


def _names_anew(row: Launcher, inner: Launcher, started: Launch, environ: Environ) -> bool:
    """Whether RANK and WORLD_SIZE, set in a launcher's process, name other ranks than the launcher.

    They may repeat its numbers (a wrapper script), or count more ranks: those that each of its
    processes forked. A launcher of one process (an interactive shell in a step) says nothing.
    """
    if row.rank == inner.rank:
        return False
    if started.world == 1:
        return True
    rank, world = _rank_and_world(row, environ)
    if world[1] == started.world:
        if rank[1] != started.rank:
            raise contradiction(rank, _rank_and_world(inner, environ)[0])
        return False
    if world[1] < started.world or find(environ, row.local_rank) is None:
        raise contradiction(world, _rank_and_world(inner, environ)[1])
    return True


def _rank_and_world(row: Launcher, environ: Environ) -> tuple[Number, Number]:
    rank = number(environ, row.rank)
    assert rank is not None, "only active rows are read"
    world = needed(environ, row.world, rank)
    check_world(world)
    check_below(rank, world)
    return rank, world


def _read(row: Launcher, environ: Environ) -> Launch:
    rank, world = _rank_and_world(row, environ)
    local = number(environ, row.local_rank)
    local_world = number(environ, row.local_world)
    nodes, node = number(environ, row.nodes), number(environ, row.node)
    if local and local_world:
        check_below(local, local_world)
    if local_world and local_world[1] > world[1]:
        raise contradiction(local_world, world)
    if node and nodes:
        check_below(node, nodes)
    said = local_world[1] if local_world else row.count_here(environ)
    all_here = world[1] == 1 or _is_here(environ.get("MASTER_ADDR", ""))
    # Not said: one a host where nothing tells them apart there, else as many as there can be.
    here = said or (1 if local is None and not all_here else world[1])
    if local is None and world[1] > 1 and not row.relabels:
        raise LaunchError(
            f"{say(rank)} of {say(world)}, but none of {', '.join(row.local_rank.split())} is set:"
            " export LOCAL_RANK, this rank's number on its host"
        )
    local_rank = local[1] if local else rank[1] % here
    here = max(here, local_rank + 1)
    count = nodes[1] if nodes else max(-(-world[1] // here), node[1] + 1 if node else 1)
    one_host = count == 1 and (said is not None or all_here)
    return Launch(
        launcher=row.name,
        rank=rank[1],
        local_rank=local_rank,
        world=world[1],
        local_world=here,
        node=node[1] if node else rank[1] // here,
        nodes=count,
        host=os.uname().nodename,
        master=_master(row, environ, one_host=one_host),
        job=job.job_name(environ),
        node_is_known=node is not None,
        one_parent=row.one_parent,
        clears_up=row.clears_up,
    )


def _master(row: Launcher, environ: Environ, *, one_host: bool) -> tuple[str, int] | None:
    """MASTER_ADDR and MASTER_PORT; what is missing is derived where every rank derives the same."""
    first = row.first_host(environ)
    host = environ.get("MASTER_ADDR") or first or ("127.0.0.1" if one_host else None)
    if not host:
        return None
    port = number(environ, "MASTER_PORT")
    if port is None:
        return host, _derived_port(row, environ) if first or one_host else _DEFAULT_PORT
    if not 0 < port[1] < 65536:
        raise LaunchError(f"{say(port)} is no port: set it to a number from 1 to 65535")
    return host, port[1]


def _derived_port(row: Launcher, environ: Environ) -> int:
    """A port of 20000-29999 (below those that Linux gives to clients), by the job's identity.

    Ranks that were started by hand have only their parents, which may differ: torch's port.
    """
    if row.relabels:
        return _DEFAULT_PORT
    return 20000 + zlib.crc32(job.job_name(environ).encode()) % 10000


def _is_here(host: str) -> bool:
    """Whether `host` is this one, as far as that can be told without asking a resolver."""
    return host in ("localhost", "::1", os.uname().nodename) or host.startswith("127.")
