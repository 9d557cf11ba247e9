"""File systems that hang, fail or are slow: on some nodes, or everywhere."""

import errno
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dead_fuse import dead_file_system
from job import job
from made_up import causes_and_hosts, run_by_node
from oddrank import _native
from oddrank.selftest import Options
from oddrank.selftest.nodes import NodeLeaders
from oddrank.selftest.stages import file_system
from patience import until

STEPS = ("create", "write", "fsync", "read", "close", "unlink")


def hangs(through=0, waited=5.0, s=0.001):
    """Returns the result of a probe that hangs at fsync after `through` repeats of `s` per step."""
    return {
        "state": "hangs", "stopped_at": "fsync", "waited": waited,
        "seconds": {step: [s] * (through + (step in STEPS[:2])) for step in STEPS},
    }  # fmt: skip


HANGS = hangs()


def seen(path="/data", ms=10.0, **changes):
    return {
        "path": path, "asked": True, "mount": "nfs4 server:/export", "state": "",
        "stopped_at": "", "error": "", "left": "", "waited": 0.01,
        "seconds": {step: [ms / 6e3, ms / 3e3] for step in STEPS},
        **changes,
    }  # fmt: skip


def failed(state, error):
    return {"state": state, "stopped_at": "create", "error": error}


def judged(*changes, role="/data", path="/data"):
    """Returns the findings. changes: of each node."""
    measured = [{role: seen(path, **{"asked": role == path, **change})} for change in changes]
    return file_system.stage(Options()).conclude(run_by_node("file_system", measured))


def test_nodes_that_write_alike_have_no_finding():
    assert judged({}, {"ms": 40}, {"ms": 9}, {"ms": 2}) == []
    assert judged({}) == []


def test_the_node_on_which_it_hangs_is_named_with_the_step_and_what_others_took():
    (finding,) = judged({}, {}, HANGS, {})
    assert (finding.cause, finding.who.host, finding.who.ranks) == (
        "file-system-hangs", "node2", (4, 5),
    )  # fmt: skip
    assert finding.what == (
        "file system /data does not answer in time on node node2 (ranks 4-5): no answer to fsync"
        " within 5 s; 3 other nodes took 10 ms"
    )
    assert finding.evidence[1].text == "/data is nfs4 server:/export"


def test_of_a_slow_step_it_is_not_said_that_it_had_the_whole_time():
    (finding,) = judged({}, {}, hangs(s=1.5))
    assert "no answer to fsync within 2 s, 3 s after it began; 2 other nodes" in finding.what


@pytest.mark.parametrize("through", [1, 2])
def test_a_file_system_that_is_only_slow_does_not_hang(through):
    (finding,) = judged({}, {}, {}, hangs(through, s=0.4))
    assert (finding.condition, finding.cause, finding.who.host) == (
        "suspicious", "slow-file-system", "node3",
    )  # fmt: skip
    assert finding.evidence[0].value == pytest.approx(2.4)
    assert f"the best of {through}," in finding.evidence[0].text
    assert "2400 ms, on most nodes 10 ms" in finding.what


def test_what_is_slow_everywhere_or_not_by_much_has_no_finding():
    assert judged(*[hangs(1, s=0.4)] * 4) == []
    assert judged(*[{"ms": 600}] * 3, hangs(2, s=0.4)) == []


def test_what_answers_slowly_is_well_where_another_node_hangs():
    (finding,) = judged({}, hangs(1, s=0.01), HANGS)
    assert (finding.cause, finding.who.host) == ("file-system-hangs", "node2")
    assert "2 other nodes took 35 ms" in finding.what


def test_what_could_not_be_ended_is_told_with_the_place_in_the_kernel():
    left = {**HANGS, "left": "process 77 in D state, in rpc_wait_bit_killable"}
    (finding,) = judged({}, {}, left)
    assert "process 77 in D state, in rpc_wait_bit_killable" in finding.evidence[-1].text


@pytest.mark.parametrize("nodes", [1, 3, 8])
def test_where_it_hangs_everywhere_the_file_system_is_named_and_no_node(nodes):
    (finding,) = judged(*[HANGS] * nodes)
    assert (finding.who.kind, finding.who.ranks, finding.who.device) == ("file", (), "/data")
    assert finding.cause == "file-system-hangs"


def test_where_it_hangs_on_half_of_the_nodes_no_node_is_named():
    (finding,) = judged({}, {}, HANGS, HANGS)
    assert finding.who.kind == "file"
    assert "2 of 4 nodes (node2, node3)" in finding.what


def test_of_two_nodes_that_on_which_it_hangs_is_named_with_less_confidence():
    (finding,) = judged({}, HANGS)
    assert (finding.who.host, finding.confidence.level) == ("node1", "medium")


