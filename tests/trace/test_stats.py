"""`oddrank trace stats`: exact counts, times that add up, losses, and tables that fit."""

import json
import re
import sys
import time

import pytest

from oddrank import _native
from oddrank.trace import jobs, stats
from oddrank.trace.export import export
from patience import PATIENCE, until
from terminal import on_terminal
from texts import texts
from trace_command import oddrank

TEXTS = texts(__file__)

SCRIPT = TEXTS["script"]


@pytest.fixture(scope="module")
def job(run_ranks, tmp_path_factory):
    """Returns the folder of a job whose rank 0 has run before."""
    return run_ranks(tmp_path_factory.mktemp("job"), SCRIPT, (0, 1, 0))


@pytest.fixture(scope="module")
def ranks(job):
    found, refused = stats.read(jobs.find([str(job)]).files)
    assert not refused
    return sorted(found, key=lambda rank: rank.started)[-2:]


def test_events_calls_and_times_of_each_function(ranks):
    codes = {code.function: code for code in ranks[0].codes}
    assert codes["leaf"].calls == 100
    assert codes["leaf"].events == 300  # call, line, return
    assert codes["fib"].calls == 15
    naps, main = codes["naps"], codes["main"]
    assert naps.own >= 0.4
    assert naps.own == naps.seconds
    assert main.seconds > naps.seconds + codes["leaf"].seconds + codes["fib"].seconds
    callees = sum(codes[name].seconds for name in ("naps", "leaf", "fib"))
    assert main.own == pytest.approx(main.seconds - callees, abs=1e-6)
    assert codes["fib"].own == pytest.approx(codes["fib"].seconds, abs=1e-6)  # recursion: once
    hot = stats.hottest(ranks)  # the sum of all ranks
    assert hot[0].function == "naps"
    assert {code.function: code.calls for code in hot}["leaf"] == 200
    assert [code.function for code in stats.hottest(ranks, top=1)] == ["naps", "leaf"]


def test_rates_and_the_window_of_a_rank(ranks, job):
    rank = ranks[0]
    assert (rank.rank, rank.world, rank.marks, rank.collectives) == (1, 2, 1, 0)
    # A ring loses its oldest slot once it has wrapped; this one has not.
    (file,) = job.glob(f"rank1-{rank.pid}-*")
    _, told, _ = _native.core().trace_history(str(file), 10_000)
    gaps = sum(kind == "gap" for _, _, kind, *_ in told)
    assert gaps >= 1  # gaps have no code: arming reads the stack
    assert rank.events == rank.window_events == sum(code.events for code in rank.codes) + gaps
    assert rank.seconds >= rank.window_seconds >= 0.4
    assert rank.per_second == pytest.approx(rank.events / rank.seconds)
    assert 0 < rank.overhead < 0.01
    assert rank.lost == {"threads": 0, "codes": 0, "collectives": 0, "groups": 0}


def test_losses_are_reported(script, source):
    script.armed(source, ODDRANK_TRACE_MB="0.125")
    (lossy,), _ = stats.read(script.files)
    assert lossy.lost["threads"] > 0
    (said,) = stats.notes([lossy])
    assert said.startswith(f"rank 0 (pid {lossy.pid}): no room for {lossy.lost['threads']} threads")


def test_the_running_call_of_a_live_process_lasts_until_now(script, waiting):
    def seconds():
        (rank,), _ = stats.read(script.files)
        return {code.function: code.own for code in rank.codes}["waits"], rank.alive

    before, alive = seconds()
    assert alive
    time.sleep(0.2)
    later, _ = seconds()
    assert later - before >= 0.2
    waiting.communicate("\n", timeout=PATIENCE.limit)
    final, alive = seconds()
    assert not alive
    assert final >= later
    assert seconds()[0] == pytest.approx(final, abs=1e-3)


def test_the_window_of_a_rank_that_never_rests_is_not_empty(script, source):
    """The rank fills its ring between the reads of its stack and of its events."""
    with script.running(source, ODDRANK_TRACE_MB="0.125"):
        files = script.files
        until(lambda: stats.read(files)[0][0].window_events > 100)
        windows = [stats.read(files)[0][0].window_events for _ in range(30)]
        exported = [export(files, script.folder / "out.json", lines=True) for _ in range(30)]
    # The ring wraps in 50 us: how many reads succeed depends on the machine.
    assert sum(window > 100 for window in windows) > 3, windows
    assert sum(each.events > 100 for each in exported) > 3, exported


def test_the_command_prints_tables_and_json_without_earlier_runs(job, tmp_path):
    file = tmp_path / "stats.json"
    for options, ranks in ([], [0, 1]), (["--all-runs"], [0, 0, 1]):
        done = oddrank("stats", job, "--json", file, *options, folder=job.parent)
        assert (done.returncode, done.stderr) == (0, "")
        assert "hottest code, all ranks" in done.stdout
        assert "naps" in done.stdout
        assert ("not shown: 1 records of earlier runs" in done.stdout) == (not options)
        report = json.loads(file.read_text())
        assert report["tool"] == "trace stats"
        assert sorted(rank["rank"] for rank in report["data"]["ranks"]) == ranks
        assert report["data"]["ranks"][0]["events_per_second"] > 0
        assert report["data"]["hottest"][0]["function"] == "naps"


LONG = TEXTS["long"]


def test_the_tables_fit_the_terminal(run_ranks, tmp_path):
    job = run_ranks(tmp_path, LONG)
    piped = oddrank("stats", job, folder=tmp_path).stdout
    command = [sys.executable, "-m", "oddrank", "trace", "stats", job]
    shown = [(columns, on_terminal(command, columns)) for columns in (60, 80, 100, 200)]
    for most, coloured in [(160, piped), *shown]:
        text = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
        assert max(map(len, text.splitlines())) <= most
        assert "aaa" in text
        assert ("ccc.py:1" if most >= 100 else "ccc") in text
