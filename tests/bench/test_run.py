"""`oddrank bench run` on real ranks."""

import subprocess
import sys

import pytest

from job import job

pytestmark = pytest.mark.needs("torch")


def test_a_sweep_prints_a_table_and_writes_its_rows():
    verdict = job(2, command=("bench", "run", "--sizes", "8:1M:x64"), deadline=60)
    assert verdict.healthy(), str(verdict)
    assert verdict.gone()
    rows = verdict.report["data"]["rows"]
    assert [row["bytes"] for row in rows] == [8, 512, 32768, 1 << 20]
    for row in rows:
        assert (row["backend"], row["collective"]) == ("c10d:gloo", "all_reduce")
        assert (row["dtype"], row["n"], row["check"]) == ("float32", 2, "ok")
        assert row["count"] == row["bytes"] // 4
        assert row["median_us"] > 0
        assert row["algbw_GBps"] == pytest.approx(row["bytes"] / row["median_us"] / 1e3)
        assert row["busbw_GBps"] == pytest.approx(row["algbw_GBps"])  # 2 (n-1) / n = 1
    assert "busbw GB/s" in verdict.output


def test_a_single_rank_has_no_busbw():
    verdict = job(1, command=("bench", "run", "--sizes", "4K"), deadline=60)
    (row,) = verdict.report["data"]["rows"]
    assert row["busbw_GBps"] is None
    assert row["reason"]


def test_a_rank_that_dies_in_a_sweep_is_named_and_what_was_measured_is_kept():
    last = "all_reduce float32 4 KiB"
    verdict = job(
        2,
        command=("bench", "run", "--sizes", "1K:4K"),
        inject=f"kill:rank=1,stage={last}",
        deadline=20,
    )
    assert verdict.names(rank=1, stage=last), str(verdict)
    assert [row["bytes"] for row in verdict.report["data"]["rows"]] == [1024, 2048]
    assert verdict.gone()


def test_a_deadline_too_short_for_a_sweep_blames_nobody():
    sizes = [1, 2, 4, 8, 16, 32]
    slow = [f"slow:rank=1,stage=all_reduce float32 {n} KiB,step=done,seconds=0.4" for n in sizes]
    # Nine iterations of each size: 21 s.
    command = ("bench", "run", "--sizes", "1K:32K")
    verdict = job(2, command=command, inject=";".join(slow), deadline=12)
    assert verdict.report["verdict"] == "incomplete", str(verdict)
    assert "a longer --deadline may help" in verdict.report["summary"]
    assert verdict.gone()


def test_wrong_sums_are_reported_and_name_nobody():
    verdict = job(
        2,
        command=("bench", "run", "--sizes", "4K"),
        inject="value:rank=1,stage=all_reduce float32 4 KiB",
        deadline=60,
    )
    assert verdict.report["verdict"] == "unknown", str(verdict)
    assert verdict.report["data"]["rows"][0]["check"] == "wrong"


@pytest.mark.parametrize("sizes", ["6", "8:4", "1M:2M:2", "lots"])
def test_bad_sizes_are_one_line_and_exit_code_2(sizes):
    command = [sys.executable, "-m", "oddrank", "bench", "run", "--sizes", sizes]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "as in 8:256M:x2" in done.stderr
