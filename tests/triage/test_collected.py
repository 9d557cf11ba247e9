"""What `oddrank collect` wrote beside the evidence becomes facts, and lowers no other evidence."""

import json

import pytest

from oddrank.inputs import Notes, files
from oddrank.triage import verdict
from oddrank.triage.evidence import collected
from oddrank.triage.facts import (
    Activity,
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
from triage.facts_of import facts_of, judged, noted, of_kind
from triage.told import check

SOURCE = Source("dmesg")
NODE = "node1"
RANK_0 = Process(0, NODE, 11)
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


def test_the_manifest_says_who_the_ranks_are_and_what_was_not_collected(tmp_path, golden):
    lack = {"source": "records", "what": "/nfs/x", "why": "no answer within 15 s", "absent": False}
    content = {**MANIFEST, "ended_by": "SIGTERM", "not_read": [lack, {**lack, "absent": True}]}
    found, notes = noted(collected.KIND, tmp_path / "file.json", json.dumps(content).encode())
    assert Span(NODE, 1000.0, Source("file.json")) in found
    assert [f.process for f in of_kind(found, Identity)] == [RANK_0, Process(1, NODE, 12)]
    assert [f.size for f in of_kind(found, World)] == [2]
    golden("\n".join(notes))


def killed(pid, time, **more):
    return Death(
        Process(None, NODE, pid), "oom", SOURCE, time, True, 9, by="kernel", text="oom", **more
    )


def in_kernel(pid):
    return State(Process(None, NODE, pid), "uninterruptible", SOURCE, 1500.0)


def test_what_others_say_of_the_hosts_processes_is_judged_as_far_as_it_is_the_jobs(
    tmp_path, golden
):
    span = [Span(NODE, 1000.0, SOURCE), Identity(RANK_0, SOURCE)]
    kill = facts_of(collected.KIND, written(tmp_path, cgroups(**{"memory.events": "oom_kill 1"})))
    silent = [Death(Process(n, NODE, 11 + n), "signal", SOURCE, signal=9) for n in range(2)]
    ended = Death(Process(1, NODE, 12), "signal", SOURCE, text="killed, crashed or os._exit()")
    trouble = Trouble("oom", "the kernel killed 1 process", SOURCE, NODE, code="cgroup")
    running = State(RANK_0, "running", SOURCE, 2000.0)
    later = Activity(RANK_0, SOURCE, last=502.0)
    well = Death(RANK_0, "exit", SOURCE, code=0)
    dead = ("dead", (0,), 2)
    check(golden, {
        "a rank inside the kernel":
            ([running, *facts_of(collected.KIND, written(tmp_path, PROCESS))],
             ("host-stuck", (1,), 1)),
        "the kernel killed an earlier process": ([*span, killed(99, 500.0)],),
        "the earlier one had the pid of a rank that was killed since":
            ([*span, silent[0], killed(11, 500.0)], dead),
        "and a rank with its pid was alive later": ([later, killed(11, 500.0)],),
        "and that rank ended well": ([well, killed(11, 500.0)],),
        "the kernel killed a process of another job": ([*span, killed(99, 1500.0)],),
        "a process of another job stands in the kernel": ([*span, in_kernel(99)],),
        "nothing is known of the job": ([killed(99, 1500.0)], ("dead", (None,), 1)),
        "nor which of those that the kernel killed was of it":
            ([killed(99, 1500.0), killed(98, 9500.0)], ("unknown", (), 0)),
        "the kernel killed a rank": ([*span, killed(11, 1500.0)], dead),
        "in a container the killed one is the silent rank":
            ([*span, Death(RANK_0, "signal", SOURCE), killed(4711, 1500.0)], dead),
        "a cgroup counts a kill, and one rank is silent": ([*kill, ended], ("dead", (1,), 2)),
        "and the job is larger": ([*kill, World(4, SOURCE), *silent[:1]], dead),
        "and two are silent": ([*kill, World(4, SOURCE), *silent], ("dead", (0, 1), 2)),
        "a cgroup counts a kill, and nobody is silent": ([trouble, Identity(RANK_0, SOURCE)],),
    }, lambda seen: verdict.suspects(view(ours(seen.facts))))  # fmt: skip


def test_what_a_rank_has_started_is_of_the_job_and_stays():
    span = [Span(NODE, 1000.0, SOURCE), Identity(RANK_0, SOURCE)]
    child = Child(Process(None, NODE, 77), RANK_0, SOURCE, "DataLoader worker")
    state = in_kernel(77)
    assert state not in ours([*span, state])
    assert state in ours([*span, child, state])


def test_a_log_without_a_zone_may_be_hours_off():
    span = [Span(NODE, 100_000.0, SOURCE), Identity(RANK_0, SOURCE)]
    unsure = killed(99, 90_000.0, wall=True)
    assert ours([*span, killed(99, 90_000.0), unsure]) == [*span, unsure]


def test_a_kill_of_last_week_in_the_kernel_s_log_makes_no_second_job(tmp_path):
    error = tmp_path / "torchelastic/rank1.error.json"
    error.parent.mkdir()
    extra = {"py_callstack": "", "timestamp": "1767225600"}
    error.write_text(json.dumps({"message": {"message": "ValueError: boom", "extraInfo": extra}}))
    (tmp_path / "kernel.log").write_text(
        f"2025-12-20T00:00:00.000000+00:00 {NODE} kernel: Out of memory: Killed process 99 (java)"
        " total-vm:1kB, anon-rss:1kB\n"
    )
    ranks_ = [{**rank, "since": 1767225000.0} for rank in MANIFEST["ranks"]]
    (tmp_path / "manifest.json").write_text(json.dumps({**MANIFEST, "ranks": ranks_}))
    found = judged(tmp_path)
    assert found.read["kernel log"][1] > 0
    assert found.jobs == 1
    assert [(s.cause.name, ranks(s.processes)) for s in found.suspects] == [("dead", (1,))]


def test_what_older_collections_say_of_the_environment_is_no_note(tmp_path):
    content = b'{"schema": "oddrank.environment/1", "NCCL_DEBUG": "INFO"}'
    assert noted(collected.KIND, tmp_path / "x", content) == ([], [])


@pytest.mark.parametrize("kind", ["collect", "process", "cgroups"])
def test_a_broken_file_is_a_note(tmp_path, kind):
    broken = [{}, {"ranks": 5}, {"cgroups": [{}]}, {"rank": "x"}]
    for content in (*broken, *([{**PROCESS, "state": "odd"}] if kind == "process" else [])):
        schema = {"schema": f"oddrank.{kind}/1"}
        text = json.dumps({**schema, **content, **schema})
        found, notes = noted(collected.KIND, tmp_path / "x", text.encode())
        assert not [fact for fact in found if not isinstance(fact, Identity)], content
        assert len(notes) == 1, content


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
