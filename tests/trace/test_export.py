"""`oddrank trace export`: two ranks of a real job, read back as JSON and by Perfetto."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict

import pytest

from oddrank.errors import OddrankError
from oddrank.trace import jobs
from oddrank.trace.export import export

SCRIPT = """
import contextlib, os, signal, threading, time
import oddrank
oddrank.arm()

def items():
    try:
        yield 1
        yield 2
    except ValueError:
        yield 3

@contextlib.contextmanager
def scope():
    with contextlib.suppress(KeyError):
        yield

def fails():
    raise KeyError

def leaf(i):
    return i * 2

def work(step):
    oddrank.step(step)
    with oddrank.section("data"):
        for item in items():
            leaf(item)
    with scope():
        fails()
    made = items()
    next(made)
    made.throw(ValueError)
    oddrank.mark('half "way"')

def side():
    for i in range(50):
        leaf(i)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

thread = threading.Thread(target=side, name="side")
thread.start()
thread.join()
for i in range(ROUNDS):
    work(i)
die()
"""


def start(folder, rounds, numbers=range(2)):
    script = folder / "script.py"
    script.write_text(SCRIPT.replace("ROUNDS", str(rounds)))
    for number in numbers:
        subprocess.run(
            [sys.executable, script],
            env={
                **os.environ, "ODDRANK_DIR": str(folder / "records"), "RANK": str(number),
                "WORLD_SIZE": "2", "LOCAL_RANK": str(number), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "29500",
            },
            check=False, timeout=60,
        )  # fmt: skip
    return folder / "records" / "127.0.0.1:29500"


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return start(tmp_path_factory.mktemp("job"), 3)


@pytest.fixture(scope="module")
def long_job(tmp_path_factory):
    """Its ring has gone round several times: main's calls have begun before the window."""
    return start(tmp_path_factory.mktemp("long"), 3000, range(1))


@pytest.fixture(scope="module")
def picture(job, tmp_path_factory):
    target = tmp_path_factory.mktemp("out") / "job.json.gz"
    written = export(jobs.files([str(job)]), target)
    assert written.notes == ()
    return target


def events_of(path):
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(text)["traceEvents"]


def check_nesting(events):
    """Every begin has its end, in order, and time never goes back on a row; the deepest stacks."""
    stacks, last, deepest = defaultdict(list), {}, defaultdict(list)
    for event in events:
        if event["ph"] not in "BE":
            continue
        row = (event["pid"], event["tid"])
        assert event["ts"] >= last.get(row, 0)
        last[row] = event["ts"]
        if event["ph"] == "B":
            stacks[row].append(event["name"])
            deepest[row] = max(deepest[row], list(stacks[row]), key=len)
        else:
            assert stacks[row], event
            stacks[row].pop()
    assert not any(stacks.values())
    return deepest


def test_calls_of_all_ranks_and_threads_nest(picture):
    events = events_of(picture)
    deepest = check_nesting(events)
    main = [stack for (pid, tid), stack in deepest.items() if pid == tid]
    assert len(main) == 2
    assert all(stack[:2] == ["<module>", "work"] for stack in main)
    side = [stack for (pid, tid), stack in deepest.items() if pid != tid]
    assert side == [["side", "leaf"]] * 2
    work = next(e for e in events if e["ph"] == "B" and e["name"] == "work")
    assert work["args"]["at"].endswith("script.py:24")


def test_what_runs_at_the_death_says_so_and_ends_with_the_last_event(picture):
    events = events_of(picture)
    open_ones = [e for e in events if e["ph"] == "E" and "open" in e.get("args", {})]
    assert len(open_ones) == 4  # <module> and die() of each rank
    for end in open_ones:
        same = [e["ts"] for e in events if e["ph"] in "BEi" and e["pid"] == end["pid"]]
        assert end["ts"] == max(same)


