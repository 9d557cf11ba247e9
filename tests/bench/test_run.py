"""`oddrank bench run` on real ranks."""

import json
import os
import signal
import sys
from itertools import product
from subprocess import PIPE

import pytest

import forked
from bench.patched import program
from job import job
from texts import texts

pytestmark = pytest.mark.needs("torch")
FAST = "--budget 6 --precision 20%"


def sweep(ranks, options, deadline=60, **more):
    """Runs `bench run OPTIONS` on ranks."""
    return job(ranks, command=("bench", "run", *options.split()), deadline=deadline, **more)


def rows_of(verdict):
    assert verdict.report is not None, str(verdict)
    return verdict.report["data"]["rows"]


def test_a_sweep_prints_a_table_and_writes_its_rows():
    # A long budget for slow machines: others have what they need in a few seconds.
    verdict = sweep(2, f"--sizes 8:1M:x64 {FAST} --budget 20", deadline=90)
    assert verdict.healthy(), str(verdict)
    assert verdict.gone()
    rows = rows_of(verdict)
    assert [row["bytes"] for row in rows] == [8, 512, 32768, 1 << 20]
    for row in rows:
        assert (row["backend"], row["collective"]) == ("c10d:gloo", "all_reduce")
        assert (row["dtype"], row["op"], row["n"], row["check"]) == ("float32", "sum", 2, "ok")
        assert row["count"] == row["bytes"] // 4
        assert row["p95_us"] >= row["median_us"] >= row["min_us"] > 0
        assert row["mean_us"] > 0
        assert row["algbw_GBps"] == pytest.approx(row["bytes"] / row["mean_us"] / 1e3)
        assert row["busbw_GBps"] == pytest.approx(row["algbw_GBps"])  # 2 (n-1) / n = 1
        assert len(row["samples_us"]) == min(512, row["iterations"])
    assert "busbw GB/s" in verdict.output
    assert verdict.report["data"]["arrival"]["iterations"] >= 300


def test_every_collective_is_right_in_every_dtype_and_op_that_gloo_has():
    every = "--collectives all --dtypes all --ops all"
    verdict = sweep(3, f"--sizes 1K {every} --budget 1 --precision 100%", deadline=110)
    assert verdict.healthy(), str(verdict)
    rows = rows_of(verdict)
    reducing = {"all_reduce", "reduce_scatter", "reduce"}
    moving = {"all_gather", "broadcast", "gather", "scatter", "all_to_all", "all_to_all_v"}
    ops = {"sum", "min", "max", "avg", "prod"}
    whole, missing = {"int8", "int32", "int64", "uint8"}, {"uint32", "uint64"}
    float8 = {"float8_e4m3fn", "float8_e5m2"} | missing
    floats = {"float32", "float16", "bfloat16", "float64"}
    done = {
        ("barrier", "float32", "none"),
        *product(["sendrecv"], whole | float8 | floats, ["none"]),
        *product(moving, whole | floats, ["none"]),
        *product(reducing, floats, ops),
        *product(reducing, whole, ops - {"avg"}),
    }
    refused = {
        *product(moving, float8, ["none"]),
        *product(reducing, float8, ops),
        *product(reducing, whole, ["avg"]),
    }
    checks = [((row["collective"], row["dtype"], row["op"]), row) for row in rows]
    assert {name for name, row in checks if row["check"] == "ok"} == done
    skipped = {name: row["reason"] for name, row in checks if row["check"] == "skipped"}
    assert set(skipped) == refused
    assert len(rows) == len(done) + len(refused)
    assert all(reason.startswith("gloo has no ") for reason in skipped.values())


def test_a_single_rank_has_an_algbw_and_no_busbw():
    moved, stays = rows_of(sweep(1, f"--sizes 4K --collectives all_gather,all_reduce {FAST}"))
    assert (moved["busbw_GBps"], stays["busbw_GBps"], stays["algbw_GBps"]) == (None, None, None)
    assert moved["algbw_GBps"] > 0
    assert stays["inplace"]
    assert stays["median_us"] > 0


