"""`oddrank doctor`: what is built, loaded, missing, and what to type. It judges nothing."""

import sys

import click

from oddrank import finding, launch, render
from oddrank.cli import Seconds, json_option
from oddrank.doctor import parts
from oddrank.errors import LaunchError, OddrankError


@click.command(name="doctor")
@json_option
@click.option(
    "--deadline",
    "seconds",
    type=Seconds(min=0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long torch and the CUDA driver may take to answer.",
)
def command(json_path: str | None, seconds: float) -> int:
    """Say of each part whether it is here, and if not why and what to type.

    In a job one rank of each node speaks and rank 0 writes the JSON. Exit code 0 if _core works.
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
            finding.write_json(finding.envelope("doctor", world, data), json_path)
    finally:
        stream = sys.stderr if json_path == "-" else sys.stdout
        render.table(parts.COLUMNS, parts.rows(data), stream)
    return 0 if parts.works(data) else OddrankError.exit_code
