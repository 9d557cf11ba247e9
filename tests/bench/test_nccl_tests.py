"""--format nccl-tests, read as programs that read nccl-tests do.

The two readers follow the rules of superbench (columns by the header's names, counted from the
end) and of AzNHC (the sixth word of the first line about a bandwidth; any FAILED).
"""

import math
import re
import subprocess
import sys
from dataclasses import replace

import pytest

import forked
from oddrank.bench import nccl_tests
from oddrank.bench.nccl_tests import Member
from oddrank.bench.row import Row

MEMBERS = [Member(0, "n1", "CPU"), Member(1, "n1", "CPU")]
ROW = Row("nccl", "all_reduce", "float32", "sum", 1 << 20, 1 << 18, True, 2, "ok",
          iterations=20, mean_us=105.5, algbw_GBps=9.94, busbw_GBps=9.94)  # fmt: skip


def figures(text: str, *, in_place: bool) -> dict[int, dict[str, float]]:
    """Reads as superbench: returns size -> time, algbw, busbw. Raises as it does."""
    lines = text.splitlines()
    begin = max(i for i, line in enumerate(lines) if "out-of-place" in line)
    end = max(i for i, line in enumerate(lines) if "Out of bounds values" in line)
    table = lines[begin + 1 : end]
    header = next(line for line in table if "time" in line and "busbw" in line)
    names = header[1:].split()
    found = {}
    for line in table:
        words = line.split()
        if words and re.match("[0-9]+", words[0]):
            size = int(words[names.index("size")])
            at = {}
            for name in ("time", "algbw", "busbw"):
                places = [i - len(names) for i, word in enumerate(names) if word == name]
                at[name] = float(words[places[-1] if in_place else places[0]])
            found[size] = at
    return found


def average(text: str) -> float:
    """Reads as AzNHC: the first line with the word, its sixth word."""
    line = next(line for line in text.splitlines() if "bandwidth" in line)
    return float(line.split()[5])


def written(*rows: Row) -> str:
    return "\n".join(nccl_tests.text(rows, MEMBERS)) + "\n"


def test_both_places_are_in_one_line_in_the_columns_that_readers_count():
    out = replace(ROW, inplace=False, mean_us=110.25, algbw_GBps=9.51, busbw_GBps=9.51)
    small = replace(ROW, bytes=8, count=2, mean_us=4.2, algbw_GBps=0.0, busbw_GBps=0.0)
    text = written(small, replace(small, inplace=False), ROW, out)
    assert figures(text, in_place=True)[1 << 20] == {"time": 105.5, "algbw": 9.94, "busbw": 9.94}
    assert figures(text, in_place=False)[1 << 20] == {"time": 110.25, "algbw": 9.51, "busbw": 9.51}
    assert list(figures(text, in_place=False)) == [8, 1 << 20]
    assert average(text) == pytest.approx((9.94 + 9.51) / 4, rel=1e-4)
    assert "FAILED" not in text
    lines = [line for line in text.splitlines() if line.lstrip()[:1].isdigit()]
    assert [line.split()[:5] for line in lines] == [
        ["8", "2", "float", "sum", "-1"], ["1048576", "262144", "float", "sum", "-1"]
    ]  # fmt: skip
    assert all(len(line.split()) == 13 for line in lines)


def test_wrong_values_fail_and_are_counted():
    text = written(ROW, replace(ROW, inplace=False, check="wrong", wrong=1234567))
    assert "# Out of bounds values : 1 FAILED" in text
    (line,) = (line for line in text.splitlines() if line.lstrip()[:1].isdigit())
    assert float(line.split()[8]) == pytest.approx(1234567, rel=1e-4)
    assert float(line.split()[12]) == 0


def test_a_place_that_was_not_measured_is_no_number_and_not_in_the_average():
    skipped = replace(ROW, inplace=False, check="skipped", mean_us=None, algbw_GBps=None,
                      busbw_GBps=None, reason="torch.distributed has no such")  # fmt: skip
    text = written(ROW, skipped)
    assert math.isnan(figures(text, in_place=False)[1 << 20]["time"])
    assert figures(text, in_place=True)[1 << 20]["time"] == 105.5
    assert average(text) == pytest.approx(9.94)
    assert written(ROW).splitlines()[-6] == text.splitlines()[-6]


def test_counts_types_operations_and_roots_are_named_as_there():
    gather = replace(ROW, collective="all_gather", op="none", dtype="float16", count=1 << 19)
    text = written(gather, replace(ROW, collective="broadcast", op="none", dtype="float8_e5m2"))
    fronts = [line.split()[1:5] for line in text.splitlines() if line.lstrip()[:1].isdigit()]
    assert fronts == [[str(1 << 18), "half", "none", "-1"], [str(1 << 18), "f8e5m2", "none", "0"]]
    assert text.count("Avg bus bandwidth") == 2
    assert "# Collective test starting: broadcast_perf" in text


@pytest.mark.parametrize(
    ("value", "width", "shown"),
    [(4.2, 7, "4.20"), (12345.6, 7, "12345.6"), (123456.7, 7, "123457"), (1234567.0, 7, "1234567"),
     (12345678.0, 7, "1.2e+07"), (480.123, 6, "480.12"), (9.5, 6, "9.50"), (0.0, 6, "0.00")],
)  # fmt: skip
def test_numbers_keep_to_their_column(value, width, shown):
    assert nccl_tests._number(value, width).strip() == shown
    assert len(nccl_tests._number(value, width)) == width


@pytest.mark.needs("torch")
def test_stdout_of_a_job_is_what_readers_of_nccl_tests_expect():
    done = forked.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "oddrank",
         "bench", "run", "--sizes", "1K:16K:x4", "--collectives", "all_gather", "--budget", "4",
         "--precision", "50%", "--format", "nccl-tests", "--deadline", "80"],
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for in_place in (False, True):
        found = figures(done.stdout, in_place=in_place)
        assert list(found) == [1024, 4096, 16384]
        assert all(one["time"] > 0 for one in found.values())
    assert average(done.stdout) >= 0
    assert all(line[:1] == "#" or line.split()[0].isdigit() for line in done.stdout.splitlines())
    assert "bench: healthy" in done.stderr


def test_two_things_on_stdout_are_refused():
    done = subprocess.run(
        [sys.executable, "-m", "oddrank", "bench", "run", "--format", "nccl-tests", "--json", "-"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "both want stdout" in done.stderr
