"""`oddrank trace where, tail, export`: which records are shown, in which order and words."""

import dataclasses
import json
import os
import re
import shutil
import struct
import sys
import time

import pytest

from chrome_trace import ChromeTrace
from collect.collecting import KILLED, collect
from oddrank.trace import jobs, tail
from oddrank.trace.collectives import Collective
from oddrank.trace.ranks import (
    End,
    Frame,
    Rank,
    Seen,
    Thread,
    last_run,
    read,
    runs_back,
    state_words,
    with_end,
)
from oddrank.trace.where import groups, text
from patience import until
from processes import captured
from reports import valid
from texts import texts
from trace_command import oddrank, plain, transcript

NOW = 1_700_000_000.0
AT_61 = (Frame("<module>", "/x/train.py", 88), Frame("train", "/x/train.py", 61))
AT_17 = (Frame("<module>", "/x/train.py", 88), Frame("Data.next", "/x/data.py", 17))


def thread(stack=AT_61, *, tid, name="MainThread", **others):
    others = {"hidden": 0, "ended": False, "last": NOW - 5} | others
    return Thread(tid=tid, name=name, stack=stack, **others)


def reduces(sequence, **others):
    begin = round((NOW - 81) * 1e9)
    made = Collective(0, "0", sequence, "allreduce_", 4 << 20, "open", begin, None)
    return (made._replace(number=sequence, **others),)


def rank(number, stack=AT_61, *, step=42, collectives=(), threads=(), main=(), **others):
    # Issued by the main thread, if nothing else is said.
    collectives = tuple(c._replace(thread=c.thread or 100 + number) for c in collectives)
    made = Rank(
        rank=number, host="node1", pid=100 + number, started=1000, world=4, is_child=False,
        alive=True, step=step, last=NOW - 5, collectives=collectives, sections=(),
        threads=(thread(stack, tid=100 + number, **dict(main)), *threads),
    )  # fmt: skip
    return dataclasses.replace(made, **others)


def loader(number, stack):
    return rank(number, threads=(thread(stack, tid=7 + number, name="loader"),))


@pytest.mark.parametrize(
    ("wchan", "cpu", "words"),
    [
        ("futex_wait_queue", 0.02, "asleep in futex_wait_queue"),
        ("futex_wait_queue", 0.03, "running"),
        ("hrtimer_nanosleep", 0.03, "asleep in hrtimer_nanosleep"),
    ],
)
def test_a_thread_that_computes_and_waits_for_the_gil_runs(wchan, cpu, words):
    assert state_words("S", wchan, cpu) == words


# Ranks, options, and the groups in the order in which they are shown.
GROUPS = {
    "the least progress comes first": (
        [rank(0), rank(1), rank(2, AT_17, step=41), rank(3)], {}, [[2], [0, 1, 3]]),
    "a stopped rank is not one more that sleeps": (
        [rank(i, main={"state": how}) for i, how in enumerate(("asleep", "stopped", "running"))],
        {}, [[1], [0, 2]]),
    "within a step the collective decides": (
        [rank(0, collectives=reduces(7)), rank(1, collectives=reduces(6))], {}, [[1], [0]]),
    "and then rarity": ([rank(0), rank(1), rank(2, AT_17)], {}, [[2], [0, 1]]),
    "dead and alive are two": ([rank(0), rank(1, alive=False)], {}, [[0], [1]]),
    "another line of a side thread does not matter": (
        [loader(0, AT_17), loader(1, AT_61)], {}, [[0, 1]]),
    "except where all threads are shown": (
        [loader(0, AT_17), loader(1, AT_61)], {"all_threads": True}, [[0], [1]]),
}  # fmt: skip


def test_ranks_with_the_same_stack_are_folded_and_the_most_interesting_come_first():
    for name, (ranks, options, expected) in GROUPS.items():
        assert [[r.rank for r in g] for g in groups(ranks, **options)] == expected, name


FIRST = [rank(i, alive=False, started=100, runs_back=2) for i in range(2)]
SECOND = [rank(i, alive=False, started=200, runs_back=1, step=9) for i in range(2)]
ASLEEP = {"state": "asleep", "cpu": 0.0}
ENDS = (
    End("exited", 0), End("exited", 3), End("exited", 1, "ValueError"), End("no word"),
    End("ending"), End("ending", None, "KeyboardInterrupt"),
)  # fmt: skip
SCENES = {
    "a hang": [
        *(rank(i, collectives=reduces(127), main=ASLEEP) for i in (0, 1, 3)),
        rank(2, AT_17, step=41),
    ],
    "a dead rank waits no longer": [rank(0, collectives=reduces(3), alive=False)],
    "children outlive their ranks": [
        rank(0, alive=False), rank(0, is_child=True), rank(0, is_child=True)
    ],
    "a thread that waits in a collective": [
        rank(0, threads=(thread(AT_17, tid=7, name="autograd"),), collectives=reduces(7, thread=7))
    ],
    "ranks without a record, and what is not shown": [
        rank(0), rank(1, threads=(thread(tid=9),)), rank(1, is_child=True)
    ],
    "ends": [
        *(rank(i, alive=False, end=end, world=7) for i, end in enumerate(ENDS)),
        rank(6, end=End("ending", None, "ValueError"), world=7),
    ],
    "a stack without its middle": [rank(0, main={"hidden": 12})],
    "a world that only a broken file can mean": [rank(0, world=2**31 - 1), rank(7)],
}  # fmt: skip


