"""`oddrank top`: shows the ranks of this host live, from their records."""

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import click

from oddrank import job, render
from oddrank.cli import Seconds
from oddrank.errors import OddrankError
from oddrank.finding import duration, ranks_text, size_text
from oddrank.trace import jobs, ranks
from oddrank.trace.collectives import Collective
from oddrank.trace.ranks import Rank
from oddrank.trace.where import call_text, gil_text, on_purpose
from oddrank.triage.evidence.record_calls import frames
from oddrank.triage.facts import Frame
from oddrank.triage.words import own_place

COLUMNS = ("rank", "pid", "step", "steps/s", "last event", "in", "at", "CPU %", "RSS MiB",
           "workers")  # fmt: skip
_EVERY = 2.0
_CLEAR = "\x1b[2J\x1b[H"
_HERTZ = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MEMORY_FILES = Path("/dev/shm")


@dataclass(frozen=True)
class Look:
    """All ranks at one moment."""

    time: float
    ranks: tuple[Rank, ...]
    used: Mapping[int, tuple[float, int]] = field(default_factory=dict)
    """pid -> seconds of CPU time so far, and resident bytes."""


def look(files: Sequence[Path]) -> Look:
    """Reads records and /proc now."""
    found = [rank for rank in ranks.read(files)[0] if rank.runs_back == 0]
    used = {}
    for pid in (rank.pid for rank in found if rank.alive):
        if fields := job.stat_fields(pid):
            cpu = (int(fields[11]) + int(fields[12])) / _HERTZ
            used[pid] = cpu, int(fields[21]) * _PAGE
    return Look(time.time(), tuple(found), used)


def rows(before: Look, now: Look) -> list[tuple[object, ...]]:
    """Returns a row of COLUMNS for each rank, those with the fewest steps first."""
    old = {(rank.pid, rank.started): rank for rank in before.ranks}
    seconds = max(now.time - before.time, 1e-3)
    mains = [rank for rank in now.ranks if not rank.is_child]
    made: list[tuple[object, ...]] = []
    for rank in sorted(mains, key=lambda r: (-1 if r.step is None else r.step, r.rank)):
        earlier = old.get((rank.pid, rank.started))
        rate = None
        if earlier is not None and None not in (rank.step, earlier.step):
            rate = f"{((rank.step or 0) - (earlier.step or 0)) / seconds:.2f}"
        cpu, used = None, now.used.get(rank.pid)
        if used is not None and rank.pid in before.used:
            cpu = round(100 * (used[0] - before.used[rank.pid][0]) / seconds)
        workers = sum(1 for r in now.ranks if r.is_child and r.alive and r.rank == rank.rank)
        last = "-" if rank.last is None else duration(now.time - rank.last, 1)
        made.append((
            rank.rank, rank.pid, rank.step, rate, last if rank.alive else "dead",
            _call(rank, now.time), _place(rank), cpu,
            None if used is None else used[1] >> 20, workers,
        ))  # fmt: skip
    return made


def heading(now: Look) -> str:
    """Returns the line above the table: steps of all ranks, and how full /dev/shm is."""
    mains = [rank for rank in now.ranks if not rank.is_child]
    alive = sum(1 for rank in mains if rank.alive)
    name = next((rank.job for rank in now.ranks), "")
    text = f"{time.strftime('%H:%M:%S', time.localtime(now.time))}  job {name}: "
    text += f"{ranks_text(rank.rank for rank in mains)} here, {alive} alive"
    steps = [rank.step for rank in mains if rank.step is not None]
    if steps:
        least, most = min(steps), max(steps)
        text += f", step {least}" if least == most else f", steps {least} to {most}"
    with suppress(OSError):
        room = os.statvfs(_MEMORY_FILES)
        total = room.f_blocks * room.f_frsize
        used = 1 - room.f_bavail / max(room.f_blocks, 1)
        text += f"; /dev/shm {100 * used:.0f} % of {size_text(total)} used"
    return text


def _call(rank: Rank, now: float) -> str:
    """Returns the pause, the held GIL or the collective of the rank, and since when; "" if none."""
    if rank.gil_wanted is not None:
        return gil_text(rank.gil_wanted, now)
    if rank.pause is not None:
        return f"{rank.pause}{on_purpose(rank.pause, now)}"
    first: Collective | None = next((each for each in rank.collectives if each.open), None)
    if first is None:
        return " > ".join(rank.sections)
    since = "" if first.began is None else f" for {duration(now - first.began, 1)}"
    return f"{call_text(rank, first)}{since}"


def _place(rank: Rank) -> str:
    """Returns the user's own line in which the main thread is now, or ran last."""
    at = rank.last_at
    last = None if at is None else Frame(at.function, at.file, at.line)
    return own_place(frames(rank.main) if rank.main is not None else (), last)


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--every", type=Seconds(min=0.1, max=3600), default=_EVERY, show_default=True,
              metavar="SECONDS", help="Time between two tables; rates are over it.")  # fmt: skip
@click.option("--once", is_flag=True, help="Show one table, and end.")
def command(paths: tuple[str, ...], every: float, once: bool) -> int:
    """Show all ranks of this host live: step, rate, place, CPU, memory.

    \b
    Examples:
      oddrank top
      oddrank top --once --every 5 slurm-4711.0

    Reads the records of `oddrank run` or oddrank.arm(), as `oddrank trace where` does. PATH: as
    there. The rank with the fewest steps comes first. Ctrl-C ends it.
    """
    chosen = jobs.find(paths)
    before = look(chosen.files)
    if not before.ranks:
        where = shlex.join(["where", *paths])
        raise OddrankError(f"no record can be read: oddrank trace {where} says why")
    while True:
        time.sleep(every)
        # New ranks and workers have new files.
        files = chosen.files if paths else jobs.find(paths).files
        now = look(files)
        if sys.stdout.isatty() and not once:
            sys.stdout.write(_CLEAR)
        render.line(heading(now), sys.stdout)
        render.table(COLUMNS, rows(before, now), sys.stdout)
        sys.stdout.flush()
        if once:
            return 0
        before = now