def test_a_rank_that_comes_late_is_named_with_how_late():
    late = ";".join(
        f"late:rank=2,stage={stage},seconds=0.01" for stage in ("arrival", "arrival_recheck")
    )
    verdict = sweep(3, f"--sizes 8 {FAST} --budget 40", inject=late, deadline=90)
    assert verdict.names(rank=2, stage="arrival"), str(verdict)
    (finding,) = verdict.report["findings"]
    assert (finding["condition"], finding["cause"]) == ("late", "late-arrival")
    own = finding["evidence"][0]
    assert own["value"] - own["median"] >= 9_000
    behind = verdict.report["data"]["arrival"]["median_us"]
    assert behind[2] == max(behind)


def test_looking_for_late_ranks_keeps_to_its_share_of_the_budget():
    very = "late:rank=1,stage=arrival,seconds=0.05"
    verdict = sweep(2, "--sizes 8 --budget 5 --precision 20%", inject=very)
    assert verdict.healthy(), str(verdict)
    assert verdict.report["data"]["arrival"]["iterations"] < 300  # 15 seconds
    assert "300 are needed, give a longer --budget" in verdict.report["summary"]


def test_a_rank_that_seems_late_in_too_few_iterations_is_told_and_not_named():
    very = ";".join(f"late:rank=1,stage={s},seconds=0.05" for s in ("arrival", "arrival_recheck"))
    verdict = sweep(2, "--sizes 8 --budget 15 --precision 20%", inject=very)
    assert verdict.report["verdict"] == "unknown", str(verdict)
    assert verdict.names(rank=[], stage="arrival")
    assert verdict.causes == {"too-few-iterations"}
    assert "rank 1" in verdict.report["summary"]


def test_jitter_names_nobody():
    jitter = "jitter:rank=1,stage=arrival,seconds=0.02,share=0.2"
    verdict = sweep(2, f"--sizes 8 {FAST}", inject=jitter)
    assert verdict.healthy(), str(verdict)


def test_a_rank_that_dies_in_a_sweep_is_named_and_what_was_measured_is_kept():
    last = "all_reduce float32 4 KiB"
    verdict = sweep(2, f"--sizes 1K:4K {FAST}", kill=1, at=last)
    assert verdict.names(rank=1, stage=last), str(verdict)
    assert [row["bytes"] for row in rows_of(verdict)] == [1024, 2048]
    assert verdict.report["data"]["not_measured"] == [last]
    assert verdict.gone()


def test_a_rank_that_stops_between_two_iterations_is_named():
    stage = "all_reduce float32 1 KiB"
    verdict = sweep(3, f"--sizes 1K {FAST}", inject=f"stop:rank=1,stage={stage},step=time")
    assert verdict.names(rank=1, stage=stage), str(verdict)
    assert verdict.gone()


def test_a_deadline_too_short_for_a_sweep_blames_nobody():
    sizes = [1 << power for power in range(10)]  # at least two iterations of each size
    slow = [f"slow:rank=1,stage=all_reduce float32 {n} KiB,step=time,seconds=1.5" for n in sizes]
    verdict = sweep(2, f"--sizes 1K:512K {FAST}", inject=";".join(slow), deadline=30)
    assert verdict.report["verdict"] == "incomplete", str(verdict)
    assert verdict.gone()


def test_wrong_values_name_their_rank_and_those_of_half_the_ranks_or_more_none():
    wrong = {4: (1,), 8: (0, 1), 16: (1, 2), 32: (0, 1, 2)}
    faults = [f"value:rank={rank},stage=all_reduce float32 {size} KiB"
              for size, ranks in wrong.items() for rank in ranks]  # fmt: skip
    verdict = sweep(3, f"--sizes 4K:32K {FAST}", inject=";".join(faults))
    assert verdict.report["verdict"] == "odd", str(verdict)
    assert set(verdict.codes) == {1}
    assert {row["check"] for row in rows_of(verdict)} == {"wrong"}
    found = sorted(verdict.report["findings"], key=lambda one: int(one["stage"].split()[2]))
    unknown = [("wrong-values", [])] * 3
    named = [(one["cause"], one["who"]["ranks"]) for one in found]
    assert named == [("wrong-contribution", [1]), *unknown], str(verdict)
    said = [one["what"] for one in found]
    suspects = ["rank 1", "ranks 0-1", "ranks 1-2", "ranks 0-2"]
    assert all(name in text for name, text in zip(suspects, said, strict=True)), said