def test_ranks_threads_steps_sections_and_marks_have_names_rows_and_one_clock(picture):
    events = events_of(picture)
    named = {e["args"]["name"] for e in events if e["ph"] == "M" and "name" in e["args"]}
    assert any(name.startswith("rank 0 (") for name in named)
    assert any(name.startswith("rank 1 (") for name in named)
    assert {"MainThread", "side", "steps", "sections of MainThread"} <= named
    slices = [e for e in events if e["ph"] == "X"]
    steps = [e for e in slices if e["name"].startswith("step ")]
    assert [e["name"] for e in steps] == ["step 0", "step 1", "step 2"] * 2
    first, second, _, later, _, _ = steps
    assert first["ts"] + first["dur"] == pytest.approx(second["ts"], abs=0.01)
    assert later["ts"] > second["ts"]  # rank 1 was started when rank 0 had died
    assert sum(1 for e in slices if e["name"] == "data") == 6
    assert sum(1 for e in events if e["ph"] == "i" and e["name"] == 'half "way"') == 6
    assert sum(1 for e in events if e["ph"] == "i" and e["name"] == "step 1") == 2


def test_a_ring_whose_beginning_is_lost_nests_under_the_calls_that_were_open(long_job, tmp_path):
    target = tmp_path / "long.json"
    export(jobs.files([str(long_job)]), target)
    events = events_of(target)
    (main, *_) = check_nesting([e for e in events if e["pid"] == e["tid"]]).values()
    assert main[:2] == ["<module>", "work"]
    opened = [e for e in events if e["ph"] == "B" and "cut" in e["args"]]
    assert opened[0]["name"] == "<module>"
    first = min(e["ts"] for e in events if e["ph"] == "B" and e["pid"] == e["tid"])
    assert opened[0]["ts"] == first


def test_lines_come_when_asked_for_and_a_plain_name_is_plain(job, tmp_path):
    target = tmp_path / "job.json"
    export(jobs.files([str(job)]), target, lines=True)
    events = events_of(target)
    check_nesting(events)
    assert any(e["ph"] == "i" and e["name"] == "script.py:25" for e in events)


def test_a_record_that_is_cut_is_told_and_the_others_are_written(job, tmp_path):
    good, other = jobs.files([str(job)])
    cut = tmp_path / "cut.trace"
    cut.write_bytes(other.read_bytes()[:100_000])
    target = tmp_path / "some.json.gz"
    written = export([good, cut], target)
    assert written.ranks == 1
    assert "it was cut" in written.notes[0]
    check_nesting(events_of(target))


def test_where_nothing_can_be_read_or_written_nothing_is_left(job, tmp_path):
    bad = tmp_path / "bad.trace"
    bad.write_bytes(b"x" * 5000)
    with pytest.raises(OddrankError, match="none of 1 files"):
        export([bad], tmp_path / "out.json.gz")
    with pytest.raises(OddrankError, match="cannot write"):
        export(jobs.files([str(job)]), tmp_path / "nowhere" / "out.json.gz")
    with pytest.raises(OddrankError, match="no regular file"):
        export(jobs.files([str(job)]), tmp_path)
    assert list(tmp_path.iterdir()) == [bad]


def test_ranks_of_two_hosts_with_the_same_pid_stay_apart(job, tmp_path):
    file, _ = jobs.files([str(job)])
    target = tmp_path / "twice.json"
    export([file, file], target)
    events = events_of(target)
    assert len({e["pid"] for e in events}) == 2
    check_nesting(events)


def test_the_command_writes_a_file_and_says_where(job, tmp_path):
    target = tmp_path / "job.json.gz"
    done = subprocess.run(
        [sys.executable, "-m", "oddrank", "trace", "export", target, job],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "of 2 processes of job 127.0.0.1:29500" in done.stdout
    check_nesting(events_of(target))


@pytest.mark.needs("perfetto")
def test_perfetto_reads_it_without_an_error(picture):
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    shell = shutil.which(os.environ.get("TRACE_PROCESSOR_SHELL", "trace_processor_shell"))
    with TraceProcessor(str(picture), config=TraceProcessorConfig(bin_path=shell)) as reader:
        errors = "select name, value from stats where severity != 'info' and value > 0"
        assert [(row.name, row.value) for row in reader.query(errors)] == []
        names = "select distinct name from slice where dur = -1"
        assert [row.name for row in reader.query(names)] == []
        calls = "select count(*) as n from slice where name = 'work'"
        assert next(iter(reader.query(calls))).n == 6
        ranks = "select name from process where name like 'rank %' order by name"
        assert len(list(reader.query(ranks))) == 2
