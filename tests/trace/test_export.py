"""`oddrank trace export`: ranks of a real job, read back by the format's rules and by Perfetto."""

import os
import shutil
import time

import pytest

from chrome_trace import ChromeTrace
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
    """Fills the ring several times, so that the calls of main began before the window."""
    return run_ranks(tmp_path_factory.mktemp("long"), SCRIPT.replace("ROUNDS", "3000"), range(1))


@pytest.fixture(scope="module")
def target(job, tmp_path_factory):
    target = tmp_path_factory.mktemp("out") / "job.json.gz"
    written = export(jobs.find([str(job)]).files, target)
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
    assert len(work) == 6  # three per rank: an exception thrown into a generator inside ends none
    assert not any("cut" in event["args"] for event in work)
    assert work[0]["args"]["at"].endswith("script.py:24")


def test_calls_that_run_at_the_death_say_so_and_end_with_the_last_event(picture):
    open_ones = [e for e in picture.events if e["ph"] == "E" and "open" in e.get("args", {})]
    assert len(open_ones) == 4  # <module> and die() per rank
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
    assert int(picture.name("thread_sort_index", *steps)) < 0  # above the threads' rows
    assert len(picture.rows("side")) == len(picture.rows("sections of MainThread")) == 2
    first, later = picture.of("X", "step 0")
    (second, _) = picture.of("X", "step 1")
    assert first["ts"] + first["dur"] == pytest.approx(second["ts"], abs=0.01)
    assert (first["pid"], later["pid"]) == (zero, one)
    assert later["ts"] > second["ts"]  # rank 1 started after rank 0 died
    assert len(picture.of("X", "data")) == 6
    assert len(picture.of("i", 'half "way"')) == 6
    assert len(picture.of("i", "step 1")) == 2


def test_a_ring_whose_beginning_is_lost_nests_under_the_calls_that_were_open(long_job, tmp_path):
    target = tmp_path / "long.json"
    export(jobs.find([str(long_job)]).files, target)
    picture = ChromeTrace(target)
    ((pid, main),) = picture.rows("MainThread")
    assert picture.deepest[pid, main][:2] == ["<module>", "work"]
    opened = [e for e in picture.events if e["ph"] == "B" and "cut" in e["args"]]
    assert opened[0]["name"] == "<module>"
    assert opened[0]["ts"] == min(
        e["ts"] for e in picture.events if e["ph"] == "B" and e["tid"] == main
    )


def test_a_section_whose_begin_is_lost_begins_with_the_oldest_mark(run_ranks, tmp_path):
    run_ranks(
        tmp_path,
        """
import os, signal
import oddrank
oddrank.arm({"*": "off"})
with oddrank.section("training"):  # its begin is kept, and is older than all other marks
    for _ in range(30):
        with oddrank.section("data"):
            for _ in range(150):
                oddrank.mark("inside")
    os.kill(os.getpid(), signal.SIGKILL)
""",
        range(1),
    )
    target = tmp_path / "sections.json"
    export(jobs.find([str(tmp_path)]).files, target)
    picture = ChromeTrace(target)
    (training,) = picture.of("X", "training")
    (lost,) = [event for event in picture.of("X", "data") if "cut" in event["args"]]
    inside = [event["ts"] for event in picture.of("i", "inside")]
    assert training["ts"] < min(inside) == lost["ts"]


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
    export(jobs.find([str(script.folder / "records")]).files, target)
    picture = ChromeTrace(target)
    (call,) = picture.of("B", 'a"},{\n<b>\u2028\x1b[2J')
    assert call["args"]["at"] == 'no "file"\n.py:1'
    assert picture.of("X", 'sec"tion')


def test_a_rank_that_waits_is_shown_until_now(script, waiting):
    process = waiting()
    time.sleep(0.2)
    target = script.folder / "out.json"
    export(jobs.find([str(script.folder / "records")]).files, target)
    process.communicate("\n", timeout=30)
    picture = ChromeTrace(target)
    (begin,) = picture.of("B", "waits")
    ends = [e["ts"] for e in picture.events if e["ph"] == "E" and "open" in e.get("args", {})]
    assert len(set(ends)) == 1
    assert ends[0] - begin["ts"] >= 0.2e6


def test_lines_come_when_asked_for_and_a_plain_name_is_plain(job, tmp_path):
    target = tmp_path / "job.json"
    export(jobs.find([str(job)]).files, target, lines=True)
    assert ChromeTrace(target).of("i", "script.py:25")


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
