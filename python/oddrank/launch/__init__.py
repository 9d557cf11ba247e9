"""This process's place in its job: rank, local rank, world, node, host, master.

Finds it from the table of launchers; names no launcher.
"""

import json
import os
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from oddrank import job
from oddrank.errors import LaunchError
from oddrank.launch.launchers import (
    LAUNCHERS,
    Environ,
    Launcher,
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

    If the launcher does not say, `node` and `nodes` assume that ranks are placed node by node
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
        """A hint behind the number of ranks in a summary, if no launcher was found."""
        return " (no launcher found: this process alone)" if self.launcher == "alone" else ""

    def as_world(self) -> dict[str, object]:
        """The `world` entry of a report."""
        return {"size": self.world, "nodes": self.nodes, "launcher": self.launcher, "job": self.job}


def current(environ: Environ = os.environ) -> Launch:
    """Returns this process's place in its job; rank 0 of 1 if nothing launched it.

    LaunchError names the variables and values that contradict each other or are no numbers.
    """
    active = [row for row in LAUNCHERS if row.is_active(environ)]
    starters = [row for row in active if not row.relabels]
    # PMI without a local rank is srun's own plugin: SLURM's row, further down, has more.
    starters.sort(key=lambda row: find(environ, row.local_rank) is None)
    started = _read(starters[0], environ) if starters else None
    for row in active:
        if row.relabels and started is None:
            _refuse_other_ranks(row, environ)
        if row.relabels and (started is None or _names_anew(row, starters[0], started, environ)):
            return _read(row, environ)
    if started is not None:
        return started
    return Launch("alone", 0, 0, 1, 1, 0, 1, os.uname().nodename, None, job.job_name(environ))


def refuse_half(environ: Environ = os.environ) -> None:
    """Raises LaunchError for a world size or a local rank without a rank.
    Commands over ranks call it: else one process would take itself for the whole job."""
    for row in (row for row in LAUNCHERS if row.relabels):
        for names, harmless in ((row.world, 1), (row.local_rank, 0)):
            found = number(environ, names)
            if found and found[1] != harmless:
                raise LaunchError(f"{say(found)} is set without {row.rank}: set both or neither")


def fakes_terminals(environ: Environ = os.environ) -> bool:
    """Returns whether this rank's stdout looks like a terminal, not the launcher's."""
    return any(row.fakes_terminals and row.is_active(environ) for row in LAUNCHERS)


def tell_launcher(text: str, environ: Environ = os.environ) -> None:
    """Makes the launcher end its own report of a failure with this text, if it can.
    Else torchrun's many lines about exit codes push the verdict off the screen."""
    if path := error_file(environ):
        with suppress(OSError), open(path, "w", encoding="utf-8") as file:
            file.write(error_text(text, time.time()))


def error_file(environ: Environ = os.environ) -> str:
    """Returns the file from which the launcher's report of a failure has this rank's message.

    "": it has none, or the launcher makes no report of its own.
    """
    rows = (row for row in LAUNCHERS if row.error_file and row.is_active(environ))
    return next((path for row in rows if (path := environ.get(row.error_file))), "")


def error_text(text: str, when: float) -> str:
    """Returns the content of such a file. when: Unix time; the first one is the root cause."""
    told = {"message": text, "extraInfo": {"timestamp": str(int(when))}}
    return json.dumps({"message": told})


def starter(environ: Environ = os.environ) -> int:
    """Returns the pid of the process that started this host's ranks.

    It is the nearest one above without this rank's variables: programs between them, as `timeout`,
    a profiler or a script, have these. A launcher may have some: Kubernetes gives torchrun a RANK.
    """
    row = next((row for row in LAUNCHERS if row.is_active(environ)), None)
    texts = (row.mark, row.rank, row.world, row.local_rank) if row is not None else ()
    found = (find(environ, text) for text in texts)
    own = {"=".join(one).encode() for one in found if one is not None}
    pid = os.getppid()
    with suppress(OSError, IndexError):  # another user's, or gone
        while own and own <= {*Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")}:
            pid = int(job.stat_fields(pid)[1])
    return pid


def _names_anew(row: Launcher, inner: Launcher, started: Launch, environ: Environ) -> bool:
    """Returns whether RANK and WORLD_SIZE name other ranks than the launcher's own variables.

    They may repeat its numbers (a wrapper script), or count more ranks, which each of its processes
    forked. A launcher of one process (an interactive shell in a step) says nothing.
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


def _refuse_other_ranks(row: Launcher, environ: Environ) -> None:
    """Refuses RANK beside another launcher's rank that differs, if that launcher is not active.

    Containers pass on some of a launcher's variables. Its rank 0 says nothing: a batch script and
    an interactive shell have it, too.
    """
    rank, world = _rank_and_world(row, environ)
    for other in LAUNCHERS:
        theirs = None if other.relabels or other.is_active(environ) else other.rank
        left = number(environ, theirs) if theirs and theirs != row.rank else None
        if left is None or left[1] in (0, rank[1]):
            continue
        size = number(environ, other.world)
        if size is None or size[1] == world[1]:
            raise contradiction(rank, left)


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
    # As far as is known without a resolver.
    master = environ.get("MASTER_ADDR", "")
    is_here = master in ("localhost", "::1", os.uname().nodename) or master.startswith("127.")
    all_here = world[1] == 1 or is_here
    # Not known: one rank per host if none has a local rank, else as many as there can be.
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
        launcher=row.name, rank=rank[1], local_rank=local_rank, world=world[1], local_world=here,
        node=node[1] if node else rank[1] // here, nodes=count, host=os.uname().nodename,
        master=_master(row, environ, one_host=one_host), job=job.job_name(environ),
        node_is_known=node is not None, one_parent=row.one_parent, clears_up=row.clears_up,
    )  # fmt: skip


def _master(row: Launcher, environ: Environ, *, one_host: bool) -> tuple[str, int] | None:
    """Returns MASTER_ADDR and MASTER_PORT, or the same on every rank if they are missing."""
    first = row.first_host(environ)
    host = environ.get("MASTER_ADDR") or first or ("127.0.0.1" if one_host else None)
    if not host:
        return None
    port = number(environ, "MASTER_PORT")
    if port is None:
        # Ranks that were started by hand may have different parents: they take torch's port.
        if row.relabels or not (first or one_host):
            return host, _DEFAULT_PORT
        # From the job's name, 20000-29999: below the ports of Linux's clients.
        return host, 20000 + zlib.crc32(job.job_name(environ).encode()) % 10000
    if not 0 < port[1] < 65536:
        raise LaunchError(f"{say(port)} is no port: set it to a number from 1 to 65535")
    return host, port[1]
