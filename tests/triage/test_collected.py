"""What `oddrank collect` wrote beside the evidence becomes facts, and lowers no other evidence."""

import dataclasses
import json

import pytest

from oddrank.triage import report, verdict
from oddrank.triage.evidence import Notes, collected, files
from oddrank.triage.facts import (
    Child,
    Death,
    Identity,
    Process,
    Source,
    Span,
    State,
    Trouble,
    World,
    ranks,
)
from oddrank.triage.view import ours, view
from triage.facts_of import facts_of, item_of

SOURCE = Source("dmesg")
NODE = "node1"
MANIFEST = {
    "schema": "oddrank.collect/1", "host": NODE, "ended_by": "", "not_read": [],
    "ranks": [{"rank": 0, "pid": 11, "world": 2, "since": 1000.0},
              {"rank": 1, "pid": 12, "world": 2, "since": 1001.0}],
}  # fmt: skip
PROCESS = {
    "schema": "oddrank.process/1", "host": NODE, "rank": 1, "pid": 12, "world": 2, "time": 2000.0,
    "state": "uninterruptible", "status": 0, "files": {"wchan": "request_wait_answer"},
}  # fmt: skip
CGROUP = {"path": "/sys/fs/cgroup/job", "ranks": [0], "files": {}}


def written(folder, content):
    path = folder / "file.json"
    path.write_text(json.dumps(content))
    return path


def cgroups(**files_):
    return {"schema": "oddrank.cgroups/1", "host": NODE, "cgroups": [{**CGROUP, "files": files_}]}


def suspects(*facts):
    return [
        (s.cause, ranks(s.processes), s.leaf_class) for s in verdict.suspects(view(ours(facts)))
    ]


def test_the_manifest_says_who_the_ranks_are_and_when_they_began(tmp_path):
    found = facts_of(collected.KIND, written(tmp_path, MANIFEST))
    assert Span(NODE, 1000.0, Source("file.json")) in found
    assert [f.process for f in found if isinstance(f, Identity)] == [
        Process(0, NODE, 11), Process(1, NODE, 12),
    ]  # fmt: skip
    assert [f.size for f in found if isinstance(f, World)] == [2]


def test_what_was_not_collected_becomes_a_note(tmp_path):
    lack = {"source": "records", "what": "/nfs/x", "why": "no answer within 15 s", "absent": False}
    content = {**MANIFEST, "ended_by": "SIGTERM", "not_read": [lack, {**lack, "absent": True}]}
    notes = Notes()
    list(collected.KIND.read([item_of(written(tmp_path, content))], notes))
    assert notes.lines == [
        "file.json: collecting was cut short by SIGTERM",
        "node1: /nfs/x: not collected: no answer within 15 s",
    ]


def test_a_rank_inside_the_kernel_is_named_with_where_it_is(tmp_path):
    found = facts_of(collected.KIND, written(tmp_path, PROCESS))
    other = State(Process(0, NODE, 11), "running", SOURCE, 2000.0)
    assert suspects(other, *found) == [("host-stuck", (1,), "disk")]


@pytest.mark.parametrize(
    ("files_", "count"),
    [
        ({"memory.events.local": "oom 1\noom_kill 0", "memory.events": "oom_kill 3"}, None),
        ({"memory.events": "low 0\noom 2\noom_kill 2\noom_group_kill 0"}, 2),
        ({"memory.oom_control": "oom_kill 1", "memory.limit_in_bytes": "1048576"}, 1),
        (
            {"memory.oom_control": "oom_kill 7", "memory.limit_in_bytes": str(1 << 62)},
            None,
        ),
    ],
)
def test_kills_of_a_cgroup_are_counted_once_and_not_those_of_the_machine(tmp_path, files_, count):
    found = facts_of(collected.KIND, written(tmp_path, cgroups(**files_)))
    assert [f.count for f in found] == ([] if count is None else [count])


def test_kills_of_a_cgroup_say_how_the_one_silent_rank_ended(tmp_path):
    kill = facts_of(collected.KIND, written(tmp_path, cgroups(**{"memory.events": "oom_kill 1"})))
    silent = Death(Process(1, NODE, 12), "signal", SOURCE, text="killed, crashed or os._exit()")
    (suspect,) = verdict.suspects(view(ours([*kill, silent])))
    assert (suspect.cause, ranks(suspect.processes), suspect.death.how) == ("dead", (1,), "oom")


def _killed(pid, time):
    return Death(Process(None, NODE, pid), "oom", SOURCE, time, True, 9, by="kernel", text="oom")


