"""Slim copies of real records say what the records say."""

import subprocess
import time
from pathlib import Path

import pytest

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.trace import jobs, ranks
from oddrank.trace.arm import HOOKS
from patience import until

LIMIT = 256 << 10
TRAINING_RANK = 40 << 10
# These two need the record itself, or differ between any two looks.
LEFT_OUT = {"last_ns", "has_all_collectives"}


def slim_copy(record: Path, folder: Path) -> Path:
    """Copies a record that its process does not change meanwhile."""
    copy = folder / record.name

    def is_still() -> bool:
        (rank,), _ = ranks.read([record], look=0.01)
        if not all(thread.state in (None, "asleep") for thread in rank.threads):
            return False  # one of them waits for a core, and will go on
        before = _native.core().trace_stats(str(record), 0)["events"]
        copy.write_bytes(_native.core().trace_slim(str(record)))
        time.sleep(0.05)
        return _native.core().trace_stats(str(record), 0)["events"] == before

    until(is_still)
    return copy


def said(record: Path) -> dict:
    found = _native.core().trace_snapshot(str(record))
    return {name: rounded(value) for name, value in found.items() if name not in LEFT_OUT}


def rounded(value):
    """Rounds times to milliseconds: each reader fits the clocks anew."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    is_time = isinstance(value, int) and value > 10**18
    return pytest.approx(value, abs=5e6) if is_time else value


def without_ended(found: dict) -> dict:
    kept = [t for t in found["threads"] if not t["ended"] or t["tid"] == found["pid"]]
    return {**found, "threads": kept}


def same(record: Path, folder: Path, most: int = TRAINING_RANK) -> None:
    copy = slim_copy(record, folder)
    assert said(copy) == without_ended(said(record))
    assert copy.stat().st_size <= most
    (whole,), (slim,) = ranks.read([record])[0], ranks.read([copy])[0]
    assert slim.last_at == whole.last_at
    assert slim.collectives == whole.collectives or not whole.collectives


@pytest.fixture
def armed(script):
    """Runs a script and returns its record; kills it after the test if it waits."""
    running: list[subprocess.Popen] = []

    def start(source: str, *, wait: bool = True) -> Path:
        process = script(source, wait=wait, check=False)
        if not wait:
            running.append(process)
            process.stdout.readline()
        (record,) = jobs.find([str(script.folder / "records")]).files
        return record

    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_of_a_waiting_process_with_steps_and_sections(armed, tmp_path):
    record = armed(
        """
        import time
        import oddrank
        oddrank.arm()

        def trains():
            for step in range(300):
                oddrank.step(step)
                with oddrank.section("forward"):
                    sum(range(10))
            with oddrank.section("data"):
                print("ready", flush=True)
                time.sleep(1000)

        trains()
        """,
        wait=False,
    )
    same(record, tmp_path, 20 << 10)


def test_of_a_deep_stack_and_many_threads(armed, tmp_path):
    record = armed(
        """
        import sys, threading, time
        import oddrank
        oddrank.arm()
        sys.setrecursionlimit(5000)
        here = threading.Barrier(65)

        def deep(left):
            if left:
                return deep(left - 1)
            here.wait()
            time.sleep(1000)

        for depth in range(64):
            threading.Thread(target=deep, args=(depth * 4,), daemon=True).start()
        here.wait()
        print("ready", flush=True)
        time.sleep(1000)
        """,
        wait=False,
    )
    copy = slim_copy(record, tmp_path)
    assert copy.stat().st_size <= LIMIT
    whole, slim = (_native.core().trace_snapshot(str(path)) for path in (record, copy))
    assert len(slim["threads"]) == len(whole["threads"]) >= 65
    for one, other in zip(whole["threads"], slim["threads"], strict=True):
        assert (one["tid"], one["depth"]) == (other["tid"], other["depth"])
        assert one["stack"][:20] == other["stack"][:20] or len(other["stack"]) < 20
        assert one["stack"][-1] == other["stack"][-1]


@pytest.mark.parametrize("script", HOOKS[:1], indirect=True)  # the other one has no budget
def test_of_a_process_that_limits_itself(armed, tmp_path):
    record = armed(
        """
        import time
        import oddrank
        from oddrank import _native
        armed = oddrank.arm(budget=1e-3)

        def hot(n):
            return n + 1

        def works():
            for _ in range(3000):
                sum(map(hot, range(2000)))
                if _native.core().trace_snapshot(armed.path)["lowered"]:
                    break
            print("ready", flush=True)
            time.sleep(1000)

        works()
        """,
        wait=False,
    )
    same(record, tmp_path)
    (slim,), _ = ranks.read([tmp_path / record.name])
    assert "hot" in {each.function for each in slim.lowered}


def test_of_a_process_that_raised_has_the_line_that_raised(armed, tmp_path):
    record = armed(
        """
        import oddrank
        oddrank.arm()

        def fails(values):
            for value in range(100):
                values.append(value)
            raise ValueError("labels out of range")

        fails([])
        """
    )
    same(record, tmp_path)
    (slim,), _ = ranks.read([tmp_path / record.name])
    assert slim.end.raised == "ValueError"
    assert slim.last_at is not None
    assert slim.last_at.function == "fails"


def test_of_a_process_that_was_killed(dead_job, tmp_path):
    for record in jobs.records(dead_job):
        same(record, tmp_path)


def test_of_another_file_is_refused(tmp_path):
    other = tmp_path / "rank0-1-1.trace"
    other.write_bytes(b"no record" * 1000)
    with pytest.raises(OddrankError, match="not a record"):
        _native.core().trace_slim(str(other))
