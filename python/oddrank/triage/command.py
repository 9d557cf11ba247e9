"""`oddrank triage`: names the rank that stuck or ended a job, from the files that the job left."""

import gc
import sys

import click

from oddrank import cli

_EXAMPLES = """Name the rank that hung or ended a job: why, how sure that is, and the next step.

\b
PATHs are files and folders that the job left, of any kind and in any mix: oddrank's
records, Flight Recorder dumps, stacks (py-spy, faulthandler, gdb, pystack), logs of
ranks and launchers, kernel logs, output of ncclras, nvidia-smi -q and kubectl; also
packed (tar, zip, gz, bz2, xz, zst). - is stdin. Without a PATH: the newest job of
this host that recorded itself (oddrank.arm() or oddrank run).

\b
Examples:
  oddrank triage /dev/shm/nccl_trace_rank_* slurm-123.out
  oddrank triage job.tar.gz --explain
  dmesg -T | oddrank triage - logs/

Exit codes: 0 healthy; 1 odd or unknown; 2 no evidence; 3 incomplete.
"""


@click.command(help=_EXAMPLES)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--explain", is_flag=True, help="Show each rule with what speaks against it, and a timeline."
)
@click.option("--tree", is_flag=True, help="Show the stacks of all ranks as one tree.")
@cli.html_option
@cli.json_option
@cli.fail_on_option
def command(
    *, paths: tuple[str, ...], explain: bool, tree: bool, html_path: str | None,
    json_path: str | None, fail_on: frozenset[str],
) -> int:  # fmt: skip
    # Imported here: readers and judges take longer to import than --help takes in all.
    from oddrank import render
    from oddrank.trace import jobs
    from oddrank.triage import report
    from oddrank.triage.tree import lines

    gc.disable()  # facts of 10,000 ranks are millions of objects, and no garbage
    files = {"--json": json_path, "--html": html_path}
    cli.refuse_shared(files)
    cli.refuse_inputs(files, paths)
    found = report.read(list(paths) or jobs.here()[0].evidence)
    stream = sys.stderr if json_path == "-" else sys.stdout
    if tree:
        for line in lines(found.view.stacks):
            render.line(line, stream)
    if explain:
        for line in report.explanation(found):
            render.line(line, stream)
    made = report.made(found)
    render.deliver(made, json_path)
    cli.write_page(made, lambda: report.parts(found), html_path)
    return made.exit_code(fail_on)
