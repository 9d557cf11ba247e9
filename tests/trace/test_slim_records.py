"""Slim copies of records of real processes, dead ones, say what the records say.

Those of living ones are in triage/test_slim.py.
"""

from pathlib import Path

import pytest

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.trace import jobs, ranks

TRAINING_RANK = 40 << 10
# These two need the record itself, or differ between any two looks.
LEFT_OUT = {"last_ns", "has_all_collectives"}


def said(record: Path, content: bytes | None = None) -> dict:
    found = _native.core().trace_snapshot(str(record), content)
    return {name: rounded(value) for name, value in found.items() if name not in LEFT_OUT}


def rounded(value):
    """Rounds times to milliseconds: each reader fits the clocks anew."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    is_time = isinstance(value, int) and value > 10**18
    return pytest.approx(value, abs=5e6) if is_time else value


def same(record: Path, folder: Path, most: int = TRAINING_RANK) -> ranks.Rank:
    """Compares a slim copy with the record; returns what the copy says."""
    copy = folder / record.name
    copy.write_bytes(_native.core().trace_slim(str(record)))
    whole = said(record)
    kept = [t for t in whole["threads"] if not t["ended"] or t["tid"] == whole["pid"]]
    assert said(copy) == {**whole, "threads": kept}
    content = copy.read_bytes()
    assert len(content) <= most
    assert said(Path("no file"), content) == said(copy)
    for size in (0, 7, 4095, len(content) - 1):
        with pytest.raises(OddrankError):
            said(Path("no file"), content[:size])
    (one,), (slim,) = ranks.read([record])[0], ranks.read([copy])[0]
    assert slim.last_at == one.last_at
    assert slim.collectives == one.collectives or not one.collectives
    return slim


def test_of_a_process_with_steps_and_sections(script, tmp_path, source):
    script.armed(source)
    same(script.files[0], tmp_path, 20 << 10)


def test_of_a_process_that_limits_itself(script, tmp_path, source):
    script.armed(source, "budget=1e-3")
    assert "hot" in {each.function for each in same(script.files[0], tmp_path).lowered}


def test_of_a_process_that_raised_has_the_line_that_raised(script, tmp_path, source):
    script.armed(source, check=False)
    slim = same(script.files[0], tmp_path)
    assert slim.end.raised == "ValueError"
    assert slim.last_at is not None
    assert slim.last_at.function == "fails"


def test_of_a_process_that_was_killed(dead_job, tmp_path):
    found = jobs.records(dead_job / "records" / "127.0.0.1:29500")
    assert len(found) == 2
    for record in found:
        same(record, tmp_path)


def test_of_another_file_is_refused(tmp_path):
    other = tmp_path / "rank0-1-1.trace"
    other.write_bytes(b"no record" * 1000)
    with pytest.raises(OddrankError, match="not a record"):
        _native.core().trace_slim(str(other))
