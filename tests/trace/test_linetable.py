"""Lines from co_linetable equal those of each CPython of this machine, at each byte."""

import json
import sys
from functools import cache
from pathlib import Path

import pytest

from oddrank import _native
from processes import captured

DUMP = Path(__file__).with_name("dump_linetables.py")


@cache
def interpreters() -> dict[int, str]:
    """Returns minor version -> CPython of this machine that pyproject.toml allows; this one too."""
    found = captured(["bash", "-c", ". .ci/pythons; pythons"], cwd=DUMP.parents[2], check=True)
    asks = "import sys; print(sys.version_info.minor)"
    minors = {
        int(captured([python, "-c", asks], check=True).stdout): python
        for python in found.stdout.split()
    }
    return minors | {sys.version_info.minor: sys.executable}


@pytest.mark.parametrize("minor", [*range(10, 14), *(one for one in interpreters() if one > 13)])
def test_each_byte_of_bytecode_has_the_line_that_its_python_says(minor: int):
    if minor not in interpreters():
        pytest.skip(f"no CPython 3.{minor} here")
    dump = captured([interpreters()[minor], "-I", str(DUMP)], check=True)
    version, *rows = map(json.loads, dump.stdout.splitlines())
    assert version >> 16 == 0x0300 + minor
    trace_lines = _native.core().trace_lines
    nowhere = 0
    for table, first, length, ranges in rows:
        # The line of each byte of the code, and of some bytes beyond its end.
        expected: list[int | None] = [None] * (length + 3)
        for start, end, line in ranges:
            expected[start:end] = [line] * (end - start)
        found = trace_lines(version, bytes.fromhex(table), first, list(range(len(expected))))
        assert found == expected, f"{table} from line {first}"
        nowhere += expected.count(None) - 3
    assert len(rows) > 2500
    assert nowhere > 100, "some code should have no line"
