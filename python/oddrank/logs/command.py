"""`oddrank logs`: which rank wrote which line, and which said first that something failed."""

import sys
from contextlib import ExitStack
from typing import Any

import click

from oddrank import render
from oddrank.cli import CommandGroup, fail_on_option, json_option, refuse_inputs, refuse_shared
from oddrank.errors import OddrankError
from oddrank.inputs import Notes
from oddrank.report import envelope, whole_file, write_json

_MOST_ROWS = 32
_paths_argument = click.argument("paths", nargs=-1, required=True, metavar="FILE...")


@click.group(cls=CommandGroup)
def command() -> None:
    """Split and merge logs of many ranks; name the rank that failed first.

    \b
    Examples:
      oddrank logs first-error slurm-4711.out
      oddrank logs split slurm-4711.out -o ranks/
      oddrank logs merge node*.log | less

    FILEs are logs of any size with any launchers' prefixes (torchrun, srun, mpirun, kubectl, Ray),
    also folders or packed. - is stdin.

    Exit codes: 0; 2 no evidence. first-error also has 1 odd or unknown and 3 incomplete.
    """


@command.command()
@_paths_argument
@click.option("-o", "--output", required=True, metavar="DIR", help="New folder for the files.")
@click.option("--strip", is_flag=True, help="Leave launchers' prefixes out.")
@json_option
def split(paths: tuple[str, ...], output: str, strip: bool, json_path: str | None) -> int:
    """Write the lines of each rank to a file of its own.

    Each byte goes to one file: rank3.log, node7-local-rank-3.log where only that is known, and
    no-rank.log for lines without a writer. A line into which another rank wrote is cut there.
    """
    from oddrank.logs import sources, writing

    refuse_inputs({"--json": json_path}, paths)
    notes = Notes()
    folder = writing.empty_folder(output)
    with sources.opened(paths, notes) as logs:
        data = {**writing.split(logs, folder, strip=strip), "skipped": notes.lines}
    if json_path != "-":
        columns = "file", "lines", "bytes"
        rows = ([file[column] for column in columns] for file in data["files"])
        render.table(columns, rows, sys.stdout)
    _end(notes.lines, envelope("logs split", {}, data), json_path)
    return 0


@command.command()
@_paths_argument
@click.option("-o", "--output", metavar="FILE", help="File for the merged log. Default: stdout.")
@click.option("--strip", is_flag=True, help="Leave launchers' prefixes out.")
@json_option
def merge(paths: tuple[str, ...], output: str | None, strip: bool, json_path: str | None) -> int:
    """Merge logs by the times of their lines, each behind the name of its writer.

    Lines without a time stay behind the line before them. On stdout, escape sequences and control
    characters of the logs are left out.
    """
    from oddrank.logs import sources, writing

    if output == "-":
        output = None
    if output is None and json_path == "-":
        raise OddrankError("--json - and the merged log would mix on stdout: give -o a file")
    refuse_shared({"-o": output, "--json": json_path})
    refuse_inputs({"-o": output or "-", "--json": json_path}, paths)
    notes = Notes()
    with ExitStack() as stack:
        logs = stack.enter_context(sources.opened(paths, notes))
        # A folder may hold the file that an earlier merge has written there.
        refuse_inputs({"-o": output}, (str(source.item.path) for source in logs))
        if output is None:
            sys.stdout.flush()
            fd = sys.stdout.fileno()
        else:
            hint = "give -o a file in a folder you can write"
            fd = stack.enter_context(whole_file(output, hint)).fileno()
        data = writing.merge(logs, fd, strip=strip, clean=output is None)
    said = writing.notes(data)
    made = envelope("logs merge", {}, {**data, "notes": said, "skipped": notes.lines})
    _end([*notes.lines, *said], made, json_path)
    return 0


@command.command("first-error")
@_paths_argument
@json_option
@fail_on_option
def first_error(paths: tuple[str, ...], json_path: str | None, fail_on: frozenset[str]) -> int:
    """Name the rank that failed first, and list all failures in order.

    Equal failures of several ranks are one line. Consequences are marked: ranks that lost a
    peer, that timed out waiting, or that the launcher ended.
    """
    from oddrank.logs import first_error as first_error_
    from oddrank.logs import sources

    refuse_inputs({"--json": json_path}, paths)
    notes = Notes()
    with sources.opened(paths, notes) as logs:
        told = first_error_.read(logs, notes)
    stream = sys.stderr if json_path == "-" else sys.stdout
    for line in first_error_.lines(told, _MOST_ROWS):
        render.line(line, stream)
    _say(notes.lines)
    data = {**first_error_.data(told), "skipped": notes.lines}
    report = first_error_.report_of(told, data, notes.lost_text)
    render.deliver(report, json_path)
    return report.exit_code(fail_on)


def _say(lines: list[str]) -> None:
    for line in lines[:_MOST_ROWS]:
        render.line(line, sys.stderr)


def _end(notes: list[str], made: dict[str, Any], json_path: str | None) -> None:
    _say(notes)
    if json_path is not None:
        write_json(made, json_path)
