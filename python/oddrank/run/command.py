"""`oddrank run`: runs a training script unchanged, watched and recorded."""

import os
import shutil
from typing import Any, NoReturn

import click

from oddrank import cli
from oddrank.cli import Seconds, html_option, near, prometheus_file, refuse_shared, writable
from oddrank.collect import OUTPUT
from oddrank.errors import OddrankError
from oddrank.run.options import ACTIONS, COLLECT, STALL, Options

_ABOUT = """Run a training script as Python does, and report deaths and stalls as they happen.

\b
Examples:
  torchrun --nproc-per-node 8 -m oddrank run train.py --lr 1e-4
  srun oddrank run --json verdict.json -m mypkg.train

The script runs as without oddrank, and with its exit code. A guard beside each rank sees when
the rank dies or stalls. A judge beside rank 0 names the rank to blame, on stderr. Then each
node's evidence is saved for `oddrank triage`. Only --on-stall kill ends ranks.

Exit codes: the script's own; 2 could not run.
"""


@click.command(
    help=_ABOUT,
    context_settings={
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
        **cli.renamed(exclude="write-exclude"),
    },
)
@click.option("-m", "is_module", is_flag=True, help="Run a module, as `python -m` does.")
@click.option("--stall", type=Seconds(min=1), default=STALL, show_default=True, metavar="SECONDS",
              help="Name a rank when no rank has begun or ended a step or a collective for this"
              " long. Waits longer if this job had long pauses before, and while the rank that"
              " others wait for works.")  # fmt: skip
@click.option("--on-stall", default=COLLECT, show_default=True, type=click.Choice(ACTIONS),
              help="report: only print the verdict. collect: also save the evidence of all nodes,"
              " at a death too. kill: then end all ranks.")  # fmt: skip
@click.option("--on-verdict", metavar="COMMAND",
              help="Run this shell command on rank 0's host at each new or better verdict, to"
              " notify somebody. {report} stands for --json's file.")  # fmt: skip
@click.option("-o", "--output", metavar="DIR", default=OUTPUT, show_default=True,
              callback=writable(folder=True),
              help="Folder for the evidence. On several nodes, give a shared one.")  # fmt: skip
@click.option("--json", "json", metavar="FILE", callback=writable(),
              help="Write the report as JSON at a verdict, and at each change.")  # fmt: skip
@click.option("--write-exclude", "exclude", metavar="FILE", callback=writable(),
              help="Write the nodes to leave out, one per line, for sbatch"
              " --exclude=./FILE.")  # fmt: skip
@html_option
@click.option("--prometheus", "prometheus", metavar="FILE.prom", callback=prometheus_file,
              help="Write the state of each rank every 15 s for Prometheus's textfile"
              " collector.")  # fmt: skip
@click.option("--history", "history", metavar="DIR", callback=writable(folder=True),
              help="Keep in this folder how each attempt of the training ended. After three ends by"
              " one cause without progress, the decision is do-not-restart.")  # fmt: skip
@click.option("--report-every", type=Seconds(min=1), metavar="SECONDS",
              help="Time between reports of ranks that come late to collectives of gloo or NCCL."
              " Names a rank that is late in two of them in a row. Default: never.")  # fmt: skip
@click.option("--no-watch", is_flag=True, help="Only record: start no guard and no judge.")
@click.argument("program", metavar="SCRIPT|MODULE")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
def command(
    program: str, arguments: tuple[str, ...], is_module: bool, no_watch: bool,
    html_path: str | None, **watch: Any,
) -> NoReturn:  # fmt: skip
    from oddrank.run import script, start

    if program.startswith("-") and not os.path.exists(program):
        option = program.partition("=")[0][:40]
        known = [name for param in command.params for name in param.opts]
        raise click.UsageError(f"No such option {option}{near(option, known)}")
    options = Options(html=html_path, **watch)
    files = {
        "--json": options.json, "--write-exclude": options.exclude, "--html": options.html,
        "--prometheus": options.prometheus,
    }  # fmt: skip
    refuse_shared(files)
    for option, path in files.items():
        if path == "-":
            raise OddrankError(f"{option} - would mix with the script's output: name a file")
        if path is not None and no_watch:
            raise OddrankError(f"{option} has nothing to write with --no-watch: leave one out")
    if (on_verdict := options.on_verdict) is not None:
        if no_watch:
            raise OddrankError("--on-verdict has no verdict with --no-watch: leave one out")
        # At the verdict it would be too late to say so.
        if len(on_verdict.split()) < 2 and shutil.which(on_verdict) is None:
            raise OddrankError(f"--on-verdict {on_verdict!r} is no command: name a shell command")
        if "{report}" in on_verdict and options.json is None:
            raise OddrankError(f"--on-verdict {on_verdict!r} needs a report: give --json a file")
    if not no_watch:
        start.begin(options)
    runs = script.module if is_module else script.script
    runs(program, arguments)
