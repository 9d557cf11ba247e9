"""What commands say beside their answer: what was left out, is not there, or can't be read."""

import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from oddrank import render
from oddrank.errors import OddrankError
from oddrank.trace import processes
from oddrank.trace.jobs import Found
from oddrank.trace.processes import AnyProcess


def earlier_runs(count: int) -> None:
    if count:
        render.line(f"not shown: {count} records of earlier runs (--all-runs)", sys.stdout)


def what_else(found: Found, typed: Sequence[str] = (), refused: Collection[Path] = ()) -> int:
    """What was named and is not there, and what could have been; the exit code."""
    for line in (*found.lacking, *filter(None, [found.also])):
        render.line(f"oddrank: {line}", sys.stderr)
    return OddrankError.exit_code if found.lacking or {*map(Path, typed)} & {*refused} else 0


def last_run(
    found: list[AnyProcess], refused: dict[Path, str], all_runs: bool
) -> tuple[list[AnyProcess], int]:
    """Those to look at, and how many of earlier runs are left out."""
    if not found and len(refused) == 1:
        raise OddrankError(*refused.values())
    for line in refused.values():
        render.line(f"oddrank: {line}", sys.stderr)
    if not found:
        raise OddrankError(f"none of {len(refused)} files is a record that can be read")
    last = found if all_runs else processes.last_run(found)
    return last, len(found) - len(last)
