"""Lines from co_linetable equal those of each CPython of this machine, at each byte."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oddrank import _native

DUMP = Path(__file__).with_name("dump_linetables.py")


def interpreter(minor: int) -> str | None:
    """Finds Pythons as .ci/every-python does: this one, pyenv's newest, or PATH's."""
    if minor == sys.version_info.minor:
        return sys.executable
    found = []
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=True)
        versions = Path(root.stdout.strip(), "versions")
        found = [p for p in versions.glob(f"3.{minor}.*") if re.fullmatch(r"[\d.]+", p.name)]
    if found:
        newest = max(found, key=lambda path: int(path.name.split(".")[2]))
        return str(newest / "bin" / "python")
    python = shutil.which(f"python3.{minor}")
    # A pyenv shim may be for a version that is not installed.
    if python and subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode:
        return None
    return python


def minors() -> list[int]:
    """Returns the minor versions that pyproject.toml allows; after 13 those that are here."""
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    ((oldest, beyond),) = re.findall(r'^requires-python = ">=3\.(\d+),<3\.(\d+)"$', text, re.M)
    every = range(int(oldest), int(beyond))
    return [minor for minor in every if minor <= 13 or interpreter(minor)]


@pytest.mark.parametrize("minor", minors())
def test_each_byte_of_bytecode_has_the_line_that_its_python_says(minor: int):
    python = interpreter(minor)
    if python is None:
        pytest.skip(f"no CPython 3.{minor} here")
    dump = subprocess.run([python, "-I", str(DUMP)], capture_output=True, text=True, check=True)
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
    assert len(rows) > 4000
    assert nowhere > 100, "some code should have no line"
