"""`oddrank bench run` on real ranks."""

import json
import subprocess
import sys
from itertools import product

import pytest

from job import job
from oddrank.finding import fold

pytestmark = pytest.mark.needs("torch")
FAST = ("--budget", "6", "--precision", "20%")


def rows_of(verdict):
    assert verdict.report is not None, str(verdict)
    return verdict.report["data"]["rows"]


@pytest.mark.smoke
def test_a_sweep_prints_a_table_and_writes_its_rows():
    # A long budget for slow machines: others have what they need in a few seconds.
    command = ("bench", "run", "--sizes", "8:1M:x64", *FAST, "--budget", "20")
    verdict = job(2, command=command, deadline=90)
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
        assert len(row["arrival"]["median_us"]) == 2
        assert len(row["samples_us"]) == min(512, row["iterations"])
    assert "busbw GB/s" in verdict.output
    assert verdict.report["data"]["arrival"]["iterations"] >= 300


def test_every_collective_is_right_in_every_dtype_and_op_that_gloo_has():
    command = ("bench", "run", "--sizes", "1K", "--collectives", "all", "--dtypes", "all",
               "--ops", "all", "--budget", "1", "--precision", "100%")  # fmt: skip
    verdict = job(3, command=command, deadline=110)
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
    names = [(row["collective"], row["dtype"], row["op"]) for row in rows]
    assert len(names) == len(set(names))
    assert {name for name, row in zip(names, rows, strict=True) if row["check"] == "ok"} == done
    skipped = {
        name: row["reason"]
        for name, row in zip(names, rows, strict=True)
        if row["check"] == "skipped"
    }
    assert set(skipped) == refused
    assert all(reason.startswith("gloo has no ") for reason in skipped.values())


def test_in_place_and_out_of_place_are_rows_of_their_own():
    command = ("bench", "run", "--sizes", "4K", "--collectives", "all_gather,reduce_scatter",
               "--place", "in,out", *FAST)  # fmt: skip
    rows = rows_of(job(2, command=command, deadline=60))
    assert [(row["collective"], row["inplace"], row["check"]) for row in rows] == [
        ("all_gather", True, "ok"), ("all_gather", False, "ok"),
        ("reduce_scatter", True, "ok"), ("reduce_scatter", False, "ok"),
    ]  # fmt: skip


def test_buffers_that_begin_one_element_behind_an_aligned_address_are_measured_and_checked():
    command = ("bench", "run", "--sizes", "4K", "--collectives", "all", "--dtypes", "uint8,float64",
               "--unaligned", "--place", "both", *FAST)  # fmt: skip
    verdict = job(2, command=command, deadline=90)
    assert verdict.healthy(), str(verdict)
    rows = [row for row in rows_of(verdict) if row["check"] != "skipped"]
    assert len({row["collective"] for row in rows}) == 11
    assert all(row["unaligned"] and row["check"] == "ok" for row in rows)
    assert "2 ranks, unaligned buffers" in verdict.output


def test_a_single_rank_has_an_algbw_and_no_busbw():
    command = ("bench", "run", "--sizes", "4K", "--collectives", "all_gather,all_reduce", *FAST)
    moved, stays = rows_of(job(1, command=command, deadline=60))
    assert (moved["footprint"], stays["footprint"]) == (64 * 2 * 4096, 64 * 4096)
    assert moved["busbw_GBps"] is None
    assert moved["algbw_GBps"] > 0
    assert stays["inplace"]
    assert (stays["busbw_GBps"], stays["algbw_GBps"]) == (None, None)
    assert stays["median_us"] > 0
    assert moved["reason"]
    assert stays["reason"] not in (None, moved["reason"])


@pytest.mark.smoke
def test_a_rank_that_comes_late_is_named_with_how_late():
    late = ";".join(
        f"late:rank=2,stage={stage},seconds=0.01" for stage in ("arrival", "arrival_recheck")
    )
    command = ("bench", "run", "--sizes", "8", *FAST, "--budget", "40")
    verdict = job(3, command=command, inject=late, deadline=90)
    assert verdict.names(rank=2, stage="arrival"), str(verdict)
    (finding,) = verdict.report["findings"]
    assert (finding["condition"], finding["cause"]) == ("late", "late-arrival")
    own = finding["evidence"][0]
    assert own["value"] - own["median"] >= 9_000
    behind = verdict.report["data"]["arrival"]["median_us"]
    assert behind[2] == max(behind)


