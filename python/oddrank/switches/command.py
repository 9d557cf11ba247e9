"""`oddrank switch`: writes an order for the jobs that watch a folder, and shows what they do."""

import getpass
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

import click

from oddrank import job, render
from oddrank.cli import CommandGroup, json_option
from oddrank.errors import OddrankError
from oddrank.report import envelope, write_json
from oddrank.switches import order_file
from oddrank.switches.order_file import JobReport

_EXAMPLES = """Tells all ranks of running jobs to save or end, at the same step.

\b
DIR is the folder that the jobs watch: oddrank.switch(DIR) in their scripts.

\b
  oddrank switch save /shared/run17
  oddrank switch kill /shared/run17 --jobs 'slurm-4711*'
  oddrank switch status /shared/run17
"""
# A job that has not reported for longer is taken for gone: it reports every 10 s.
_LIVING_SECONDS = 60.0
# The words of `check`: examples/slurm/torchrun.sbatch compares them.
_REFUSED, _ALLOWED = "refused", "allowed"


@click.group(cls=CommandGroup, help=_EXAMPLES)
def command() -> None: ...


def _orders(word: str, text: str) -> None:
    """Adds the command that writes an order."""

    @command.command(word, help=text)
    @click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
    @click.option("--jobs", metavar="PATTERN", default="*", show_default=True,
                  help="Names of the jobs that obey, as `status` shows them.")  # fmt: skip
    def write(folder: Path, jobs: str) -> None:
        if not jobs or any(one.isspace() or not one.isprintable() for one in jobs):
            raise click.UsageError(f"--jobs {jobs[:60]!r} is no name or pattern like 'slurm-47*'")
        order_file.in_time(folder, lambda: order_file.write(folder, word, jobs, _me()))
        living = [one for one in order_file.reports(folder) if _lives(one)]
        names = ", ".join(one.job for one in living[:5]) or "none"
        more = f" and {len(living) - 5} more" if len(living) > 5 else ""
        render.line(f"{word} is written. Jobs that watch {folder}: {names}{more}", sys.stdout)
        render.line(f"next: oddrank switch status {folder}", sys.stdout)


_orders("kill", "All ranks save, then end. Jobs that start later are refused, until `off`.")
_orders("save", "All ranks save a checkpoint, and go on.")
_orders("dump", "All ranks write their stacks at once, also if they hang; they go on.")
_orders("pause", "All ranks wait after the same step, until `resume` or another order.")
_orders("resume", "Ends a pause.")
_orders("off", "Takes back an order: jobs may start again.")


@command.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@json_option
def status(folder: Path, json_path: str | None) -> None:
    """Shows the order, and what the jobs that watch DIR do."""
    try:
        order, found = order_file.in_time(
            folder, lambda: (order_file.read(folder), order_file.reports(folder))
        )
    except OSError as error:
        raise OddrankError(
            f"{folder} is no switch: {error.strerror or error}. Give the folder that the script"
            " gives oddrank.switch()"
        ) from error
    if json_path is not None:
        said = {"order": asdict(order), "jobs": [asdict(one) for one in found]}
        write_json(envelope("switch status", {}, said), json_path)
    if json_path == "-":
        return
    render.line(f"order: {order}", sys.stdout)
    rows = [(one.job, one.host, one.world, one.steps, one.state, _ago(one.seen)) for one in found]
    render.table(("job", "host", "ranks", "step", "state", "seen"), rows, sys.stdout)


@command.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--job", "name", metavar="NAME", default="",
              help="The job that asks, for orders to some jobs: slurm-4711.0.")  # fmt: skip
def check(folder: Path, name: str) -> int:
    """Prints `refused` if no job may start, else `allowed`: for scripts, before they start one.

    Says why on stderr, and exits with 1, if it is refused. A script that must be sure compares the
    word: a Python that can't run this command exits with 1, too.
    """
    try:
        order = order_file.in_time(folder, lambda: order_file.read(folder))
    except FileNotFoundError:  # the first job makes it
        order = order_file.Order()
    except OSError as error:
        raise OddrankError(
            f"{folder} can't be read: {error.strerror or error}. Give the folder that the script"
            " gives oddrank.switch()"
        ) from error
    why = order_file.refusal(folder.absolute(), order, name or job.job_name())
    if why:
        render.line(f"oddrank: {why}", sys.stderr)
    render.line(_REFUSED if why else _ALLOWED, sys.stdout)
    return 1 if why else 0


def _me() -> str:
    """Returns the writer's name, for messages."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, in a container
        user = f"uid{os.geteuid()}"
    return job.file_name(f"{user}@{os.uname().nodename}")


def _lives(one: JobReport) -> bool:
    return time.time() - one.seen < _LIVING_SECONDS and one.state != order_file.ENDED


def _ago(seen: float) -> str:
    seconds = time.time() - seen
    if not 0 <= seconds < 365 * 24 * 3600:  # another host's clock, or nonsense
        return "?"
    unit, size = next(
        (unit, size) for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 0))
        if seconds >= 2 * size
    )  # fmt: skip
    return f"{seconds / (size or 1):.0f} {unit} ago"
