"""Facts of several jobs are told apart by the times of their ends, and each job is judged alone."""

import json

import pytest

from oddrank.inputs import Notes, files, unix_time
from oddrank.triage import apart
from oddrank.triage.facts import Counts, Death, Group, Process, Progress, Source, Trouble
from oddrank.triage.report import made
from triage.facts_of import judged
from triage.flight_dumps import dump, entry, write
from triage.told import told

DAY = 86400.0
NOW = 1_790_000_000.0
LATER = NOW + 3 * DAY


def died(rank, time, file="a.log", line=1):
    return Death(Process(rank), "signal", Source(file, line), time, signal=9)


def jobs(*facts):
    return [(job.time, [facts.index(fact) for fact in job.facts]) for job in apart.jobs(facts)]


def test_facts_belong_to_the_job_that_ended_next_to_them():
    late = Progress(Process(1), Group("0"), Source("b.log", 2), time=LATER, timed_out=True)
    unknown = Death(Process(2), "exit", Source("b.log", 9))
    fault = Trouble("xid", "Xid 79", Source("dmesg"), time=NOW)
    counts = Counts("c", "all_reduce", ((0, 7),), Source("ras"))
    for name, facts, expected in (
        ("ends within a day", [died(0, NOW), died(1, NOW + DAY / 2), died(2, NOW + DAY),
                               died(3, None)], [(NOW, [0, 1, 2, 3])]),
        ("ends days apart, the newest first", [died(0, NOW), late, unknown],
         [(LATER, [1, 2]), (NOW, [0])]),
        ("lines without times in a file of several jobs",
         [died(0, NOW), died(0, LATER, line=5), died(4, None, line=7)],
         [(LATER, [1]), (NOW, [0]), (None, [2])]),
        ("faults and files without ends", [died(0, NOW), died(0, LATER, "b.log"), fault, counts],
         [(LATER, [1, 2, 3]), (NOW, [0])]),
    ):  # fmt: skip
        assert jobs(*facts) == expected, name


def test_the_report_says_of_which_job_each_verdict_is(tmp_path, golden):
    for name, day, rank in (("old", "19", 3), ("new", "25", 5)):
        (tmp_path / f"{name}.log").write_text(
            f"[rank{rank}]: 2026-04-{day} 10:42:28.858 Traceback (most recent call last):\n"
            f'[rank{rank}]:   File "train.py", line 9, in main\n'
            f"[rank{rank}]: ValueError: boom\n"
            f"E04{day} 10:42:29.0 1 torch/distributed/elastic/multiprocessing/api.py:1] failed"
            f" (exitcode: 1) local_rank: {rank} (pid: 7{rank}) of binary: python\n"
        )
    found = judged(tmp_path)
    assert [s.processes[0].rank for s in found.suspects] == [5, 3]
    golden(told(found.suspects, found.folder).replace(found.folder, ""))
    for finding, day in zip(made(found).findings, ("25", "19"), strict=True):
        assert finding.next
        assert all(f"  [for the job that ended about {day} Apr" in step for step in finding.next)


def test_a_time_that_no_clock_shows_is_none():
    odd = ("NaN", "inf", "1e30", -1, 10**400, None, [], "soon")
    assert [unix_time(value) for value in odd] == [None] * len(odd)
    assert [unix_time(value) for value in ("1700000000", 1.5)] == [1.7e9, 1.5]


@pytest.mark.parametrize("odd", ["NaN", "1e30", "-Infinity"])
def test_ends_with_impossible_times_are_ends_without_times(tmp_path, odd):
    for rank, stamp in enumerate(["1700000000", odd, "1700000001"]):
        folder = tmp_path / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        extra = {"py_callstack": "", "timestamp": stamp}
        error = {"message": {"message": "ValueError: boom", "extraInfo": extra}}
        (folder / "error.json").write_text(json.dumps(error))
    (tmp_path / "journal").write_text(
        f'{{"__REALTIME_TIMESTAMP":"{odd}","SYSLOG_IDENTIFIER":"kernel",'
        '"MESSAGE":"Out of memory: Killed process 512 (python) total-vm:1kB, anon-rss:1kB"}\n'
    )
    found = judged(tmp_path)
    assert (found.jobs, len(found.view.deaths)) == (1, 4)


def dumped(folder, seqs, first=0, **more):
    """Writes a dump a rank from `first` on: how far each one has come in all_reduce."""
    folder.mkdir(parents=True)
    for rank, seq in enumerate(seqs, first):
        entries = [entry("all_reduce", one, **more) for one in range(1, seq + 1)]
        entries.append(entry("all_reduce", seq + 1, state="started", **more))
        write(folder / f"_dump_{rank}", dump(*entries))


def kept_apart(root):
    with files.opened([str(root)], Notes()) as items:
        return [(name, len(own)) for name, own in apart.by_folder(items)]


def test_folders_with_dumps_of_the_same_ranks_are_judged_alone(tmp_path, golden):
    dumped(tmp_path / "monday", [5, 5, 3, 5])
    dumped(tmp_path / "tuesday", [9, 7, 9, 9])
    (tmp_path / "notes.txt").write_text("both hung")
    assert sorted(kept_apart(tmp_path)) == [("monday", 4), ("tuesday", 5)]
    found = judged(tmp_path)
    assert (found.jobs, found.read["flight_recorder"][0]) == (2, 8)
    assert sorted(p.rank for s in found.suspects for p in s.processes) == [1, 2]
    golden(told(found.suspects, found.folder))


def test_folders_of_nodes_and_one_folder_stay_together(tmp_path):
    one = dump(entry("all_reduce", 1))
    for name, write_more in {
        "nodes": lambda b: [write(b / f"_dump_{rank}", one) for rank in range(4, 8)],
        "half": lambda b: dumped(b / "more", [9, 7, 9, 9], first=2),
        "partly": lambda b: [write(b / f"_dump_{rank}", one) for rank in (0, 5, 6, 7)],
        "one": lambda b: None,
    }.items():
        dumped(tmp_path / name / "a", [5, 5, 3, 5])
        (tmp_path / name / "b").mkdir()
        write_more(tmp_path / name / "b")
        assert [found for found, _ in kept_apart(tmp_path / name)] == [""], name


@pytest.mark.parametrize("other", [{"backend": "gloo"}, {"group": "1", "desc": "data"}])
def test_folders_with_dumps_of_other_groups_of_the_same_ranks_stay_together(tmp_path, other):
    dumped(tmp_path / "nccl", [5, 5, 5, 3])
    dumped(tmp_path / "other", [9, 9, 9, 9], **other)
    assert kept_apart(tmp_path) == [("", 8)]


@pytest.mark.needs("samples")
def test_two_incidents_of_the_samples_have_a_cause_each(samples):
    found = judged(samples / "fr_dumps_nvrx")
    assert {suspect.cause.name for suspect in found.suspects} == {"not-entered", "gpu-stopped"}
