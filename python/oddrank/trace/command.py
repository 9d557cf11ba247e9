"""`oddrank trace`: record what ranks do, and see where each one is or was."""

import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from oddrank import render
from oddrank.cli import CommandGroup, json_option
from oddrank.errors import LaunchError, OddrankError
from oddrank.finding import size_text
from oddrank.report import envelope, write_json

if TYPE_CHECKING:
    from oddrank.trace.jobs import Found


@click.group(cls=CommandGroup)
def command() -> None:
    """Show where every rank is, or was when it died.

    \b
    Examples:
      oddrank trace where
      oddrank trace tail 3
      oddrank trace export -o train.json.gz

    oddrank.arm() in the script, or `oddrank run`, switches recording on. These commands need
    neither ptrace nor a live process: they read the records in /dev/shm/oddrank-UID or
    $ODDRANK_DIR.

    Exit codes: 0; 2 if a given PATH has no record. These commands do not judge.
    """


@command.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--all-threads", is_flag=True, help="Show all threads, and child processes.")
@json_option
def where(paths: tuple[str, ...], all_threads: bool, json_path: str | None) -> int:
    """Show where each rank is, or was when it died; the least progress first.

    \b
    Examples:
      oddrank trace where                  your newest job on this host
      oddrank trace where 3                its rank 3
      oddrank trace where slurm-4711.0     a job (the beginning of its name is enough)
      oddrank trace where /shared/kept 3   rank 3 of what `oddrank collect` or `run -o` kept

    PATH: a record file, a folder of one or more jobs, a job, or the number of a rank in the PATH
    before it, else in your newest job. Ranks with the same stack are shown once.
    """
    from oddrank.trace import jobs, ranks
    from oddrank.trace import where as where_

    _refuse_several_writers(json_path)
    chosen = jobs.find(paths)
    read, refused = ranks.read(chosen.files, ranks.LOOK)
    if not read and len(refused) == 1:
        raise OddrankError(*refused.values())
    _print_lines(refused.values())
    if not read:
        raise OddrankError(f"none of {len(refused)} files is a record that can be read")
    found = ranks.last_run(read)
    of_jobs = ranks.by_job(found, chosen.files[0].parent.name)
    if json_path is not None:
        world = {"size": max(rank.world for rank in found)}
        data = {"job": ", ".join(of_jobs), "ranks": [rank.as_data() for rank in found]}
        write_json(envelope("trace where", world, data), json_path)
    if json_path != "-":
        for i, (job, own) in enumerate(of_jobs.items()):
            text = where_.text(own, job, all_threads=all_threads, chosen=chosen.is_part)
            for line in [""] * (i > 0) + text:
                render.line(line, sys.stdout)
        _print_earlier_runs(len(read) - len(found))
    return _print_notices(chosen, paths, refused)


@command.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("-n", "count", type=click.IntRange(1, 10**9), default=50, show_default=True,
              metavar="COUNT", help="Number of lines.")  # fmt: skip
@click.option("--source", is_flag=True, help="Show the source text of each line.")
def tail(paths: tuple[str, ...], count: int, source: bool) -> int:
    """Show the last lines that a process ran.

    \b
    Examples:
      oddrank trace tail 3
      oddrank trace tail -n 200 --source /dev/shm/oddrank-0/JOB/rank3-4711-8150.trace

    PATH: as for `trace where`, of one record.
    """
    from oddrank.trace import jobs
    from oddrank.trace import tail as tail_

    chosen = jobs.find_one(paths)
    for line in tail_.text(chosen.files[0], count, source=source):
        render.line(line, sys.stdout)
    return _print_notices(chosen)


@command.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-o", "--output", required=True, metavar="OUT.json.gz",
              type=click.Path(dir_okay=False, path_type=Path),
              help="File to write; compressed if its name ends in .gz.")  # fmt: skip
@click.option("--lines", is_flag=True, help="Also write every line, as an instant event.")
def export(paths: tuple[str, ...], output: Path, lines: bool) -> int:
    """Write the last events of all ranks as one Chrome trace, for https://ui.perfetto.dev.

    \b
    Examples:
      oddrank trace export -o train.json.gz
      oddrank trace export -o rank2.json.gz 2

    It shows calls, steps, sections, marks and collectives on one clock. PATH: as for `trace where`.
    """
    from oddrank.trace import export as export_
    from oddrank.trace import jobs

    if str(output) == "-":
        raise OddrankError("export cannot write to stdout: name a file, such as train.json.gz")
    _refuse_several_writers(str(output))
    chosen = jobs.find(paths)
    written = export_.export(chosen.files, output, lines=lines)
    _print_lines(written.notes)
    render.line(
        f"wrote {written.events} events of {written.processes} processes of job {written.job}"
        f" to {output} ({size_text(written.bytes)}): open it in https://ui.perfetto.dev",
        sys.stdout,
    )
    _print_earlier_runs(written.earlier)
    return _print_notices(chosen, paths, written.refused)


def _refuse_several_writers(path: str | None) -> None:
    """Raises OddrankError if each node of a job would write `path` and replace the others'."""
    from oddrank import launch

    with suppress(LaunchError):
        nodes = launch.current().nodes
        if nodes > 1 and path not in {None, "-"}:
            raise OddrankError(
                f"each of {nodes} nodes would write {path}: copy the records to one place first"
                " (srun --ntasks-per-node 1 oddrank collect -o DIR), then name DIR in a shell of"
                " its own"
            )


def _print_earlier_runs(count: int) -> None:
    if count:
        render.line(
            f"not shown: {count} records of earlier runs: name a file to see one", sys.stdout
        )


def _print_notices(
    found: "Found", typed: Sequence[str] = (), refused: Collection[Path] = ()
) -> int:
    """Prints the names without a record, closed folders, another job; returns the exit code."""
    _print_lines((*found.lacking, *filter(None, [found.closed, found.also])))
    return OddrankError.exit_code if found.lacking or {*map(Path, typed)} & {*refused} else 0


def _print_lines(lines: Collection[str]) -> None:
    for line in lines:
        render.line(f"oddrank: {line}", sys.stderr)