def test_the_kernel_s_log_of_the_host_blames_no_process_of_another_job(tmp_path):
    span = [Span(NODE, 1000.0, SOURCE), Identity(Process(0, NODE, 11), SOURCE)]
    assert suspects(*span, _killed(99, 500.0)) == []
    assert suspects(*span, _killed(99, 1500.0)) == []
    assert suspects(*span, State(Process(None, NODE, 99), "uninterruptible", SOURCE, 1500.0)) == []
    assert suspects(_killed(99, 1500.0)) == [("dead", (), "")]  # nothing else is known
    assert suspects(*span, _killed(11, 1500.0)) == [("dead", (0,), "")]


def test_in_a_container_the_kernel_s_kill_is_that_of_the_one_silent_rank():
    span = [Span(NODE, 1000.0, SOURCE), Identity(Process(0, NODE, 11), SOURCE)]
    silent = Death(Process(0, NODE, 11), "signal", SOURCE)
    (suspect,) = verdict.suspects(view(ours([*span, silent, _killed(4711, 1500.0)])))
    assert (ranks(suspect.processes), suspect.death.how) == ((0,), "oom")


def test_what_a_rank_has_started_is_of_the_job_and_stays(tmp_path):
    worker = Process(None, NODE, 77)
    span = [Span(NODE, 1000.0, SOURCE), Identity(Process(0, NODE, 11), SOURCE)]
    child = Child(worker, Process(0, NODE, 11), SOURCE, "DataLoader worker")
    state = State(worker, "uninterruptible", SOURCE, 1500.0)
    assert state not in ours([*span, state])
    assert state in ours([*span, child, state])


def test_a_log_without_a_zone_may_be_hours_off():
    span = [Span(NODE, 100_000.0, SOURCE), Identity(Process(0, NODE, 11), SOURCE)]
    killed = _killed(99, 90_000.0)
    unsure = dataclasses.replace(killed, wall=True)
    assert ours([*span, killed, unsure]) == [*span, unsure]


@pytest.mark.parametrize("count", [1, 2])
def test_kills_of_a_cgroup_are_those_of_one_silent_rank_only(tmp_path, count):
    kill = facts_of(collected.KIND, written(tmp_path, cgroups(**{"memory.events": "oom_kill 1"})))
    killed = [Death(Process(n, NODE, 11 + n), "signal", SOURCE, signal=9) for n in range(count)]
    found = verdict.suspects(view(ours([*kill, World(4, SOURCE), *killed])))
    assert [s.death.how for s in found] == ["oom" if count == 1 else "signal"]


def test_a_kill_of_last_week_in_the_kernel_s_log_makes_no_second_job(tmp_path):
    (tmp_path / "torchelastic").mkdir()
    (tmp_path / "torchelastic/rank1.error.json").write_text(
        '{"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": "",'
        ' "timestamp": "1767225600"}}}'
    )
    (tmp_path / "kernel.log").write_text(
        f"2025-12-20T00:00:00.000000+00:00 {NODE} kernel: Out of memory: Killed process 99 (java)"
        " total-vm:1kB, anon-rss:1kB\n"
    )
    ranks_ = [{**rank, "since": 1767225000.0} for rank in MANIFEST["ranks"]]
    (tmp_path / "manifest.json").write_text(json.dumps({**MANIFEST, "ranks": ranks_}))
    notes = Notes()
    with files.opened([str(tmp_path)], notes) as items:
        found = report.judged(items, notes)
    assert found.read["kernel log"][1] > 0
    assert found.jobs == 1
    assert [(s.cause, ranks(s.processes)) for s in found.suspects] == [("dead", (1,))]


@pytest.mark.parametrize("kind", ["collect", "process", "cgroups", "environment"])
@pytest.mark.parametrize("content", [{}, {"ranks": 5}, {"cgroups": [{}]}, {"rank": "x"}])
def test_a_broken_file_is_a_note(tmp_path, kind, content):
    path = written(tmp_path, {"schema": f"oddrank.{kind}/1", **content})
    notes = Notes()
    assert list(collected.KIND.read([item_of(path)], notes)) == []
    assert len(notes.lines) == (kind != "environment")


def test_an_archive_beside_the_folder_that_it_was_made_of_is_read_once(tmp_path):
    node = tmp_path / "job" / "node1"
    node.mkdir(parents=True)
    (node / "manifest.json").write_text(json.dumps(MANIFEST))
    for name in ("node1.tar.gz", "node2.tar.gz", "node1.txt"):
        (node.parent / name).write_text("x")
    notes = Notes()
    with files.opened([str(tmp_path)], notes) as items:
        names = [item.name.rpartition("/")[2] for item in items]
    assert sorted(names) == ["manifest.json", "node1.txt", "node2.tar.gz"]


def test_a_trouble_of_a_cgroup_names_nobody_by_itself():
    trouble = Trouble("oom", "the kernel killed 1 process", SOURCE, NODE, code="cgroup")
    assert suspects(trouble, Identity(Process(0, NODE, 11), SOURCE)) == []
