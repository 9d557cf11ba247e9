"""`oddrank top`: shows the ranks of this host live, from their records."""

import sys
import time

import click

from oddrank import render
from oddrank.cli import Seconds
from oddrank.errors import OddrankError

_EVERY = 2.0
_CLEAR = "\x1b[2J\x1b[H"


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--every", type=Seconds(min=0.1, max=3600), default=_EVERY, show_default=True,
              metavar="SECONDS", help="Time between two pictures: rates are over it.")  # fmt: skip
@click.option("--once", is_flag=True, help="Show one picture, and end.")
def command(paths: tuple[str, ...], every: float, once: bool) -> int:
    """Show all ranks of this host live: step, rate, place, CPU, memory, GPU.

    \b
    Examples:
      oddrank top
      oddrank top --once --every 5 slurm-4711.0

    Reads the records of `oddrank run` or oddrank.arm(), as `oddrank trace where` does; PATH as
    there. The rank with the fewest steps comes first. GPUs need nvidia-ml-py. Ends by Ctrl-C.
    """
    from oddrank.run.top import look as look_
    from oddrank.trace import jobs

    chosen = jobs.find(paths)
    before = look_.look(chosen.files)
    if not before.ranks:
        raise OddrankError("no record can be read: oddrank trace where says why")
    while True:
        time.sleep(every)
        # New ranks and workers have new files.
        files = chosen.files if paths else jobs.find(paths).files
        now = look_.look(files)
        if sys.stdout.isatty() and not once:
            sys.stdout.write(_CLEAR)
        columns, table = look_.shown(now, look_.rows(before, now))
        title = look_.heading(before, now, jobs.job_of(files[0]))
        render.line(title, sys.stdout)
        render.table(columns, table, sys.stdout)
        sys.stdout.flush()
        if once:
            return 0
        before = now
