"""`oddrank doctor`: shows what is built, loaded or missing, and what to type. Does not judge."""

import sys

import click

from oddrank import launch, render
from oddrank.cli import Seconds, json_option
from oddrank.doctor import parts
from oddrank.errors import LaunchError, OddrankError
from oddrank.report import envelope, write_json


@click.command(name="doctor")
@json_option
@click.option(
    "--deadline",
    "seconds",
    type=Seconds(0.1, 3600),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for torch and the CUDA driver to answer (60, 60s or 5m).",
)
def command(json_path: str | None, seconds: float) -> int:
    """Show which parts are built and loaded, and what to type for those that are missing.

    \b
    Examples:
      oddrank doctor
      oddrank doctor --json doctor.json
      torchrun --nproc-per-node 8 -m oddrank doctor     as the job sees it

    In a job one rank of each node prints, and rank 0 writes the JSON.

    Exit codes: 0 _core works, 2 it does not. This command does not judge.
    """
    try:
        me = launch.current()
        world, speaks, writes = me.as_world(), me.local_rank == 0, me.rank == 0
    except LaunchError:  # shown as a row
        world, speaks, writes = {}, True, True
    if not speaks:
        return 0
    data = parts.examine(seconds)
    try:
        if json_path is not None and writes:
            write_json(envelope("doctor", world, data), json_path)
    finally:
        stream = sys.stderr if json_path == "-" else sys.stdout
        render.table(parts.COLUMNS, parts.rows(data), stream)
    return 0 if parts.works(data) else OddrankError.exit_code
