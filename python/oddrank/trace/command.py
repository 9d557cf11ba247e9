"""`oddrank trace`: record what ranks do, and see where each one is or was."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from oddrank import finding, render
from oddrank.cli import Group, json_option
from oddrank.errors import LaunchError, OddrankError

if TYPE_CHECKING:
    from oddrank.trace.ranks import Rank

_WATCH = 1.0  # seconds between two looks
_LOOK = 0.2  # seconds over which CPU time is counted
_CLEAR = "\x1b[2J\x1b[H"


_all_runs_option = click.option(
    "--all-runs", is_flag=True, help="Also the dead of a job's earlier runs."
)


@click.group(cls=Group)
def command() -> None:
    """Record where every rank is, and look at it: live, hung, killed or gone.

    Recording is switched on by oddrank.arm() in the script or by `trace run`. Looking needs neither
    ptrace nor the process: only its record file, under /dev/shm/oddrank-UID or $ODDRANK_DIR.
    """


@command.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option(
    "--packages",
    metavar="LIST",
    help="What is recorded how closely, over the defaults: mypkg=lines,torch=calls. Levels: off,"
    " where, calls, lines (a name alone).",
)
@click.option(
    "--hook",
    metavar="NAME",
    help="settrace or monitoring (Python 3.12 and later, and taken by itself there).",
)
@click.option("-m", "is_module", is_flag=True, help="Run a module, as `python -m` does.")
@click.argument("program", metavar="SCRIPT|MODULE")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
def run(
    packages: str | None,
    hook: str | None,
    is_module: bool,
    program: str,
    arguments: tuple[str, ...],
) -> NoReturn:
    """Run a script as Python does, recorded.

    torchrun --nproc-per-node 8 -m oddrank trace run train.py --lr 1e-4
    """
    from oddrank.trace import run as run_

    start = run_.module if is_module else run_.script
    start(program, arguments, packages, hook)


@command.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--pid", type=int, help="The record of this process.")
@click.option("--all-threads", is_flag=True, help="All threads, and child processes.")
@_all_runs_option
@click.option("--watch", is_flag=True, help="Look again every second, until Ctrl-C.")
@json_option
def where(  # noqa: PLR0917 (click passes them by name)
    paths: tuple[str, ...],
    pid: int | None,
    all_threads: bool,
    all_runs: bool,
    watch: bool,
    json_path: str | None,
) -> int:
    """Show where each rank is, or was when it died, the least progress first.

    PATH: record files, folders of jobs (shown one after the other), what `trace collect` has made,
    or numbers of ranks of your newest job on this host; without one all of that job. Ranks with the
    same stack are folded; nobody is blamed.
    """
    from oddrank.trace import jobs, processes, ranks, say
    from oddrank.trace import where as where_

    is_part = pid is not None or any(map(jobs.is_rank, paths))
    while True:
        chosen = jobs.find(paths, pid)
        read, refused = ranks.read(chosen.files, _LOOK)
        found, earlier = say.last_run(read, refused, all_runs)
        of_jobs = processes.by_job(found, jobs.job_of(chosen.files[0]))
        if json_path is not None:
            _write_where(found, ", ".join(of_jobs), json_path)
        if json_path != "-":
            if watch:
                _begin_picture()
            for i, (job, own) in enumerate(of_jobs.items()):
                text = where_.text(own, job, all_threads=all_threads, chosen=is_part)
                for line in [""] * (i > 0) + text:
                    render.line(line, sys.stdout)
            say.earlier_runs(earlier)
        code = say.what_else(chosen, paths, refused)
        if not watch:
            return code
        time.sleep(_WATCH)


@command.command()
@click.argument("file", metavar="FILE")
@click.option("-n", "count", type=click.IntRange(1), default=50, show_default=True,
              help="How many lines.")  # fmt: skip
@click.option("--source", is_flag=True, help="Show the source text of each line.")
@click.option("-u", "--microseconds", is_flag=True, help="Times to the microsecond.")
def tail(file: str, count: int, source: bool, microseconds: bool) -> int:
    """Show the last lines that a process ran.

    FILE: its record, the number of a rank of your newest job, or a folder with one record.
    """
    from oddrank.trace import jobs, say
    from oddrank.trace import tail as tail_

    chosen = jobs.find_one(file)
    for line in tail_.text(chosen.files[0], count, source=source, microseconds=microseconds):
        render.line(line, sys.stdout)
    return say.what_else(chosen)


@command.command()
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.argument("paths", nargs=-1, metavar="[PATH]...")
def collect(folder: Path, paths: tuple[str, ...]) -> int:
    """Copy a job's records of this host to DIR/JOB/HOST, before the allocation ends.

    srun --ntasks-per-node 1 oddrank trace collect /shared/records

    PATH: as for `trace where`; without one your newest job on this host.
    """
    from oddrank import launch
    from oddrank.trace import collect as collect_
    from oddrank.trace import jobs, say

    try:
        here = launch.current()
    except LaunchError as error:
        raise OddrankError(str(error)) from None
    if here.local_rank != 0:
        return 0
    chosen = jobs.find(paths)
    for target, count in collect_.collect(chosen.files, folder, here.host).items():
        render.line(f"{count} records of job {target.parent.name} in {target}", sys.stdout)
    return say.what_else(chosen)


@command.command()
@click.argument("out", metavar="OUT.json.gz", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--lines", is_flag=True, help="Every line too, as an instant event.")
@_all_runs_option
def export(out: Path, paths: tuple[str, ...], lines: bool, all_runs: bool) -> int:
    """Write what all ranks did last as one Chrome trace, for https://ui.perfetto.dev.

    Calls, steps, sections, marks and collectives on one clock. OUT is written whole or not at all,
    as plain JSON if its name does not end in .gz. PATH: as for `trace where`.
    """
    from oddrank.trace import export as export_
    from oddrank.trace import jobs, say

    if str(out) == "-":
        raise OddrankError("export writes a file, not to stdout: name one, such as train.json.gz")
    chosen = jobs.find(paths)
    written = export_.export(chosen.files, out, lines=lines, all_runs=all_runs)
    for note in written.notes:
        render.line(f"oddrank: {note}", sys.stderr)
    render.line(
        f"{written.events} events of {written.processes} processes of job {written.job}"
        f" in {out} ({written.bytes / (1 << 20):.1f} MiB): open it in https://ui.perfetto.dev",
        sys.stdout,
    )
    say.earlier_runs(written.earlier)
    return say.what_else(chosen)


@command.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@_all_runs_option
@json_option
def stats(paths: tuple[str, ...], all_runs: bool, json_path: str | None) -> int:
    """Show how much each rank records, what was lost, what that costs, and the hottest code.

    Times are between call and return, in what is left of the record (its window); what runs ends
    now, or with the last event of a process that is gone. Overhead is estimated: events a second
    times what an event costs on the machine that oddrank was measured on. PATH: as for `trace
    where`.
    """
    from oddrank.trace import jobs, processes, say
    from oddrank.trace import stats as stats_

    chosen = jobs.find(paths)
    read, refused = stats_.read(chosen.files)
    found, earlier = say.last_run(read, refused, all_runs)
    job = processes.only_job(found, jobs.job_of(chosen.files[0]))
    hot = stats_.hottest(found)
    if json_path is not None:
        world = {"size": max(rank.world for rank in found)}
        data = stats_.as_data(found, hot)
        finding.write_json(finding.envelope("trace stats", world, data), json_path)
    if json_path != "-":
        render.table(*stats_.rank_table(found), sys.stdout, title=f"job {job}")
        render.line("", sys.stdout)
        render.table(*stats_.code_table(hot), sys.stdout, title="hottest code, all ranks")
        for line in stats_.notes(found):
            render.line(line, sys.stdout)
        say.earlier_runs(earlier)
    return say.what_else(chosen, paths, refused)


@command.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@json_option
def diff(a: str, b: str, json_path: str | None) -> int:
    """Show where the histories of two ranks part: calls, steps and collectives.

    A, B: record files, or numbers of ranks of your newest job. Main threads are compared, from the
    last step on that both have in their records; without steps from arm(), or from the last
    collective that both have.
    """
    from oddrank.trace import diff as diff_
    from oddrank.trace import history, jobs, say

    chosen = [jobs.find_one(side) for side in (a, b)]
    found = diff_.compare(*(history.read(side.files[0]) for side in chosen))
    if json_path is not None:
        finding.write_json(finding.envelope("trace diff", {}, found.as_data()), json_path)
    if json_path != "-":
        for line in diff_.text(found):
            render.line(line, sys.stdout)
    lacking = [line for side in chosen for line in side.lacking]
    return say.what_else(jobs.Found((), lacking, max(side.also for side in chosen)))


def _begin_picture() -> None:
    """A screen of its own on a terminal; else a line that parts it from the one before."""
    if sys.stdout.isatty():
        click.echo(_CLEAR, nl=False)
    else:
        render.line(time.strftime("==== %Y-%m-%d %H:%M:%S"), sys.stdout)


def _write_where(found: "list[Rank]", job: str, path: str) -> None:
    world = {"size": max(rank.world for rank in found)}
    data = {"job": job, "ranks": [rank.as_data() for rank in found]}
    finding.write_json(finding.envelope("trace where", world, data), path)
