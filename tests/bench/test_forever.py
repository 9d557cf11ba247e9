"""A sweep that is interrupted, or repeated until it is or until a rank dies."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

import forked
from job import job
from launchers import torchrun
from measured_rows import result
from oddrank.bench import sweep
from oddrank.bench.case import Case
from oddrank.bench.rounds import History, Rounds
from oddrank.bench.row import summarise

CASE = Case("all_reduce", "float32", 4096)


def row(mean: float):
    return summarise(CASE, {rank: result([mean]) for rank in (0, 1)}, 2)


def test_a_history_stays_small_and_knows_best_worst_and_median():
    history = History()
    for number in range(1, 100_001):
        history.add(1e9 if number == 77_777 else float(number % 1000), number, at=0.0)
    assert len(history._kept) <= 1024
    assert (history.number, history.best, history.worst) == (100_000, 0.0, 1e9)
    assert history.worst_round == 77_777
    assert 400 < history.median < 600


def test_a_round_s_line_names_the_case_that_is_slowest_against_its_own_median():
    clock = iter(range(0, 100, 10))
    rounds = Rounds(lambda: float(next(clock)))
    lines = []
    for small, large in ((10, 100), (10, 100), (30, 110)):
        rounds.add("small", row(small))
        rounds.add("large", row(large))
        lines.append(rounds.end())
    assert lines[0].startswith("round 1  ")
    assert lines[0].endswith("  2 rows in 10.0 s")
    assert lines[2].endswith("; slowest against its median: small, 3.00 times")


def test_the_rows_are_those_of_the_last_complete_round_unless_something_was_found():
    rounds = Rounds()
    rounds.add("small", row(10))
    assert rounds.rows(whole=True)["small"].rounds is None
    assert "rounds" not in rounds.rows(whole=True)["small"].as_data()
    rounds.end()
    rounds.add("small", row(20))
    assert [rounds.rows(whole=whole)["small"].mean_us for whole in (True, False)] == [10, 20]
    told = rounds.rows(whole=False)["small"].rounds
    assert (told["rounds"], told["best_us"], told["median_us"], told["worst_us"]) == (1, 10, 10, 10)


SWEEP = ("bench", "run", "--sizes", "1K,8K", "--budget", "1", "--precision", "20%", "--forever")


def unlimited(order):
    """torchrun without the --deadline that job() adds."""
    at = order.tool.index("--deadline")
    return torchrun(replace(order, tool=[*order.tool[:at], *order.tool[at + 2 :]]))


@pytest.mark.needs("torch")
def test_it_goes_on_until_a_signal_and_then_the_verdict_is_the_usual_one():
    verdict = job(
        2, command=SWEEP, launcher=unlimited, deadline=100,
        after="\nround 3 ", act=lambda live: live.launchers[0].send_signal(signal.SIGTERM),
    )  # fmt: skip
    assert verdict.healthy(), str(verdict)
    assert " rounds until SIGTERM" in verdict.report["summary"]
    rows = verdict.report["data"]["rows"]
    assert [row["bytes"] for row in rows] == [1024, 8192]
    for one in rows:
        told = one["rounds"]
        assert told["rounds"] >= 3
        assert 0 < told["best_us"] <= told["median_us"] <= told["worst_us"]
        assert 1 <= told["worst_round"] <= told["rounds"]
        assert told["best_us"] <= one["mean_us"] <= told["worst_us"]
    assert "worst in round" in verdict.output
    assert verdict.output.count("c10d:gloo, 2 ranks") == 1, "rows are shown once, then the rounds"


@pytest.mark.needs("torch")
def test_a_rank_that_dies_in_a_later_round_ends_it_and_is_named():
    verdict = job(
        2, command=SWEEP, launcher=unlimited, deadline=100,
        after="\nround 2 ", act=lambda live: os.kill(live.pid_of(1), signal.SIGKILL),
    )  # fmt: skip
    assert {f["who"]["ranks"][0] for f in verdict.report["findings"]} == {1}, str(verdict)
    assert verdict.report["verdict"] == "odd"
    assert all(row["rounds"]["rounds"] >= 2 for row in verdict.report["data"]["rows"])


@pytest.mark.needs("torch")
def test_wrong_values_of_a_round_end_it():
    stage = "all_reduce float32 8 KiB"
    verdict = job(3, command=SWEEP, launcher=unlimited, deadline=100, value=1, at=stage)
    assert verdict.names(rank=1, stage=stage), str(verdict)
    assert verdict.causes == {"wrong-contribution"}
    assert set(verdict.codes) == {1}


@pytest.mark.needs("torch")
def test_one_process_exits_with_the_verdict_s_code():
    sweep = forked.popen([sys.executable, "-m", "oddrank", *SWEEP], stdout=subprocess.PIPE)
    try:
        assert any(line.startswith(b"round 1 ") for line in sweep.stdout)
        sweep.send_signal(signal.SIGINT)
        said, _ = sweep.communicate()
    finally:
        sweep.kill()
    assert sweep.returncode == 0
    assert b"bench: healthy\n" in said
    assert b" rounds until SIGINT" in said or b" round until SIGINT" in said


ONCE = ["bench", "run", "--sizes", "8:64M", "--precision", "0.01%", "--deadline", "60"]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_that_goes_well_ends_when_it_is_told_to(number):
    line, pipe = [sys.executable, "-m", "oddrank", *ONCE], subprocess.PIPE
    sweep = forked.popen(line, stdout=pipe, stderr=pipe, text=True)
    try:
        assert sweep.stderr.readline().startswith("join")
        sweep.send_signal(number)
        said, _ = sweep.communicate()
    finally:
        sweep.kill()
    assert sweep.returncode == 3
    assert f"bench: incomplete\n{number.name} (from process" in said
    assert f"(from process {os.getpid()} on " in said


@pytest.mark.needs("torch")
def test_of_ranks_that_come_further_nobody_is_pointed_at():
    verdict = job(
        2, command=("bench", "run", "--sizes", "8:64K", "--precision", "0.01%"), deadline=60,
        after="busbw GB/s", act=lambda live: live.launchers[0].send_signal(signal.SIGINT),
    )  # fmt: skip
    assert verdict.report is not None, str(verdict)
    assert (verdict.report["verdict"], verdict.report["findings"]) == ("incomplete", [])
    assert verdict.report["summary"].startswith(("SIGINT", "SIGTERM")), str(verdict)


def test_a_later_round_finds_each_back_end_made_and_only_its_memory_is_new(monkeypatch):
    made: list[str] = []

    class Backend:
        def __init__(self, name: str) -> None:
            made.append(name)
            self.bytes = 0

        def reserve(self, size: int) -> None:
            self.bytes = size

    monkeypatch.setattr(sweep, "C10d", lambda group: Backend("c10d"))
    monkeypatch.setattr(sweep.native, "connect", lambda group, **_: Backend("nccl"))
    context, options = SimpleNamespace(scratch={}), sweep.SweepOptions(0.01, 1, 1)
    held = []
    for name in ("nccl", "c10d", "nccl", "nccl"):
        held.append(sweep._backend(context, None, {"backend": name, "reserve": 64}, options))
        assert [one.bytes for one in dict.fromkeys(held)].count(64) == 1
    assert held[0] is held[2] is held[3]
    assert made.count("nccl") == 1
