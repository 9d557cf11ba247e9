"""`oddrank trace where`: grouping of ranks, order and text."""

import dataclasses
import json
import os
import subprocess
import sys
import time

from oddrank.trace import jobs
from oddrank.trace.processes import Frame, last_run, runs_back
from oddrank.trace.ranks import Collective, Rank, Thread, read
from oddrank.trace.where import groups, text
from patience import until
from trace_command import oddrank

NOW = 1_700_000_000.0
AT_61 = (Frame("<module>", "/x/train.py", 88), Frame("train", "/x/train.py", 61))
AT_17 = (Frame("<module>", "/x/train.py", 88), Frame("Data.next", "/x/data.py", 17))


def thread(stack=AT_61, *, tid, name="MainThread", **others):
    return Thread(tid=tid, name=name, stack=stack, hidden=0, ended=False, last=NOW - 5, **others)


def in_all_reduce(sequence, **others):
    made = Collective("allreduce", "0", sequence, 4 << 20, 100, sequence, "open", NOW - 81, None)
    return dataclasses.replace(made, **others)


def rank(number, stack=AT_61, *, step=42, collectives=(), threads=(), **others):
    pid = 100 + number
    made = Rank(
        rank=number, host="node1", pid=pid, started=1000, world=4, is_child=False, alive=True,
        step=step, last=NOW - 5, collectives=collectives, sections=(), threads=(),
    )  # fmt: skip
    every = (thread(stack, tid=pid), *threads)
    return dataclasses.replace(made, threads=every, **others)


def folded(ranks, **options):
    return [[r.rank for r in group.ranks] for group in groups(ranks, **options)]


def test_ranks_with_the_same_stack_are_folded_and_the_least_progress_comes_first():
    assert folded([rank(0), rank(1), rank(2, AT_17, step=41), rank(3)]) == [[2], [0, 1, 3]]


def test_a_stopped_rank_is_not_one_more_that_sleeps():
    ranks = []
    for made, state in zip(map(rank, range(3)), ("asleep", "stopped", "running"), strict=True):
        (main,) = made.threads
        ranks.append(dataclasses.replace(made, threads=(dataclasses.replace(main, state=state),)))
    assert folded(ranks) == [[1], [0, 2]]


def test_a_dead_rank_waits_no_longer():
    (line,) = [
        line
        for line in text([rank(0, collectives=(in_all_reduce(3),), alive=False)], "j", now=NOW)
        if "allreduce" in line
    ]
    assert line.startswith("  in allreduce #3 of group 0, 4 MiB, since ")


def test_children_that_outlive_their_ranks_are_counted():
    ranks = [rank(0, alive=False), rank(0, is_child=True), rank(0, is_child=True)]
    heading = text(ranks, "j", now=NOW)[0]
    assert "1 of 4 ranks, 0 alive (2 child processes still alive)" in heading


def test_within_a_step_the_collective_decides_and_then_rarity():
    ahead, behind = (in_all_reduce(7),), (in_all_reduce(6),)
    assert folded([rank(0, collectives=ahead), rank(1, collectives=behind)]) == [[1], [0]]
    assert folded([rank(0), rank(1), rank(2, AT_17)]) == [[2], [0, 1]]


def test_dead_and_alive_are_never_folded():
    assert folded([rank(0), rank(1, alive=False)]) == [[0], [1]]


def test_another_line_in_a_side_thread_matters_only_when_all_threads_are_shown():
    one = rank(0, threads=(thread(AT_17, tid=7, name="loader"),))
    other = rank(1, threads=(thread(AT_61, tid=8, name="loader"),))
    assert folded([one, other]) == [[0, 1]]
    assert folded([one, other], all_threads=True) == [[0], [1]]


def test_a_thread_that_waits_in_a_collective_is_shown():
    waits = thread(AT_17, tid=7, name="autograd")
    shown = text([rank(0, threads=(waits,), collectives=(in_all_reduce(7, tid=7),))], "j", now=NOW)
    assert any("autograd" in line for line in shown)


def test_the_text_of_a_hang():
    states = {"state": "asleep", "cpu": 0.0}
    stuck = [rank(i, collectives=(in_all_reduce(127),)) for i in (0, 1, 3)]
    stuck = [
        dataclasses.replace(r, threads=(dataclasses.replace(r.threads[0], **states),))
        for r in stuck
    ]
    lines = text([*stuck, rank(2, AT_17, step=41)], "j", now=NOW)
    assert lines[:5] == [
        "job j: 4 of 4 ranks, 4 alive",
        "",
        "rank 2 (node1, pid 102): step 41, alive, last event 5.0 s ago",
        "  MainThread",
        "    /x/train.py:88  <module>",
    ]
    assert "ranks 0-1, 3 (node1, pids 100-101, 103): step 42, alive, last event 5.0 s ago" in lines
    assert "  in allreduce #127 of group 0, 4 MiB for 81.0 s" in lines
    assert "  MainThread (asleep, using no CPU)" in lines
    assert lines[-1] == "    /x/train.py:61  train"


def test_ranks_without_a_record_and_what_is_not_shown_are_told():
    child = rank(1, is_child=True)
    lines = text([rank(0), rank(1, threads=(thread(tid=9),)), child], "j", now=NOW)
    assert lines[0] == "job j: 2 of 4 ranks, 2 alive; no record here of 2-3"
    assert lines[-1] == "not shown: 1 other thread, 1 child process (--all-threads)"


