"""`oddrank trace stats`: counts are exact, times add up, what is lost is said."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

from oddrank.trace import jobs, stats

SCRIPT = """
import os, time
import oddrank
oddrank.arm()

def leaf(n):
    return n

def naps():
    time.sleep(0.05)

def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

def main():
    for i in range(100):
        leaf(i)
    naps()
    fib(5)

oddrank.step(0)
main()
os._exit(0)
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    script = folder / "script.py"
    script.write_text(SCRIPT)
    for number in range(2):
        subprocess.run(
            [sys.executable, script],
            env={
                **os.environ, "ODDRANK_DIR": str(folder / "records"), "RANK": str(number),
                "WORLD_SIZE": "2", "LOCAL_RANK": str(number), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "29500",
            },
            check=True, timeout=60,
        )  # fmt: skip
    return folder / "records" / "127.0.0.1:29500"


@pytest.fixture(scope="module")
def ranks(job):
    found, refused = stats.read(jobs.files([str(job)]))
    assert refused == []
    return found


def test_events_calls_and_times_of_each_function(ranks):
    codes = {code.function: code for code in ranks[0].codes}
    assert codes["leaf"].calls == 100
    assert codes["leaf"].events == 300  # call, line, return
    assert codes["fib"].calls == 15
    naps, main = codes["naps"], codes["main"]
    assert naps.own >= 0.05
    assert naps.own == naps.seconds
    assert main.seconds > naps.seconds + codes["leaf"].seconds + codes["fib"].seconds
    callees = sum(codes[name].seconds for name in ("naps", "leaf", "fib"))
    assert main.own == pytest.approx(main.seconds - callees, abs=1e-6)
    assert codes["fib"].own == pytest.approx(codes["fib"].seconds, abs=1e-6)  # recursion: once


def test_rates_and_the_window_of_a_rank(ranks):
    rank = ranks[0]
    assert (rank.rank, rank.world, rank.marks, rank.collectives) == (0, 2, 1, 0)
    # A ring keeps all but its oldest place; this one has not gone round.
    assert rank.events == rank.window_events == sum(code.events for code in rank.codes) + 1  # a gap
    assert rank.seconds >= rank.window_seconds >= 0.05
    assert rank.per_second == pytest.approx(rank.events / rank.seconds)
    assert 0 < rank.overhead < 0.01
    assert rank.lost == {"threads": 0, "codes": 0, "collectives": 0}


def test_the_hottest_code_is_the_sum_of_all_ranks(ranks):
    hot = stats.hottest(ranks)
    assert hot[0].function == "naps"
    assert {code.function: code.calls for code in hot}["leaf"] == 200
    assert [code.function for code in stats.hottest(ranks, top=1)] == ["naps", "leaf"]


def test_what_was_lost_is_said(ranks):

    lossy = dataclasses.replace(ranks[0], lost={"threads": 3, "codes": 0}, displaced_by="pdb.Pdb")
    said = list(stats.notes([lossy]))
    assert len(said) == 2
    assert "3 threads were not recorded" in said[0]
    assert "pdb.Pdb has taken the trace hook" in said[1]


def test_the_command_prints_tables_and_json(job, tmp_path):
    file = tmp_path / "stats.json"
    done = subprocess.run(
        [sys.executable, "-m", "oddrank", "trace", "stats", job, "--json", file],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "hottest code, all ranks" in done.stdout
    assert "naps" in done.stdout
    report = json.loads(file.read_text())
    assert report["tool"] == "trace stats"
    assert [rank["rank"] for rank in report["data"]["ranks"]] == [0, 1]
    assert report["data"]["ranks"][0]["events_per_second"] > 0
    assert report["data"]["hottest"][0]["function"] == "naps"