def test_what_where_says(golden):
    said = {name: "\n".join(text(ranks, "j", now=NOW)) for name, ranks in SCENES.items()}
    shown = "\n".join(f"==== {name}\n{lines}\n" for name, lines in said.items())
    golden(re.sub(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d", "TIME", shown))


def test_the_dead_of_earlier_runs_are_not_shown_but_those_of_the_last_one_are():
    before = [rank(i, alive=False, started=100) for i in range(2)]
    now = [rank(0), rank(1, alive=False)]
    worker = rank(1, is_child=True, alive=False, started=2000)
    assert last_run([*before, *now, worker]) == [*now, worker]
    assert last_run(before) == before
    worker = rank(1, is_child=True, alive=False, started=250, runs_back=1)
    now = [rank(0), rank(1)]
    assert runs_back([*now, worker, *FIRST, *SECOND]) == [0, 0, 1, 2, 2, 1, 1]


@pytest.fixture(scope="module")
def two_jobs(run_ranks, tmp_path_factory):
    """Returns the base folder of two jobs: one with both ranks, a later one with rank 1 only."""
    folder = tmp_path_factory.mktemp("jobs")
    run_ranks(folder, KILLED)
    run_ranks(folder, KILLED, [1], port=29600)
    return folder / "records"


@pytest.fixture
def bad(dead_job, tmp_path):
    """Returns a folder of files that cannot be read, and a record of a dead rank."""
    zero, one = jobs.find([str(dead_job / "records")]).files
    record = bytearray(one.read_bytes())
    (tmp_path / "good.trace").write_bytes(zero.read_bytes())
    (tmp_path / "cut.trace").write_bytes(record[:100_000])
    (tmp_path / "none.trace").write_bytes(b"x" * 5000)
    magic, version = struct.unpack_from("<8sI", record)
    assert magic == b"oddrank\n"
    for name, other in (("older", version - 1), ("newer", version + 1)):
        struct.pack_into("<I", record, 8, other)
        (tmp_path / f"{name}.trace").write_bytes(record)
    return tmp_path


def test_of_the_newest_job_its_records_are_shown_after_its_death(
    dead_job, tmp_path, golden, source
):
    job = dead_job / "records" / "127.0.0.1_29500"
    golden(transcript(source, folder=dead_job / "records", cwd=dead_job, job=job, tmp=tmp_path))
    assert [file.name for file in tmp_path.iterdir()] == ["out.json.gz"]


def test_each_file_that_is_no_record_of_this_version_is_one_line(
    bad, dead_job, golden, source, monkeypatch
):
    # An ODDRANK_DIR means no other folder.
    (bad / f"oddrank-{os.geteuid()}").symlink_to(dead_job / "records")
    monkeypatch.setenv("TMPDIR", str(bad))
    golden(transcript(source, folder=bad / "nowhere", cwd=dead_job, bad=bad))
    assert not (bad / "out.json").exists()
    assert ChromeTrace(bad / "some.json").of("B", "work")


def test_the_newest_of_several_jobs_is_shown_hides_no_other_and_none_are_summed(
    two_jobs, tmp_path, golden, source
):
    golden(transcript(source, folder=two_jobs, cwd=two_jobs.parent, jobs=two_jobs, tmp=tmp_path))
    assert [file.name for file in tmp_path.iterdir()] == ["out.json"]
    for choice, job in ([], "127.0.0.1_29600"), (["127.0.0.1_295"], "127.0.0.1_29500"):
        done = oddrank("where", *choice, folder=two_jobs)
        assert done.stdout.startswith(f"job {job}: ")
        assert ("also here: oddrank trace where 127.0.0.1_29500" in done.stderr) == (not choice)


APART = [
    "job 127.0.0.1_29500: 2 of 2 ranks, 0 alive",
    "job 127.0.0.1_29600: 1 of 2 ranks, 0 alive; no record here of 0",
]


def headings(done):
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("job ")]


def test_jobs_that_were_collected_into_one_folder_stay_apart_and_are_read_as_they_were(
    two_jobs, tmp_path
):
    for name in ("127.0.0.1_29500", "127.0.0.1_29600"):
        done = collect("-o", tmp_path, two_jobs / name, records=two_jobs)
        assert done.returncode == 0, done.stderr

    def said(*arguments):
        return oddrank(*arguments, folder=tmp_path / "none", cwd=two_jobs.parent)

    attempts = tmp_path / "attempts"  # as run -o keeps them: START/JOB/HOST
    shutil.copytree(tmp_path / name, attempts / "2026-11-30T105430-3340" / name)
    assert headings(said("where", attempts)) == APART[1:]
    both = said("where", tmp_path / "127.0.0.1_29500")
    assert "ranks 0-1 (" in both.stdout
    one = said("where", tmp_path / "127.0.0.1_29500", 1)
    assert ("rank 1 (" in one.stdout, "rank 0 (" in one.stdout) == (True, False)
    none = said("where", tmp_path / name, 7)
    missing = "oddrank: no record of rank 7 in what is named before\n"
    assert (none.returncode, none.stderr) == (2, missing)
    several = said("where", tmp_path / "127.0.0.1_29500", 0, 7, tmp_path / "127.0.0.1_29600")
    assert several.stderr == missing
    assert ("rank 0 (" in several.stdout, several.stdout.count("\nrank")) == (True, 2)
    assert said("where", tmp_path / "typo", 0).returncode == 2
    shutil.rmtree(attempts)
    where = said("where", tmp_path)
    assert headings(where) == APART
    assert "not shown" not in where.stdout
    assert "\n    script.py:7  work\n" in where.stdout
    assert headings(said("where", tmp_path / name)) == APART[1:]
    out = tmp_path / "out.json"
    assert f" of 1 processes of job {name} to " in said("export", "-o", out, tmp_path / name).stdout


def test_jobs_whose_records_an_older_version_has_mixed_are_told_apart_by_what_they_say(
    two_jobs, tmp_path
):
    (tmp_path / "host").mkdir()
    for file in two_jobs.glob("*/*.trace"):
        shutil.copy(file, tmp_path / "host")
    done = oddrank("where", "--json", "-", tmp_path, folder=tmp_path)
    ranks = [(rank["job"], rank["rank"]) for rank in json.loads(done.stdout)["data"]["ranks"]]
    one, other = "127.0.0.1_29500", "127.0.0.1_29600"
    assert sorted(ranks) == [(one, 0), (one, 1), (other, 1)]
    assert headings(oddrank("where", tmp_path, folder=tmp_path)) == APART


def test_a_dead_job_of_fewer_ranks_is_not_worth_a_line(run_ranks, tmp_path):
    run_ranks(tmp_path, KILLED, [1], port=29600)
    run_ranks(tmp_path, KILLED)
    done = oddrank("where", folder=tmp_path / "records")
    assert (headings(done), done.stderr) == (APART[:1], "")


def test_a_number_is_a_rank_first_and_then_a_job(run_ranks, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "4711")
    run_ranks(tmp_path, KILLED, [0])
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    run_ranks(tmp_path, KILLED)
    records = tmp_path / "records"
    assert oddrank("where", "4711", folder=records).stdout.startswith("job 4711: 1 of 2 ranks")
    assert "\nrank 1 (" in oddrank("where", "1", folder=records).stdout
    assert oddrank("where", "47", folder=records).returncode == 2


def test_a_jobs_folder_with_a_bracket_in_its_name_is_told_whole(two_jobs, tmp_path):
    shutil.copytree(two_jobs / "127.0.0.1_29500", tmp_path / "old (night) run")
    shutil.copytree(two_jobs / "127.0.0.1_29600", tmp_path / "new")
    for file in (tmp_path / "new").iterdir():
        os.utime(file)
    done = oddrank("where", folder=tmp_path)
    assert "also here: oddrank trace where 'old (night) run'" in done.stderr


# Looks into the current folder as another user, who may not even read this Python.
AS_ANOTHER = texts(__file__)["as another"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_records_of_another_user_are_said_to_be_closed_not_to_be_missing(
    two_jobs, tmp_path, golden
):
    base = shutil.copytree(two_jobs, tmp_path / "records")
    base.chmod(0o755)
    (base / "127.0.0.1_29600").chmod(0o700)
    said = []
    for mode, paths in (
        (0o755, "."), (0o700, "."), (0o700, "127.0.0.1_29500"), (0o700, "127.0.0.1_29500/any"),
    ):  # fmt: skip
        (base / "127.0.0.1_29500").chmod(mode)
        for file in base.glob("*/*"):
            file.chmod(0o644)
        done = captured(
            [sys.executable, "-c", AS_ANOTHER], cwd=base, PATHS=paths, ODDRANK_DIR="/none",
        )  # fmt: skip
        said.append(f"$ where {paths}\n{done.stdout}! {done.stderr}exit code {done.returncode}\n")
    golden(plain("\n".join(said), folder=two_jobs.parent))


def test_children_stand_for_a_rank_that_has_no_record_itself(script, source):
    script.armed(source)
    records = script.folder / "records"
    next(records.glob("*/rank0-*")).unlink()
    for command in ("where", "tail"):
        done = oddrank(command, "0", folder=records)
        assert done.returncode == 2
        assert "child" in done.stdout
        assert "has no record of rank 0 here, only 1 of its child processes" in done.stderr
    done = oddrank("where", folder=records)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 child process of rank 0 (" in done.stdout


def test_the_newest_job_is_the_living_one_that_began_last(script):
    """The file's time does not count: a record on a disk is written to all the time."""
    records = script.folder / "records"
    source = "\noddrank.arm()\nprint('armed', flush=True)\ninput()\n"
    with (
        script.running(source, ODDRANK_JOB="first"),
        script.running(source, ODDRANK_JOB="second"),
    ):
        (older,) = records.glob("first/*.trace")
        os.utime(older, (time.time() + 60, time.time() + 60))
        until(lambda: len(read([*records.glob("*/*.trace")])[0]) == 2)
        assert oddrank("where", folder=records).stdout.startswith("job second: ")
        several = oddrank("where", records, folder=records)
    expected = ["job first: 1 of 1 ranks, 1 alive", "job second: 1 of 1 ranks, 1 alive"]
    assert headings(several) == expected


def test_tail_says_times_to_the_microsecond_and_what_a_gap_is(dead_job):
    done = oddrank("tail", "0", folder=dead_job / "records")
    lines = done.stdout.splitlines()
    times = [line.split(" ", 1)[0] for line in lines]
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d\.\d{6}", each) for each in times)
    assert len(set(times)) > 1
    assert times == sorted(times)
    assert lines[0].endswith(" --- earlier events were not recorded")


def test_tail_shows_no_source_of_a_file_that_has_changed(script):
    script.armed("\nos._exit(0)\n")
    file = script.folder / "script.py"
    before = file.stat().st_mtime
    file.write_text(file.read_text() + "\n")
    os.utime(file, (before, before))  # as a copy of another version may have it
    assert next(iter(tail.text(script.files[0], 1, source=True))).endswith("(the file has changed)")


def test_tail_shows_lines_of_code_whose_file_is_no_possible_path(script, source):
    script(source)
    done = oddrank("tail", "--source", script.files[0], folder=script.folder)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    for i in range(7):
        at = [line.endswith(f"=== that was {i}") for line in lines].index(True)
        shown = [line for line in lines[at - 4 : at] if line.endswith(": (no such file here)")]
        assert shown, lines[at - 4 : at + 1]


def test_what_where_writes_with_json_fits_the_schema(dead_job):
    done = oddrank("where", "--json", "-", folder=dead_job / "records", cwd=dead_job)
    assert done.returncode == 0, done.stderr
    report = valid(done.stdout)
    assert report["tool"] == "trace where"
    first, second = report["data"]["ranks"]
    assert (first["rank"], second["rank"]) == (0, 1)
    assert (first["alive"], first["step"], first["collective"]) == (False, 5, None)
    # The ranks ran one after the other.
    script = dead_job / "script.py"
    assert script.stat().st_mtime < first["time"] < second["time"] < time.time()
    (thread,) = first["threads"]
    assert (thread["name"], thread["tid"]) == ("MainThread", first["pid"])
    assert thread["stack"][-1] == {"function": "work", "file": str(script), "line": 7}


def test_several_nodes_do_not_write_one_file(two_jobs, tmp_path, monkeypatch):
    for name, value in {
        "RANK": "2", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    out = tmp_path / "out.json"
    for command in (["export", "-o", out], ["where", "--json", out]):
        done = oddrank(*command, folder=two_jobs)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"each of 2 nodes would write {out}: " in done.stderr
    assert not out.exists()
    assert oddrank("where", "--json", "-", folder=two_jobs).returncode == 0


@pytest.mark.parametrize(
    ("letter", "status", "state", "signal", "code"),
    [
        ("Z", 0, "zombie", None, 0),
        ("Z", 3 << 8, "zombie", None, 3),
        ("Z", 9, "zombie", 9, None),
        ("Z", -1, "zombie", None, None),  # who may not ask is not told how it ended
        ("", 9, "dead", None, None),
        ("D", 0, "running", None, None),  # its main thread was seen elsewhere: for a moment
        ("T", 0, "stopped", None, None),
    ],
)
def test_the_state_of_a_process_and_its_end_if_its_parent_has_not_asked(
    letter, status, state, signal, code
):
    seen = with_end(Seen(0, "node1", 100, 1000, "dead", NOW), letter, status)
    assert (seen.state, seen.signal, seen.code) == (state, signal, code)
