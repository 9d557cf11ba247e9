"""`oddrank trace export`: ranks of a real job, read back by the format's rules and by Perfetto."""

import os
import shutil
import time
from pathlib import Path

import pytest

from chrome_trace import ChromeTrace
from oddrank.errors import OddrankError
from oddrank.trace import jobs
from oddrank.trace.export import export
from patience import PATIENCE, until
from trace_command import plain

# A rank of it runs ROUNDS steps with calls of all kinds, then is killed.
SCRIPT = Path(__file__).with_name("data").joinpath("export_job.txt").read_text()


def pictured(path, target, **options):
    written = export(jobs.find([str(path)]).files, target, **options)
    assert written.notes == ()
    return ChromeTrace(target)


@pytest.fixture(scope="module")
def job(run_ranks, tmp_path_factory):
    """Returns the folder of a job of two ranks that has run once before."""
    folder = tmp_path_factory.mktemp("job")
    return run_ranks(folder, SCRIPT.replace("ROUNDS", "3"), (0, 1, 0))


@pytest.fixture
def files(job):
    """Returns the records of the last run, of rank 0 and 1."""
    _, one, last = sorted(jobs.find([str(job)]).files, key=jobs.started)
    return last, one


@pytest.fixture(scope="module")
def target(job, tmp_path_factory):
    return tmp_path_factory.mktemp("out") / "job.json.gz"


@pytest.fixture(scope="module")
def picture(job, target):
    return pictured(job, target)


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
    assert work[0]["args"]["at"].endswith("script.py:23")


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
    first, later = sorted(picture.of("X", "step 0"), key=lambda event: event["ts"])
    second = min(picture.of("X", "step 1"), key=lambda event: event["ts"])
    assert first["ts"] + first["dur"] == pytest.approx(second["ts"], abs=0.01)
    assert (first["pid"], later["pid"]) == (one, zero)
    assert later["ts"] > second["ts"]  # rank 0 started after rank 1 died
    assert len(picture.of("X", "data")) == 6
    assert len(picture.of("i", 'half "way"')) == 6
    assert len(picture.of("i", "step 1")) == 2


def test_a_section_whose_begin_is_lost_begins_with_the_oldest_mark(script, source):
    script.armed(source, '{"*": "off"}')
    picture = pictured(script.folder / "records", script.folder / "sections.json")
    (training,) = picture.of("X", "training")
    (lost,) = [event for event in picture.of("X", "data") if "cut" in event["args"]]
    inside = [event["ts"] for event in picture.of("i", "inside")]
    assert training["ts"] < min(inside) == lost["ts"]


def test_a_rank_that_waits_is_shown_until_now(script, waiting):
    time.sleep(0.2)
    picture = pictured(script.folder / "records", script.folder / "out.json")
    waiting.communicate("\n", timeout=PATIENCE.limit)
    (begin,) = picture.of("B", "waits")
    ends = [e["ts"] for e in picture.events if e["ph"] == "E" and "open" in e.get("args", {})]
    assert len(set(ends)) == 1
    assert ends[0] - begin["ts"] >= 0.2e6


@pytest.mark.needs("perfetto")
def test_perfetto_reads_it_without_an_error(picture, target):
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


def test_an_export_that_fails_leaves_nothing_and_says_why(files, tmp_path, golden):
    bad = tmp_path / "bad.trace"
    bad.write_bytes(b"x" * 5000)
    inputs = sorted(tmp_path.iterdir())
    pipe = tmp_path.parent / f"{tmp_path.name}.pipe"
    os.mkfifo(pipe)
    said = []
    for name, (sources, target) in {
        "no record": ([bad], tmp_path / "out.json.gz"),
        "no file": ([], tmp_path / "out.json.gz"),
        "no folder": (files, tmp_path / "nowhere" / "out.json.gz"),
        "a file as a folder": (files, bad / "out.json"),
        "a name that is too long": (files, tmp_path / ("x" * 250)),
        "a folder": (files, tmp_path),
        "a pipe": (files, pipe),
    }.items():
        with pytest.raises(OddrankError) as error:
            export(sources, target)
        said.append(plain(f"{name}: {error.value}", pipe=pipe, tmp=tmp_path))
    golden("\n".join(said))
    assert sorted(tmp_path.iterdir()) == inputs


def test_a_record_of_another_boot_whose_clock_was_seen_once_is_left_out_and_told(script):
    script.armed("\nos._exit(0)\n")
    (file,) = script.files
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


def test_a_link_stays_one_and_what_was_there_becomes_plain_text_with_lines_if_asked_for(
    job, tmp_path
):
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    assert pictured(job, link, lines=True).of("i", "script.py:24")
    assert link.is_symlink()


def test_ranks_of_two_hosts_with_the_same_pid_stay_apart(files, tmp_path):
    target = tmp_path / "twice.json"
    export([files[0], files[0]], target)
    assert len({e["pid"] for e in ChromeTrace(target).events}) == 2


def test_earlier_runs_of_a_rank_are_left_out(job, tmp_path):
    written = export(jobs.find([str(job)]).files, tmp_path / "out.json")
    assert (written.processes, written.earlier) == (2, 1)


def test_the_window_of_a_rank_that_never_rests_is_not_empty(script):
    """The rank fills its ring between the reads of its stack and of its events."""
    source = """
        oddrank.arm()
        def works(n):
            while n:
                n = n + 1
        print("works", flush=True)
        works(1)
    """
    with script.running(source, ODDRANK_TRACE_MB="0.125"):
        files, target = script.files, script.folder / "out.json"
        until(lambda: export(files, target, lines=True).events > 100)
        # The ring wraps in 50 us: how many reads succeed depends on the machine.
        for _ in range(3):
            until(lambda: export(files, target, lines=True).events > 100)