def test_looking_for_late_ranks_keeps_to_its_share_of_the_budget():
    very = "late:rank=1,stage=arrival,seconds=0.05"
    command = ("bench", "run", "--sizes", "8", "--budget", "5", "--precision", "20%")
    verdict = job(2, command=command, inject=very, deadline=60)
    assert verdict.healthy(), str(verdict)
    assert verdict.report["data"]["arrival"]["iterations"] < 300  # 15 seconds
    assert "300 are needed, give a longer --budget" in verdict.report["summary"]


def test_a_rank_that_seems_late_in_too_few_iterations_is_told_and_not_named():
    very = ";".join(f"late:rank=1,stage={s},seconds=0.05" for s in ("arrival", "arrival_recheck"))
    command = ("bench", "run", "--sizes", "8", "--budget", "15", "--precision", "20%")
    verdict = job(2, command=command, inject=very, deadline=60)
    assert verdict.report["verdict"] == "unknown", str(verdict)
    assert verdict.names(rank=[], stage="arrival")
    assert verdict.causes == {"too-few-iterations"}
    assert "rank 1" in verdict.report["summary"]


def test_jitter_names_nobody():
    jitter = "jitter:rank=1,stage=arrival,seconds=0.02,share=0.2"
    verdict = job(2, command=("bench", "run", "--sizes", "8", *FAST), inject=jitter, deadline=60)
    assert verdict.healthy(), str(verdict)


def test_a_rank_that_dies_in_a_sweep_is_named_and_what_was_measured_is_kept():
    last = "all_reduce float32 4 KiB"
    verdict = job(
        2,
        command=("bench", "run", "--sizes", "1K:4K", *FAST),
        kill=1,
        at=last,
        deadline=60,
    )
    assert verdict.names(rank=1, stage=last), str(verdict)
    assert [row["bytes"] for row in rows_of(verdict)] == [1024, 2048]
    assert verdict.report["data"]["not_measured"] == [last]
    assert verdict.gone()


def test_a_rank_that_stops_between_two_iterations_is_named():
    stage = "all_reduce float32 1 KiB"
    verdict = job(
        3,
        command=("bench", "run", "--sizes", "1K", *FAST),
        inject=f"stop:rank=1,stage={stage},step=time",
        deadline=60,
    )
    assert verdict.names(rank=1, stage=stage), str(verdict)
    assert verdict.gone()


def test_a_deadline_too_short_for_a_sweep_blames_nobody():
    sizes = [1 << power for power in range(10)]  # at least two iterations of each size
    slow = [f"slow:rank=1,stage=all_reduce float32 {n} KiB,step=time,seconds=1.5" for n in sizes]
    command = ("bench", "run", "--sizes", "1K:512K", *FAST)
    verdict = job(2, command=command, inject=";".join(slow), deadline=30)
    assert verdict.report["verdict"] == "incomplete", str(verdict)
    assert verdict.gone()


@pytest.mark.smoke
def test_a_rank_that_puts_in_wrong_values_is_named_and_the_row_says_wrong():
    stage = "all_reduce float32 4 KiB"
    verdict = job(
        3,
        command=("bench", "run", "--sizes", "4K", *FAST),
        value=1,
        at=stage,
        deadline=60,
    )
    assert verdict.names(rank=1, stage=stage), str(verdict)
    assert verdict.causes == {"wrong-contribution"}
    assert rows_of(verdict)[0]["check"] == "wrong"
    assert set(verdict.codes) == {1}


@pytest.mark.parametrize("wrong", [(0, 1), (1, 2), (0, 1, 2)])
def test_wrong_values_of_half_the_ranks_or_more_name_none_of_them_and_show_them_all(wrong):
    stage = "all_reduce float32 4 KiB"
    verdict = job(
        3,
        command=("bench", "run", "--sizes", "4K", *FAST),
        inject=";".join(f"value:rank={rank},stage={stage}" for rank in wrong),
        deadline=60,
    )
    assert verdict.report["verdict"] == "unknown", str(verdict)
    assert verdict.names(rank=[], stage=stage)
    assert verdict.causes == {"wrong-values"}
    assert f"suspects are ranks {fold(wrong)}" in verdict.report["summary"]