@pytest.mark.parametrize(
    ("state", "condition"),
    [
        ("missing", "different"),
        ("read-only", "different"),
        ("full", "broken"),
        ("broken", "broken"),
    ],
)
def test_what_fails_on_one_node_only_is_told_of_that_node(state, condition):
    (finding,) = judged({}, {}, failed(state, "why"))
    assert (finding.condition, finding.who.host) == (condition, "node2")
    assert "create: why" in finding.what


GONE = failed("missing", "No such file or directory")


@pytest.mark.parametrize(
    ("nodes", "where"),
    [
        ([GONE], "node node0 (ranks 0-1)"),
        ([GONE] * 3, "any node"),
        ([GONE, GONE, HANGS], "any of the nodes that answer"),
    ],
)
def test_a_path_that_no_node_has_is_asked_about_and_no_broken_file_system(nodes, where):
    finding = judged(*nodes)[0]
    assert (finding.condition, finding.cause) == ("unknown", "no-such-path")
    assert (finding.who.ranks, finding.who.device) == ((), "/data")
    assert finding.what == (f"/data does not exist on {where}: is it typed right, and mounted?")
    assert finding.next[0].startswith("findmnt -T /data; namei -l /data  (on node0")
    assert [e.text for e in finding.evidence] == ["create: No such file or directory"]


def test_a_path_that_some_node_has_is_missing_on_the_others():
    full = failed("full", "No space left on device")
    assert [f.cause for f in judged(GONE, GONE, {})] == ["path-missing"]
    assert [f.cause for f in judged(GONE, GONE, full)] == ["path-missing", "file-system-full"]


def test_a_missing_path_that_was_asked_for_is_told_and_a_usual_one_is_not():
    assert [f.who.kind for f in judged(GONE, GONE)] == ["file"]
    assert judged(GONE, GONE, role="home") == []
    assert causes_and_hosts(judged(GONE, {}, {}, role="home")) == [("path-missing", "node0")]


def test_a_long_path_that_was_asked_for_is_told_where_it_is_missing(tmp_path):
    """Only the path of the option counts as asked for; the usual ones do not."""
    path = f"{tmp_path}/{'long/' * 100}gone"
    context = SimpleNamespace(
        parameters={"ranks": NodeLeaders.among([0]).pack(), "paths": [path], "seconds": 20.0},
        launch=SimpleNamespace(rank=0, host="node0"),
        step=lambda text: None,
    )
    measured = file_system.stage(Options()).measure(context)
    assert [role for role, one in measured.items() if one["asked"]] == [path]
    assert len(measured[path]["path"]) == 300
    (finding,) = file_system.stage(Options()).conclude(run_by_node("file_system", [measured] * 2))
    assert (finding.cause, finding.who.device) == ("no-such-path", path[:300])


def test_a_path_that_others_are_busy_with_is_nobodys_fault():
    assert judged({}, {}, failed("busy", "File exists")) == []


def test_a_much_slower_node_is_suspicious():
    (finding,) = judged({}, {}, {}, {"ms": 400})
    assert (finding.condition, finding.who.host) == ("suspicious", "node3")
    assert (finding.evidence[0].value, finding.evidence[0].median) == (0.4, 0.01)


@pytest.mark.parametrize("ms", [(10, 10, 90), (50, 50, 400), (10, 400), (10, 400, 400)])
def test_what_is_not_ten_times_slower_or_not_felt_or_not_alone_is_not(ms):
    assert judged(*({"ms": one} for one in ms)) == []


def test_one_fast_repeat_is_enough():
    slow = seen(ms=4000)["seconds"]
    assert judged({}, {}, {"seconds": {step: [*slow[step], 0.001] for step in STEPS}}) == []


def test_ten_thousand_nodes_with_a_hundred_dead_mounts_name_those():
    assert len(judged(*(HANGS if node % 100 == 3 else {} for node in range(10_000)))) == 100


def probe(*folders, seconds=60.0, repeats=2, name=".oddrank-test-0"):
    return _native.core().probe_folders([str(folder) for folder in folders], name, seconds, repeats)


def test_a_folder_is_tried_and_nothing_is_left_in_it(tmp_path):
    (result,) = probe(tmp_path)
    assert (result["stopped_at"], result["hangs"], result["error"], result["left"]) == (
        "", False, 0, 0,
    )  # fmt: skip
    assert {step: len(seconds) for step, seconds in result["seconds"].items()} == dict.fromkeys(
        STEPS, 2
    )
    assert list(tmp_path.iterdir()) == []