def test_the_newest_job_is_shown_from_its_files_after_its_death(dead_job):
    done = oddrank("where", folder=dead_job / "records", cwd=dead_job)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "job 127.0.0.1:29500: 2 of 2 ranks, 0 alive"
    assert lines[2].startswith("ranks 0-1 (")
    assert ": step 5, dead: killed, crashed or os._exit(), last event at " in lines[2]
    assert lines[-2:] == ["    script.py:8  <module>", "    script.py:7  work"]


def test_the_newest_job_is_the_living_one_that_began_last(script):
    """The file's time does not count: a record on a disk is written to all the time."""
    records = script.folder / "records"
    processes = []
    for name in ("first", "second"):
        processes.append(
            script("\nimport oddrank; oddrank.arm()\ninput()", wait=False, stdin=subprocess.PIPE,
                   ODDRANK_JOB=name)
        )  # fmt: skip
        until(lambda name=name: read(list(records.glob(f"{name}/*.trace")))[0])
    (older,) = records.glob("first/*.trace")
    os.utime(older, (time.time() + 60, time.time() + 60))
    assert oddrank("where", folder=records).stdout.startswith("job second: ")
    several = oddrank("where", records, folder=records).stdout.splitlines()
    for process in processes:
        process.kill()
        process.communicate()
    headings = [line for line in several if line.startswith("job ")]
    assert headings == ["job first: 1 of 1 ranks, 1 alive", "job second: 1 of 1 ranks, 1 alive"]


def test_json_has_every_thread_with_the_innermost_frame_last(dead_job):
    done = oddrank("where", "--json", "-", folder=dead_job / "records")
    report = json.loads(done.stdout)
    assert report["tool"] == "trace where"
    first, second = report["data"]["ranks"]
    assert (first["rank"], second["rank"]) == (0, 1)
    assert (first["alive"], first["step"], first["collective"]) == (False, 5, None)
    # The ranks ran one after the other.
    written = (dead_job / "script.py").stat().st_mtime
    assert written < first["time"] < second["time"] < time.time()
    (thread,) = first["threads"]
    assert thread["name"] == "MainThread"
    assert thread["tid"] == first["pid"]
    assert thread["stack"][-1] == {
        "function": "work", "file": str(dead_job / "script.py"), "line": 7
    }  # fmt: skip


def test_each_file_that_is_no_record_takes_one_line_and_the_rest_is_shown(dead_job, tmp_path):
    (file, other) = jobs.find([str(dead_job / "records" / "127.0.0.1:29500")]).files
    cut = tmp_path / "cut.trace"
    cut.write_bytes(other.read_bytes()[:100_000])
    done = oddrank("where", file, cut, "/etc/hostname", folder=tmp_path)
    assert done.returncode == 2
    assert "\nrank 0 (" in done.stdout
    assert len(done.stderr.splitlines()) == 2
    assert "it was cut" in done.stderr
    only = oddrank("where", cut, folder=tmp_path)
    assert only.returncode == 2
    nothing = oddrank("where", tmp_path / "nowhere", folder=tmp_path)
    assert nothing.returncode == 2
    (line,) = nothing.stderr.splitlines()
    assert "nowhere" in line


def test_without_any_record_it_says_where_it_looked_and_what_to_do(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", "import oddrank.job, pathlib, sys; from oddrank import cli; "
         f"oddrank.job.base_folders = lambda: [pathlib.Path({str(tmp_path)!r})]; "
         "cli.main(['trace', 'where'])"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert str(tmp_path) in done.stderr
    assert "oddrank.arm()" in done.stderr


def test_the_dead_of_earlier_runs_are_not_shown_but_those_of_the_last_one_are():
    before = [rank(i, alive=False, started=100) for i in range(2)]
    now = [rank(0), rank(1, alive=False)]
    worker = rank(1, is_child=True, alive=False, started=2000)
    assert last_run([*before, *now, worker]) == [*now, worker]
    assert last_run(before) == before


def test_runs_are_told_apart_where_more_than_one_is_shown():
    first = [rank(i, alive=False, started=100, runs_back=2) for i in range(2)]
    second = [rank(i, alive=False, started=200, runs_back=1, step=9) for i in range(2)]
    worker = rank(1, is_child=True, alive=False, started=250, runs_back=1)
    now = [rank(0), rank(1)]
    assert runs_back([*now, worker, *first, *second]) == [0, 0, 1, 2, 2, 1, 1]
    lines = text([*now, *second, *first], "j", now=NOW)
    assert lines[0] == "job j: 2 of 4 ranks, 2 alive; no record here of 2-3"
    assert [line.split(" (")[0] for line in lines if ": step" in line] == [
        "2 runs before the last, ranks 0-1", "the run before, ranks 0-1", "the last run, ranks 0-1",
    ]  # fmt: skip
    assert not any("run" in line for line in text(now, "j", now=NOW))


def test_a_world_that_only_a_broken_file_can_mean_is_said_in_ranges():
    (heading, *_) = text([rank(0, world=2**31 - 1), rank(7)], "j", now=NOW)
    assert heading.endswith("no record here of 1-6,8-2147483646")
