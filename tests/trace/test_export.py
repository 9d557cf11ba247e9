"""`oddrank trace export`: ranks of a real job, read back by the format's rules and by Perfetto."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chrome_trace import ChromeTrace
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


@pytest.fixture(scope="module")
def job(run_ranks, tmp_path_factory):
    return run_ranks(tmp_path_factory.mktemp("job"), SCRIPT.replace("ROUNDS", "3"))


@pytest.fixture(scope="module")
def long_job(run_ranks, tmp_path_factory):
    """Its ring has gone round several times: main's calls have begun before the window."""
    return run_ranks(tmp_path_factory.mktemp("long"), SCRIPT.replace("ROUNDS", "3000"), range(1))


@pytest.fixture(scope="module")
def target(job, tmp_path_factory):
    target = tmp_path_factory.mktemp("out") / "job.json.gz"
    written = export(jobs.files([str(job)]), target)
    assert written.notes == ()
    return target


@pytest.fixture(scope="module")
def picture(target):
    return ChromeTrace(target)


def test_calls_of_all_ranks_and_threads_nest(picture):
    stacks = picture.deepest
    main = [stack for (pid, tid), stack in stacks.items() if pid == tid]
    assert len(main) == 2
    assert all(stack[:2] == ["<module>", "work"] for stack in main)
    side = [stack for (pid, tid), stack in stacks.items() if pid != tid]
    assert side == [["side", "leaf"]] * 2
    work = picture.of("B", "work")
    assert len(work) == 6  # three of each rank: what is thrown into a generator in it ends none
    assert not any("cut" in event["args"] for event in work)
    assert work[0]["args"]["at"].endswith("script.py:24")


def test_what_runs_at_the_death_says_so_and_ends_with_the_last_event(picture):
    open_ones = [e for e in picture.events if e["ph"] == "E" and "open" in e.get("args", {})]
    assert len(open_ones) == 4  # <module> and die() of each rank
    for end in open_ones:
        same = [e["ts"] for e in picture.events if e["ph"] in "BEi" and e["pid"] == end["pid"]]
        assert end["ts"] == max(same)


def test_ranks_threads_steps_sections_and_marks_have_names_rows_and_one_clock(picture):
    (zero, _), (one, _) = sorted(picture.rows("MainThread"), key=lambda row: picture.name(
        "process_name", row[0]))  # fmt: skip
    assert picture.name("process_name", zero).startswith("rank 0 (")
    assert picture.name("process_name", one).startswith("rank 1 (")
    assert picture.name("process_sort_index", zero) == "0"
    assert picture.name("process_sort_index", one) == "2"
    (steps, _) = picture.rows("steps")
    assert int(picture.name("thread_sort_index", *steps)) < 0  # above the threads
    assert len(picture.rows("side")) == len(picture.rows("sections of MainThread")) == 2
    first, later = picture.of("X", "step 0")
    (second, _) = picture.of("X", "step 1")
    assert first["ts"] + first["dur"] == pytest.approx(second["ts"], abs=0.01)
    assert (first["pid"], later["pid"]) == (zero, one)
    assert later["ts"] > second["ts"]  # rank 1 was started when rank 0 had died
    assert len(picture.of("X", "data")) == 6
    assert len(picture.of("i", 'half "way"')) == 6
    assert len(picture.of("i", "step 1")) == 2


def test_a_ring_whose_beginning_is_lost_nests_under_the_calls_that_were_open(long_job, tmp_path):
    target = tmp_path / "long.json"
    export(jobs.files([str(long_job)]), target)
    picture = ChromeTrace(target)
    ((pid, main),) = picture.rows("MainThread")
    assert picture.deepest[pid, main][:2] == ["<module>", "work"]
    opened = [e for e in picture.events if e["ph"] == "B" and "cut" in e["args"]]
    assert opened[0]["name"] == "<module>"
    assert opened[0]["ts"] == min(
        e["ts"] for e in picture.events if e["ph"] == "B" and e["tid"] == main
    )


def test_names_that_are_no_names_stay_in_their_quotes(script):
    script(
        r"""
        import threading
        import oddrank
        oddrank.arm()

        names = {}
        exec(compile("def quote(): pass", 'no "file"\n.py', "exec"), names)
        code = names["quote"].__code__
        both = [each for each in ("co_name", "co_qualname") if hasattr(code, each)]
        odd = 'a"},{\n<b>\u2028\x1b[2J'
        names["quote"].__code__ = code.replace(**dict.fromkeys(both, odd))
        names["quote"]()
        thread = threading.Thread(target=oddrank.mark, args=("mark",), name='th"read\n\u00e9')
        thread.start()
        thread.join()
        with oddrank.section('sec"tion'):
            pass
        """
    )
    target = script.folder / "out.json"
    export(jobs.files([str(script.folder / "records")]), target)
    picture = ChromeTrace(target)
    (call,) = picture.of("B", 'a"},{\n<b>\u2028\x1b[2J')
    assert call["args"]["at"] == 'no "file"\n.py:1'
    assert picture.of("X", 'sec"tion')