def test_a_gate_that_can_judge_nothing_is_not_green():
    command = ("bench", "run", "--sizes", "8,1M", *FAST, "--fail-below", "90")
    verdict = job(2, command=command, deadline=60)
    assert verdict.report["verdict"] == "unknown", str(verdict)
    assert verdict.causes == {"nothing-published"}
    assert verdict.names(rank=[], stage=None)
    said = "no published figure fits any row of 2 ranks (CPU) over c10d:gloo"
    assert said in verdict.report["summary"]
    assert set(verdict.codes) == {1}


def run_alone(*options):
    command = [sys.executable, "-m", "oddrank", "bench", "run", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--sizes", "8:4"), "as in 8:256M:x2"),
        (("--sizes", "1M:2M:2"), "as in 8:256M:x2"),
        (("--sizes", "lots"), "as in 8:256M:x2"),
        (("--collectives", "all_the_things"), "is none of all_reduce"),
        (("--collectives", "allreduce"), "; did you mean all_reduce? See "),
        (("--collectives", "AllToAll-v"), "; did you mean all_to_all_v?"),
        (("--dtypes", "fp4"), "is none of float32"),
        (("--dtypes", "floa32"), "; did you mean float32?"),
        (("--ops", "xor"), "is none of sum"),
        (("--backend", "auto,c10d"), "auto chooses one back end: give auto alone"),
        (("--backend", "nccl,auto"), "auto chooses one back end: give auto alone"),
        (("--precision", "none"), "is not a percentage"),
        (("--sizes", "1:1000:+1", "--dtypes", "all", "--ops", "all"), "give fewer --sizes"),
        (("--sizes", "900G"), "give smaller --sizes"),
        (("--sizes", "8", "--dtypes", "int8", "--ops", "avg"), "give other --dtypes"),
        (("--sizes", "8", "--dtypes", "uint64"), "gloo has no uint64; give other --dtypes"),
        (("--json", "/nowhere/at/all.json"), "cannot write"),
        (("--budget", "60", "--deadline", "30"), "is too short for 26 cases and --budget 60"),
        (("--sizes", "4:4000:+4", "--deadline", "60"), "or fewer --sizes"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(options, said):
    done = run_alone(*options)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_without_gpus_nccl_is_refused_with_the_back_end_to_take_instead(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = run_alone("--sizes", "8", "--backend", "nccl")
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].endswith("for every rank; give --backend c10d")


@pytest.mark.parametrize("option", [("--graph", "4"), ("--register",), ("--register", "window")])
def test_options_of_nccl_are_refused_where_it_cannot_be_used(option, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for more in ((), ("--dry-run",), ("--backend", "c10d"), ("--backend", "c10d", "--dry-run")):
        done = run_alone("--sizes", "8", "--budget", "1", *option, *more)
        assert done.returncode == 2, (more, done.stdout)
        assert "need the back end nccl" in done.stderr.splitlines()[-1], more


def test_a_dry_run_refuses_or_skips_nccl_as_the_run_does(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = run_alone("--sizes", "8", "--backend", "nccl", "--dry-run")
    assert done.returncode == 2, done.stdout
    assert done.stderr.splitlines()[-1].endswith("for every rank; give --backend c10d")
    monkeypatch.setenv("COLUMNS", "300")
    done = run_alone("--sizes", "8", "--backend", "both", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("skipped: the back end nccl needs a GPU") == 1


def test_a_run_that_measured_nothing_but_barriers_is_incomplete():
    done = run_alone("--collectives", "all_reduce,barrier", "--sizes", "900G", *FAST, "--json", "-")
    report = json.loads(done.stdout)
    assert report["verdict"] == "incomplete"
    assert done.returncode == 3
    assert report["summary"].endswith("only barrier: not enough free memory")


def test_both_places_are_in_and_out_and_both_words_mean_the_same():
    said = [
        run_alone("--dry-run", "--sizes", "4K", "--collectives", "all_gather", "--place", places)
        for places in ("both", "all", "in,out")
    ]
    # Free memory changes from one to the next.
    assert len({done.stdout.partition("On the CPU")[0] for done in said}) == 1
    assert said[0].stdout.splitlines()[-1].startswith("2 cases on 1 rank")


def test_a_dry_run_shows_cases_and_memory_and_starts_nothing(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    done = run_alone("--dry-run", "--sizes", "8:900G:x1000", "--collectives", "all_gather")
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    lines = done.stdout.splitlines()
    assert sum("all_gather" in line for line in lines) == 5
    assert "not enough free memory" in lines[-2]
    assert lines[-1].startswith("5 cases on 1 rank")
    assert lines[-1].endswith("Measuring takes up to 60 s (--budget)")


def test_all_back_ends_measure_each_case_once_on_each():
    said = run_alone("--dry-run", "--sizes", "8", "--backend", "all").stdout
    assert said.splitlines()[-1].startswith("2 cases on 1 rank")
    report = json.loads(run_alone("--sizes", "8", *FAST, "--backend", "all", "--json", "-").stdout)
    backends = [row["backend"].partition(":")[0] for row in report["data"]["rows"]]
    assert backends == ["nccl", "c10d"]


def test_a_dry_run_tells_the_time_that_looking_for_late_ranks_takes(monkeypatch):
    for name, value in {"RANK": 0, "WORLD_SIZE": 4, "LOCAL_RANK": 0}.items():
        monkeypatch.setenv(name, str(value))
    said = run_alone("--dry-run", "--budget", "20").stdout
    assert "up to 20 s (--budget), of them up to 8 s for the check for late ranks" in said


def test_what_nccl_chose_is_not_made_up_where_no_nccl_ran():
    done = run_alone("--sizes", "8", *FAST, "--backend", "c10d", "--algorithm")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("--algorithm: NCCL told no choice. It does so from 2.24") == 1
    assert "NCCL chose" not in done.stdout


def test_json_on_stdout_has_stdout_for_itself():
    done = run_alone("--sizes", "8,64", *FAST, "--json", "-")
    report = json.loads(done.stdout)
    assert [row["bytes"] for row in report["data"]["rows"]] == [8, 64]
    assert "median us" in done.stderr


def test_a_process_without_a_launcher_says_that_it_is_alone():
    report = json.loads(run_alone("--sizes", "8", *FAST, "--json", "-").stdout)
    assert "on 1 rank (no launcher found: this process alone)" in report["summary"]


# Runs the command with two cases; the second one fails after the first was measured.
REFUSES = """
import sys
from oddrank import cli
from oddrank.bench import sweep
from oddrank.errors import OddrankError

choose, calls = sweep._choose, []
def refuse(name, *others):
    calls.append(name)
    if len(calls) > 2:  # one at the start, one for each case
        raise OddrankError("this case can't be had: give other --dtypes")
    return choose(name, *others)
sweep._choose = refuse
sys.argv[0] = "oddrank"
cli.main()
"""


def test_what_was_measured_before_a_case_that_cannot_be_done_is_written(tmp_path):
    file = tmp_path / "report.json"
    run = ["bench", "run", "--sizes", "8,64", *FAST, "--json", str(file)]
    command = [sys.executable, "-c", REFUSES, *run]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    report = json.loads(file.read_text())
    assert report["verdict"] == "incomplete"
    assert report["summary"] == "this case can't be had: give other --dtypes"
    assert [row["bytes"] for row in report["data"]["rows"]] == [8]
    assert report["data"]["not_measured"] == ["all_reduce float32 64 B"]


def test_whoever_stops_reading_the_table_does_not_cost_the_report(tmp_path):
    file = tmp_path / "report.json"
    run = f"bench run --sizes 8:64 --budget 1 --precision 20% --json {file}"
    command = f"{sys.executable} -m oddrank {run} | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=60, check=False)
    assert b"Traceback" not in done.stderr
    assert json.loads(file.read_text())["verdict"] == "healthy"
