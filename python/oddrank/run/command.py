"""`oddrank run`: runs a training script unchanged, watched and recorded."""

from typing import NoReturn

import click

from oddrank.cli import Seconds
from oddrank.errors import OddrankError
from oddrank.report import check_writable
from oddrank.run.arm import STALL

_ABOUT = """Run a training script as Python does; say what went wrong, while it goes wrong.

\b
  torchrun --nproc-per-node 8 -m oddrank run train.py --lr 1e-4
  srun oddrank run --json verdict.json -m mypkg.train

The script runs as without oddrank, and with its exit code. A guard beside each rank sees when
it dies or stands still, and a judge beside rank 0 names on stderr the rank to blame. Neither
ends anything. The records stay for oddrank trace and oddrank triage.
"""


@click.command(
    help=_ABOUT, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option("-m", "is_module", is_flag=True, help="Run a module, as `python -m` does.")
@click.option(
    "--stall",
    type=Seconds(min=1),
    default=STALL,
    show_default=True,
    metavar="SECONDS",
    help="How long no step and no collective of any rank begins or ends until a rank is named."
    " Longer if this job had long pauses before, and while the rank that others wait for works.",
)
@click.option(
    "--json",
    "json_path",
    metavar="FILE",
    help="Write the report to FILE, as soon as there is one and whenever it changes.",
)
@click.option(
    "--exclude",
    "exclude_path",
    metavar="FILE",
    help="Write the nodes to leave out when the job starts again, as selftest does.",
)
@click.option(
    "--history",
    "history_path",
    metavar="DIR",
    help="Keep how each attempt of this job ended: three ends by one cause without progress make"
    " the decision do-not-restart.",
)
@click.option("--no-watch", is_flag=True, help="Record only: start no guard and no judge.")
@click.option(
    "--packages",
    metavar="LIST",
    help="How closely to record packages, on top of the defaults: mypkg=lines,torch=calls. Levels:"
    " off, where, calls, lines (of a name alone).",
)
@click.option(
    "--hook",
    type=click.Choice(["settrace", "monitoring"]),
    help="monitoring needs Python 3.12 and is the default from there on.",
)
@click.argument("program", metavar="SCRIPT|MODULE")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
def command(  # noqa: PLR0917 (click passes them by name)
    is_module: bool,
    stall: float,
    json_path: str | None,
    exclude_path: str | None,
    history_path: str | None,
    no_watch: bool,
    packages: str | None,
    hook: str | None,
    program: str,
    arguments: tuple[str, ...],
) -> NoReturn:
    from oddrank.run import script, start

    for option, path in (("--json", json_path), ("--exclude", exclude_path)):
        if path == "-":
            raise OddrankError(f"{option} - would mix with the script's output: name a file")
        if path is not None:
            check_writable(path, f"give {option} a file in a folder you can write")
    if not no_watch:
        start.begin(stall, json_path, exclude_path, history_path)
    runs = script.module if is_module else script.script
    runs(program, arguments, packages, hook)
