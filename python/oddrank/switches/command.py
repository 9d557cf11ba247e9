"""`oddrank switch`: writes an order for the jobs that watch a folder, and shows their state."""

import getpass
import os
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path

import click

from oddrank import job, render
from oddrank.cli import CommandGroup, json_option
from oddrank.errors import OddrankError
from oddrank.finding import duration, some
from oddrank.report import envelope, write_json
from oddrank.switches import order_file
from oddrank.switches.order_file import KILL, OFF, SAVE, Order

_EXAMPLES = """Tell all ranks of running jobs to save or end, at the same step.

\b
DIR is the folder that the jobs watch: oddrank.switch(DIR) in their scripts.

\b
Examples:
  oddrank switch save /shared/run17
  oddrank switch kill /shared/run17
  oddrank switch status /shared/run17

Exit codes: 0; 1 from check if jobs are refused; 2 if DIR can't be read or written.
"""
# A job that has not reported for longer is taken for gone: it reports every 10 s.
_LIVING_SECONDS = 60.0
# The words of `check`: examples/slurm/torchrun.sbatch compares them.
_REFUSED, _ALLOWED = "refused", "allowed"
# Word -> the effect of an order that no job reads now.
_UNHEARD = {
    KILL: ": jobs that start are refused, until `off`",
    SAVE: ": nobody obeys it, and a job that starts later will not, either",
}


@click.group(cls=CommandGroup, help=_EXAMPLES)
def command() -> None: ...


def _given(ctx: click.Context, argument: click.Parameter, value: str) -> Path:
    if not value:  # Path("") is the working directory
        raise click.BadParameter("it is empty: give the folder that the script watches")
    return Path(value)


_folder = click.argument("folder", metavar="DIR", callback=_given)


def _orders(word: str, text: str) -> None:
    @command.command(word, help=text)
    @_folder
    def write(folder: Path) -> None:
        order_file.in_time(folder, lambda: order_file.write(folder, word, _me()))
        reports = order_file.in_time(folder, lambda: order_file.reports(folder))
        running = (one for one in reports if one.state != order_file.ENDED)
        living = [one for one in running if time.time() - one.seen < _LIVING_SECONDS]
        if living:
            names = some([one.job for one in living], 5)
            render.line(f"{word} is written. Jobs that watch {folder}: {names}", sys.stdout)
            render.line(f"next: oddrank switch status {shlex.quote(str(folder))}", sys.stdout)
        else:
            text = f"No job watches {folder} now{_UNHEARD.get(word, '')}"
            render.line(f"{word} is written. {text}", sys.stdout)


_orders("kill", "Make all ranks save, then end. Jobs that start later are refused, until `off`.")
_orders("save", "Make all ranks save a checkpoint, and go on.")
_orders("off", "Withdraw the order: jobs may start again.")


@command.command()
@_folder
@json_option
def status(folder: Path, json_path: str | None) -> None:
    """Show the order, and the state of the jobs that watch DIR."""
    try:
        order = _read(folder)
    except FileNotFoundError as error:
        raise OddrankError(
            f"{folder} is no switch: no job has watched it. Give the folder that the script gives"
            " oddrank.switch()"
        ) from error
    found = order_file.in_time(folder, lambda: order_file.reports(folder))
    if json_path is not None:
        orders = [] if order.word == OFF else [asdict(order)]
        said = {"orders": orders, "jobs": [asdict(one) for one in found]}
        write_json(envelope("switch status", {}, said), json_path)
    if json_path == "-":
        return
    render.line(f"order: {OFF if order.word == OFF else order}", sys.stdout)
    rows = [(one.job, one.host, one.world, one.steps, one.state, _ago(one.seen)) for one in found]
    render.table(("job", "host", "ranks", "calls", "state", "seen"), rows, sys.stdout)


@command.command()
@_folder
def check(folder: Path) -> int:
    """Print `refused` if no job may start, else `allowed`: for scripts, before they start one.

    If it is refused, the exit code is 1 and stderr says why. Compare the word, not the exit code: a
    Python that can't run this command exits with 1, too.
    """
    try:
        order = _read(folder)
    except FileNotFoundError:
        order = Order()
        _may_be_made(folder)
    why = order_file.refusal(folder.absolute(), order)
    if why:
        render.line(f"oddrank: {why}", sys.stderr)
    render.line(_REFUSED if why else _ALLOWED, sys.stdout)
    return 1 if why else 0


def _read(folder: Path) -> Order:
    """Returns the order. FileNotFoundError if no job has watched the folder."""
    try:
        return order_file.in_time(folder, lambda: order_file.read(folder))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise OddrankError(
            f"{folder} can't be read: {error.strerror or error}. Give the folder that the script"
            " gives oddrank.switch()"
        ) from error


def _may_be_made(folder: Path) -> None:
    """Says that the first job makes the folder. OddrankError if it can't: the path is misspelt."""
    parent = folder.absolute().parent
    is_there, can_be = order_file.in_time(folder, lambda: (folder.is_dir(), parent.is_dir()))
    if not can_be:
        raise OddrankError(f"{folder} is no switch: {parent} does not exist. Check the path")
    if not is_there:
        render.line(f"oddrank: {folder} does not exist yet: the first job makes it", sys.stderr)


def _me() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, in a container
        user = f"uid{os.geteuid()}"
    return job.file_name(f"{user}@{os.uname().nodename}")


def _ago(seen: float) -> str:
    seconds = time.time() - seen
    is_known = 0 <= seconds < 365 * 24 * 3600  # else another host's clock, or nonsense
    return f"{duration(seconds, 0)} ago" if is_known else "?"
