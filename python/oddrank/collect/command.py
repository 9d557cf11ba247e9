"""`oddrank collect`: saves all evidence of a job on this node before it is gone."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from oddrank import render
from oddrank.cli import Seconds
from oddrank.collect import OUTPUT
from oddrank.errors import OddrankError
from oddrank.finding import counted, size_text

if TYPE_CHECKING:
    from oddrank.collect import node

_MOST_LINES = 12
_LIMIT, _SECONDS = "256M", 30


def _bytes(value: str) -> int:
    """Converts 256M, 256MiB or 1G to bytes."""
    text = value.strip().upper().removesuffix("IB").removesuffix("B")
    unit = {"K": 10, "M": 20, "G": 30}.get(text[-1:], 0)
    number = text[:-1] if unit else text
    fits = number.isascii() and number.isdigit() and len(number) <= 16
    size = int(number) << unit if fits else 0
    if not 1 << 20 <= size <= 1 << 50:
        raise click.BadParameter(f"{value[:40]!r} is not a size like 256M, from 1M to 1048576G")
    return size


@click.command()
@click.argument("job", nargs=-1, metavar="[JOB]...")
# Not click's Path: it would query a folder that may not answer.
@click.option("-o", "--output", "folder", metavar="DIR", default=OUTPUT, show_default=True,
              type=Path,
              help="Folder for the evidence. On several nodes, give a shared one.")  # fmt: skip
@click.option("--limit", metavar="SIZE", default=_LIMIT, show_default=True,
              callback=lambda _context, _option, value: _bytes(value),
              help="Largest size of a node's files.")  # fmt: skip
@click.option("--deadline", type=Seconds(min=2, max=3600), default=f"{_SECONDS}s",
              show_default=True, help="Time limit for this node.")  # fmt: skip
def command(job: tuple[str, ...], folder: Path, limit: int, deadline: float) -> int:
    """Save all evidence of a job on this node, before it is gone.

    \b
    Examples:
      oddrank collect                                  your newest job on this host
      oddrank collect slurm-4711.0 -o /shared/evidence
      srun --ntasks-per-node 1 oddrank collect -o /shared/evidence
      oddrank triage /shared/evidence                  which rank is to blame

    Reads oddrank's records, dumps of torch's flight recorder, NCCL RAS (twice), nvidia-smi -q, the
    kernel's log, cgroups, /proc of each rank, and torchelastic's error files. Writes DIR/JOB/HOST,
    and in it manifest.json: what was read, and what could not be read and why. The job needs no
    oddrank: without records, ranks are found by their environment variables. JOB: the name of a
    job, or as PATH of `oddrank trace where`.

    Each source has a deadline and a process of its own: one that hangs is named and left out. After
    a signal, the files written so far are kept.

    Exit codes: 0; 2 if there is no such job, or DIR can't be written.
    """
    from oddrank import launch
    from oddrank.collect import children, node

    here = launch.current()
    if here.local_rank != 0:
        return 0
    stop = children.Stop()
    with stop.on_signals():
        done = node.gather(job, folder, here.host, limit=limit, deadline=deadline, stop=stop)
    render.line(_summary(done), sys.stdout)
    for line in _lines(done):
        render.line(f"oddrank: {line}", sys.stderr)
    refused = {Path(one["what"]) for one in done.not_read}
    named = {Path(name) for name in job}
    return OddrankError.exit_code if done.lacking or named & refused else 0


def for_guard(job: str, host: str, folder: str) -> None:
    """Collects for `oddrank run`; prints a line of JSON.

    saved: the saved evidence, in a sentence; None: nothing. lines: further lines.
    """
    from oddrank.collect import children, node

    stop = children.Stop()
    said: dict[str, object]
    try:
        with stop.on_signals():
            done = node.gather(
                [job], Path(folder), host, limit=_bytes(_LIMIT), deadline=_SECONDS, stop=stop
            )
        said = {"saved": _summary(done), "lines": _lines(done)}
    except OddrankError as error:
        said = {"saved": None, "lines": [str(error)]}
    print(json.dumps(said))


def _summary(done: "node.Collected") -> str:
    records = counted(done.records, "record")
    others = f"{done.files - done.records} other files ({size_text(done.bytes)})"
    what = f"{records} of job {done.job} and {others}"
    return f"{what} in {done.folder}"


def _lines(done: "node.Collected") -> list[str]:
    """Returns further lines: notes, and evidence that is present but could not be read."""
    lines = [*done.lacking, *done.lines]
    if done.why:
        lines.append(f"{done.why} ended it early: what was done by then is kept")
    lacks = [f"{one['what']} was not collected: {one['why']}"
             for one in done.not_read if not one["absent"]]  # fmt: skip
    lines += lacks[:_MOST_LINES]
    if len(lacks) > _MOST_LINES:
        lines.append(f"{len(lacks) - _MOST_LINES} more such lines are in manifest.json")
    return lines