def test_a_rank_that_waits_is_shown_until_now(script):
    process = script(
        """
        import sys
        import oddrank
        oddrank.arm()

        def waits():
            print("waits", flush=True)
            sys.stdin.readline()

        waits()
        """,
        wait=False,
        stdin=subprocess.PIPE,
    )
    process.stdout.readline()
    time.sleep(0.2)
    target = script.folder / "out.json"
    export(jobs.files([str(script.folder / "records")]), target)
    process.communicate("\n", timeout=30)
    picture = ChromeTrace(target)
    (begin,) = picture.of("B", "waits")
    ends = [e["ts"] for e in picture.events if e["ph"] == "E" and "open" in e.get("args", {})]
    assert len(set(ends)) == 1
    assert ends[0] - begin["ts"] >= 0.2e6


def test_lines_come_when_asked_for_and_a_plain_name_is_plain(job, tmp_path):
    target = tmp_path / "job.json"
    export(jobs.files([str(job)]), target, lines=True)
    assert ChromeTrace(target).of("i", "script.py:25")


def test_a_record_that_is_cut_is_told_and_the_others_are_written(job, tmp_path):
    good, other = jobs.files([str(job)])
    cut = tmp_path / "cut.trace"
    cut.write_bytes(other.read_bytes()[:100_000])
    target = tmp_path / "some.json.gz"
    written = export([good, cut], target)
    assert written.processes == 1
    assert "it was cut" in written.notes[0]
    ChromeTrace(target)


def test_where_nothing_can_be_read_or_written_nothing_is_left(job, tmp_path):
    bad = tmp_path / "bad.trace"
    bad.write_bytes(b"x" * 5000)
    inputs = sorted(tmp_path.iterdir())
    for files, why in (([bad], "is not a record"), ([], "in 0 files")):
        with pytest.raises(OddrankError, match=why):
            export(files, tmp_path / "out.json.gz")
    files = jobs.files([str(job)])
    pipe = tmp_path.parent / f"{tmp_path.name}.pipe"
    os.mkfifo(pipe)
    for target, why in (
        (tmp_path / "nowhere" / "out.json.gz", "No such file"),
        (bad / "out.json", "Not a directory"),
        (tmp_path / ("x" * 250), "name too long"),
        (tmp_path, "it is a folder"),
        (pipe, "no regular file"),
    ):
        with pytest.raises(OddrankError, match=why):
            export(files, target)
    assert sorted(tmp_path.iterdir()) == inputs


def test_a_record_of_another_boot_whose_clock_was_seen_once_is_left_out_and_told(script):
    script("import os, oddrank; oddrank.arm(); os._exit(0)")
    (file,) = jobs.files([str(script.folder / "records")])
    boot = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    record = file.read_bytes()
    assert record.count(boot) == 1
    elsewhere = script.folder / "elsewhere.trace"
    elsewhere.write_bytes(record.replace(boot, b"0" * len(boot)))
    target = script.folder / "out.json"
    with pytest.raises(OddrankError, match="its clock can only be read on its own host"):
        export([elsewhere], target)
    assert not target.exists()
    (note,) = export([elsewhere, file], target).notes
    assert "is left out" in note


def test_a_link_stays_one_and_what_was_there_is_replaced(job, tmp_path):
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    export(jobs.files([str(job)]), link)
    assert link.is_symlink()
    ChromeTrace(target)


def test_ranks_of_two_hosts_with_the_same_pid_stay_apart(job, tmp_path):
    file, _ = jobs.files([str(job)])
    target = tmp_path / "twice.json"
    export([file, file], target)
    assert len({e["pid"] for e in ChromeTrace(target).events}) == 2


def test_earlier_runs_of_a_rank_are_left_out_unless_asked_for(run_ranks, tmp_path):
    job = run_ranks(tmp_path, SCRIPT.replace("ROUNDS", "1"), (0, 1, 0))
    files = jobs.files([str(job)])
    written = export(files, tmp_path / "last.json")
    assert (written.processes, written.earlier) == (2, 1)
    written = export(files, tmp_path / "all.json", all_runs=True)
    assert (written.processes, written.earlier) == (3, 0)


def test_the_command_writes_a_file_and_says_where(job, tmp_path):
    target = tmp_path / "job.json.gz"
    done = subprocess.run(
        [sys.executable, "-m", "oddrank", "trace", "export", target, job],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "of 2 processes of job 127.0.0.1:29500" in done.stdout
    assert (done.stderr, done.stdout.count("\n")) == ("", 1)
    ChromeTrace(target)


@pytest.mark.needs("perfetto")
def test_perfetto_reads_it_without_an_error(target):
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    shell = shutil.which(os.environ.get("TRACE_PROCESSOR_SHELL", "trace_processor_shell"))
    with TraceProcessor(str(target), config=TraceProcessorConfig(bin_path=shell)) as reader:
        errors = "select name, value from stats where severity != 'info' and value > 0"
        assert [(row.name, row.value) for row in reader.query(errors)] == []
        names = "select distinct name from slice where dur = -1"
        assert [row.name for row in reader.query(names)] == []
        calls = "select count(*) as n from slice where name = 'work'"
        assert next(iter(reader.query(calls))).n == 6
        ranks = "select name from process where name like 'rank %' order by name"
        assert len(list(reader.query(ranks))) == 2
