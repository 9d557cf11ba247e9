"""Facts of several jobs are told apart by the times of their ends, and each job is judged alone."""

import pytest

from oddrank.triage import apart, folders, report
from oddrank.triage.evidence import Notes, files, unix_time
from oddrank.triage.facts import Counts, Death, Group, Process, Progress, Source, Trouble
from triage.flight_dumps import dump, entry, write

DAY = 86400.0
NOW = 1_790_000_000.0


def died(rank, time, file="a.log", line=1):
    return Death(Process(rank), "signal", Source(file, line), time, signal=9)


def told(*facts):
    return [(job.time, [facts.index(fact) for fact in job.facts]) for job in apart.jobs(facts)]


def test_ends_within_a_day_are_of_one_job():
    facts = (died(0, NOW), died(1, NOW + DAY / 2), died(2, NOW + DAY), died(3, None))
    assert told(*facts) == [(NOW, [0, 1, 2, 3])]


def test_ends_days_apart_are_of_several_jobs_the_newest_first():
    late = Progress(Process(1), Group("0"), Source("b.log", 2), time=NOW + 3 * DAY, timed_out=True)
    unknown = Death(Process(2), "exit", Source("b.log", 9))
    assert told(died(0, NOW), late, unknown) == [(NOW + 3 * DAY, [1, 2]), (NOW, [0])]


def test_lines_without_times_in_a_file_of_several_jobs_are_of_none_of_them():
    facts = (died(0, NOW), died(0, NOW + 3 * DAY, line=5), died(4, None, line=7))
    assert told(*facts) == [(NOW + 3 * DAY, [1]), (NOW, [0]), (None, [2])]


def test_faults_and_files_without_ends_go_to_the_newest_job():
    fault = Trouble("xid", "Xid 79", Source("dmesg"), time=NOW)
    counts = Counts("c", "all_reduce", ((0, 7),), Source("ras"))
    facts = (died(0, NOW), died(0, NOW + 3 * DAY, "b.log"), fault, counts)
    assert told(*facts) == [(NOW + 3 * DAY, [1, 2, 3]), (NOW, [0])]


def test_the_report_says_of_which_job_each_verdict_is(tmp_path):
    for name, day, rank in (("old", "19", 3), ("new", "25", 5)):
        (tmp_path / f"{name}.log").write_text(
            f"[rank{rank}]: 2026-04-{day} 10:42:28.858 Traceback (most recent call last):\n"
            f'[rank{rank}]:   File "train.py", line 9, in main\n'
            f"[rank{rank}]: ValueError: boom\n"
            f"E04{day} 10:42:29.0 1 torch/distributed/elastic/multiprocessing/api.py:1] failed"
            f" (exitcode: 1) local_rank: {rank} (pid: 7{rank}) of binary: python\n"
        )
    notes = Notes()
    with files.opened([str(tmp_path)], notes) as items:
        found = report.judged(items, notes)
    assert [s.processes[0].rank for s in found.suspects] == [5, 3]
    words = [s.support[0].text for s in found.suspects]
    assert words[0].startswith("of 2 jobs that the files tell of, this is one that ended about 25")
    assert "old.log" in words[1]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("1700000000", 1.7e9), (1.5, 1.5), ("NaN", None), ("inf", None), ("1e30", None), (-1, None),
        (10**400, None), (None, None), ([], None), ("soon", None),
    ],
)  # fmt: skip
def test_a_time_that_no_clock_shows_is_none(value, read):
    assert unix_time(value) == read


@pytest.mark.parametrize("odd", ["NaN", "1e30", "-Infinity"])
def test_ends_with_impossible_times_are_ends_without_times(tmp_path, odd):
    for rank, stamp in enumerate(["1700000000", odd, "1700000001"]):
        folder = tmp_path / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "error.json").write_text(
            '{"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": "", '
            f'"timestamp": "{stamp}"}}}}}}'
        )
    (tmp_path / "journal").write_text(
        f'{{"__REALTIME_TIMESTAMP":"{odd}","SYSLOG_IDENTIFIER":"kernel",'
        '"MESSAGE":"Out of memory: Killed process 512 (python) total-vm:1kB, anon-rss:1kB"}\n'
    )
    notes = Notes()
    with files.opened([str(tmp_path)], notes) as items:
        found = report.judged(items, notes)
    assert found.jobs == 1
    assert len(found.view.deaths) == 4


def dumped(folder, seqs, **more):
    """Writes a dump a rank: how far each one has come in all_reduce."""
    folder.mkdir(parents=True)
    for rank, seq in enumerate(seqs):
        entries = [entry("all_reduce", one) for one in range(1, seq + 1)]
        entries.append(entry("all_reduce", seq + 1, state="started"))
        write(folder / f"_dump_{rank}", dump(*entries, **more))


def kept_apart(root):
    with files.opened([str(root)], Notes()) as items:
        return [(name, len(own)) for name, own in folders.jobs(items)]


def test_folders_with_other_dumps_of_the_same_ranks_are_judged_alone(tmp_path):
    dumped(tmp_path / "monday", [5, 5, 3, 5])
    dumped(tmp_path / "tuesday", [9, 7, 9, 9])
    (tmp_path / "notes.txt").write_text("both hung")
    assert sorted(kept_apart(tmp_path)) == [("monday", 4), ("tuesday", 5)]
    with files.opened([str(tmp_path)], Notes()) as items:
        found = report.judged(items, Notes())
    assert found.jobs == 2
    told = {s.support[0].text.split()[-1]: [p.rank for p in s.processes] for s in found.suspects}
    assert told == {"monday/": [2], "tuesday/": [1]}
    assert found.read["flight_recorder"][0] == 8


def test_folders_of_nodes_copies_and_one_folder_stay_together(tmp_path):
    for name, write_more in {
        "nodes": lambda root: write(root / "b" / "_dump_4", dump(entry("all_reduce", 1))),
        "copies": lambda root: dumped(root / "b", [5, 5, 3, 5]),
        "hanging": lambda root: dumped(root / "b", [5, 5, 3, 5], version="2.9"),
        "partly": lambda root: write(root / "b" / "_dump_0", dump(entry("all_reduce", 1))),
        "one": lambda root: None,
    }.items():
        root = tmp_path / name
        dumped(root / "a", [5, 5, 3, 5])
        if name in ("nodes", "partly"):
            (root / "b").mkdir()
            for rank in range(5, 8):
                write(root / "b" / f"_dump_{rank}", dump(entry("all_reduce", 1)))
        write_more(root)
        assert [found for found, _ in kept_apart(root)] == [""], name


def test_a_group_that_goes_on_while_the_job_hangs_does_not_tear_two_looks_apart(tmp_path):
    for name, seq in {"a": 7, "b": 8}.items():
        (tmp_path / name).mkdir()
        for rank in range(4):
            hangs = [entry("all_reduce", 5), entry("all_reduce", 6, state="started")]
            goes_on = entry("all_gather", seq, group="1", desc="watch")
            write(tmp_path / name / f"_dump_{rank}", dump(*hangs, goes_on))
    assert [found for found, _ in kept_apart(tmp_path)] == [""]


@pytest.mark.needs("samples")
def test_two_incidents_of_the_samples_have_a_cause_each(samples):
    with files.opened([str(samples / "fr_dumps_nvrx")], Notes()) as items:
        found = report.judged(items, Notes())
    assert {suspect.cause for suspect in found.suspects} == {"not-entered", "gpu-stopped"}