def run_alone(options):
    command = [sys.executable, "-m", "oddrank", "bench", "run", *options.split()]
    return forked.run(command, text=True)


def test_bad_input_is_one_line_and_exit_code_2(monkeypatch, golden):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    said = []
    for options in texts(__file__)["refused options"].split("\n")[1:-1]:
        done = run_alone(options)
        assert done.returncode == 2, (options, done.stderr)
        assert "Traceback" not in done.stderr
        said.append(f"{options}\n{done.stderr.splitlines()[-1]}")
    golden("\n".join(said))


def test_a_run_that_measured_nothing_but_barriers_is_incomplete():
    done = run_alone(f"--collectives all_reduce,barrier --sizes 900G {FAST} --json -")
    report = json.loads(done.stdout)
    assert (report["verdict"], done.returncode) == ("incomplete", 3)
    assert report["summary"].endswith("only barrier: not enough free memory")


def test_json_on_stdout_has_stdout_for_itself_and_a_process_alone_says_so():
    done = run_alone(f"--sizes 8 {FAST} --json -")
    report = json.loads(done.stdout)
    assert "on 1 rank (no launcher found: this process alone)" in report["summary"]
    assert [row["bytes"] for row in report["data"]["rows"]] == [8]
    assert "mean us" in done.stderr


def test_what_was_measured_before_a_case_that_cannot_be_done_is_written(tmp_path):
    file = tmp_path / "report.json"
    run = f"bench run --sizes 8,64 {FAST} --json {file}".split()
    # Of two cases the second one fails after the first was measured.
    refuses = program(texts(__file__)["refuses"])
    done = forked.run([sys.executable, "-c", refuses, *run], text=True)
    assert done.returncode == 2, done.stderr
    report = json.loads(file.read_text())
    assert report["verdict"] == "incomplete"
    assert report["summary"] == "this case can't be had: give other --dtypes"
    assert [row["bytes"] for row in report["data"]["rows"]] == [8]
    assert report["data"]["not_measured"] == ["all_reduce float32 64 B"]


def test_a_reader_of_the_table_that_stops_does_not_cost_the_report(tmp_path):
    file = tmp_path / "report.json"
    run = f"bench run --sizes 8:64 --budget 1 --precision 20% --json {file}"
    command = f"{sys.executable} -m oddrank {run} | head -n 1"
    done = forked.run(["sh", "-c", command])
    assert b"Traceback" not in done.stderr
    assert json.loads(file.read_text())["verdict"] == "healthy"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_that_goes_well_ends_when_it_is_told_to(number):
    line = "-m oddrank bench run --sizes 8:64M --precision 0.01% --deadline 60"
    sweep = forked.popen([sys.executable, *line.split()], stdout=PIPE, stderr=PIPE, text=True)
    try:
        assert sweep.stderr.readline().startswith("join")
        sweep.send_signal(number)
        said, _ = sweep.communicate()
    finally:
        sweep.kill()
    assert sweep.returncode == 3
    assert f"bench: incomplete\n{number.name} (from process" in said
    assert f"(from process {os.getpid()} on " in said


def test_of_ranks_that_come_further_nobody_is_pointed_at():
    verdict = job(
        2, command=("bench", "run", "--sizes", "8:64K", "--precision", "0.01%"), deadline=60,
        after="busbw GB/s", act=lambda live: live.launchers[0].send_signal(signal.SIGINT),
    )  # fmt: skip
    assert verdict.report is not None, str(verdict)
    assert (verdict.report["verdict"], verdict.report["findings"]) == ("incomplete", [])
    assert verdict.report["summary"].startswith(("SIGINT", "SIGTERM")), str(verdict)