def test_each_folder_says_its_own_error(tmp_path):
    (tmp_path / "file").touch()
    results = probe(tmp_path / "gone", tmp_path / "file", tmp_path, "/proc")
    assert [result["error"] for result in results] == [errno.ENOENT, errno.ENOTDIR, 0, errno.ENOENT]
    assert [result["stopped_at"] for result in results] == ["create", "create", "", "create"]


def test_what_a_killed_run_left_an_hour_ago_is_removed_and_what_is_in_use_is_not(tmp_path):
    name = ".oddrank-test-0"
    young, old = tmp_path / f"{name}-0", tmp_path / f"{name}-1"
    for file in (young, old):
        file.touch()
    os.utime(old, (time.time() - 4000,) * 2)
    assert probe(tmp_path, name=name)[0]["error"] == 0
    assert list(tmp_path.iterdir()) == [young]
    for slot in range(8):
        (tmp_path / f"{name}-{slot}").touch()
    assert probe(tmp_path, name=name)[0]["error"] == errno.EEXIST


@pytest.mark.needs("fuse")
@pytest.mark.parametrize("takes", [False, True], ids=["stopped", "taking and not answering"])
def test_a_dead_file_system_holds_nobody_up(tmp_path, takes):
    dead = tmp_path / "dead"
    dead.mkdir()
    # In memory: a disk may take too long for two fsyncs.
    in_memory = tempfile.TemporaryDirectory(prefix="oddrank-alive-", dir="/dev/shm")
    with dead_file_system(dead, takes=takes), in_memory as alive:
        began = time.monotonic()
        hung, well = probe(dead, alive, seconds=10.0)
        took = time.monotonic() - began
        assert (hung["hangs"], hung["stopped_at"]) == (True, "create")
        assert (well["hangs"], well["stopped_at"]) == (False, "")
        assert took < 60  # in this process it would be for ever
        if takes:
            assert hung["left"]
            assert file_system._left(hung["left"]).startswith(f"process {hung['left']} in D state")
            assert Path(f"/proc/{hung['left']}/fd").exists()
            open_files = [os.readlink(fd) for fd in Path(f"/proc/{hung['left']}/fd").iterdir()]
            assert all(name.startswith("pipe:") for name in open_files)
        elif hung["left"]:
            until(lambda: os.waitpid(hung["left"], os.WNOHANG)[0])
    if takes:
        os.waitpid(hung["left"], 0)


def test_a_killed_process_that_only_has_no_core_is_not_left():
    child = subprocess.Popen(["sleep", "60"])
    child.send_signal(signal.SIGSTOP)  # it may still be loading its program
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    assert file_system._left(child.pid) == ""
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert file_system._left(child.pid) == ""
    child.wait()
    assert file_system._left(child.pid) == ""


def test_a_path_that_is_a_pipe_is_told_to_be_no_folder(tmp_path):
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    context = SimpleNamespace(
        parameters={"ranks": NodeLeaders.among([0]).pack(), "paths": [path], "seconds": 20.0},
        launch=SimpleNamespace(rank=0, host="node0"),
        step=lambda text: None,
    )
    measured = file_system.stage(Options()).measure(context)
    (finding,) = file_system.stage(Options()).conclude(run_by_node("file_system", [measured]))
    assert finding.what.startswith(f"{path} is not a folder on ")


def test_a_child_that_is_killed_is_no_broken_file_system():
    result = {"stopped_at": "write", "hangs": False, "error": errno.ECANCELED}
    assert file_system._state(result) == "busy"


def test_the_usual_paths_are_read_without_asking_a_file_system(monkeypatch):
    monkeypatch.setenv("HOME", "/nowhere/home")
    monkeypatch.setenv("TMPDIR", "relative")
    found = file_system._usual()
    assert found["home"] == "/nowhere/home"
    assert found["temporary files"] == "/tmp"
    assert list(file_system._paths(["/tmp", "/data"])) == [
        "/tmp", "/data", "working directory", "home",
    ]  # fmt: skip
    monkeypatch.delenv("HOME")
    assert "home" not in file_system._usual()


@pytest.mark.needs("torch", "fuse")
@pytest.mark.smoke
def test_a_dead_file_system_under_a_job_is_named_and_the_job_ends(tmp_path):
    dead = tmp_path / "dead"
    dead.mkdir()
    only = ("selftest", "--quick", "--only", "file_system", "--path", str(dead))
    with dead_file_system(dead):
        verdict = job(2, deadline=90, command=only)
    assert verdict.causes == {"file-system-hangs"}, str(verdict)
    assert verdict.names(rank=[], stage="file_system")
    assert f"file system {dead} does not answer" in verdict.report["summary"]
    assert verdict.gone()
