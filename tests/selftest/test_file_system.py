"""File systems that hang, fail or are slow: on some nodes, or everywhere."""

import errno
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from dead_fuse import dead_file_system
from job import job
from made_up import context, run_by_node
from oddrank import _native
from oddrank.selftest import Options
from oddrank.selftest.nodes import pack_leaders
from oddrank.selftest.stages import file_system
from patience import PATIENCE, until
from selftest.said import check

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
        "path": path, "asked": True, "state": "",
        "stopped_at": "", "error": "", "left": "", "waited": 0.01,
        "seconds": {step: [ms / 6e3, ms / 3e3] for step in STEPS},
        **changes,
    }  # fmt: skip


def judged(*changes, role="/data", path="/data"):
    """Returns the findings. changes: of each node."""
    measured = [{role: seen(path, **{"asked": role == path, **change})} for change in changes]
    return file_system.stage(Options()).conclude(run_by_node("file_system", measured))


def ms(*times):
    return judged(*({"ms": one} for one in times))


def failed(state, error="why"):
    return {"state": state, "stopped_at": "create", "error": error}


GONE = failed("missing", "No such file or directory")
FULL = failed("full", "No space left on device")
FAST_ONCE = {step: [*seen(ms=4000)["seconds"][step], 0.001] for step in STEPS}
LEFT = {**HANGS, "left": "process 77 in D state, in rpc_wait_bit_killable"}
DEAD, SLOW = "broken file-system-hangs: ", "suspicious slow-file-system: "
SAID = {
    f"{DEAD}node 4-5": {
        "hangs on a node": judged({}, {}, HANGS, {}),
        "hangs after a slow step": judged({}, {}, hangs(s=1.5)),
        "and could not be ended": judged({}, {}, LEFT),
        "answers, but slowly, beside one that hangs": judged({}, hangs(1, s=0.01), HANGS),
    },
    f"{DEAD}node 2-3": {"hangs on one of two": judged({}, HANGS)},
    f"{DEAD}/data": {
        "hangs on half": judged({}, {}, HANGS, HANGS), "hangs everywhere": judged(*[HANGS] * 3),
    },
    f"{SLOW}node 6-7": {
        "slow": judged({}, {}, {}, {"ms": 400}),
        "slow, once through": judged({}, {}, {}, hangs(1, s=0.4)),
        "slow, twice through": judged({}, {}, {}, hangs(2, s=0.4)),
    },
    **{f"{said}: node 4-5": {state: judged({}, {}, failed(state))} for state, said in {
        "missing": "different path-missing", "read-only": "different path-read-only",
        "full": "broken file-system-full", "broken": "broken file-system-broken",
    }.items()},
    "unknown no-such-path: /data": {
        "missing on the only node": judged(GONE), "missing everywhere": judged(*[GONE] * 3),
    },
    f"unknown no-such-path: /data; {DEAD}/data": {
        "missing on all that answer": judged(GONE, GONE, HANGS)
    },
    "broken path-missing: /data": {"missing on two of three": judged(GONE, GONE, {})},
    "broken path-missing: /data; broken file-system-full: /data": {
        "missing, and full on the last": judged(GONE, GONE, FULL)
    },
    "different path-missing: node 0-1": {
        "a usual path is missing on a node": judged(GONE, {}, {}, role="home")
    },
    "": {
        "alike": ms(10, 40, 9, 2), "alone": judged({}), "not felt": ms(10, 10, 90),
        "slow everywhere": judged(*[hangs(1, s=0.4)] * 4), "not ten times slower": ms(50, 50, 400),
        "not much slower": judged(*[{"ms": 600}] * 3, hangs(2, s=0.4)), "of two": ms(10, 400),
        "most are slow": ms(10, 400, 400), "busy": judged({}, {}, failed("busy", "File exists")),
        "one fast repeat": judged({}, {}, {"seconds": FAST_ONCE}),
        "a usual path that no node has": judged(GONE, GONE, role="home"),
    },
}  # fmt: skip


def test_the_node_on_which_a_file_system_hangs_fails_or_is_slow_is_named(golden):
    check(SAID, golden)
    (finding,) = judged({}, {}, {}, {"ms": 400})
    assert (finding.evidence[0].value, finding.evidence[0].median) == (0.4, 0.01)
    assert len(judged(*(HANGS if node % 100 == 3 else {} for node in range(10_000)))) == 100


def measure(path):
    """Returns what this node measures of the path that was asked for."""
    ranks = pack_leaders([0])
    plan = {"ranks": ranks, "paths": [path], "seconds": PATIENCE.limit}
    return file_system.stage(Options()).measure(context(plan))


def test_a_path_that_was_asked_for_is_told_where_it_is_missing_or_no_folder(tmp_path):
    """Only the path of the option counts as asked for; the usual ones do not."""
    os.mkfifo(tmp_path / "pipe")
    gone, pipe = f"{tmp_path}/{'long/' * 100}gone", f"{tmp_path}/pipe"
    for path, said in ((gone, "exist"), (pipe, "folder")):
        measured = measure(path)
        assert [role for role, one in measured.items() if one["asked"]] == [path]
        assert measured[path]["path"] == path[:300]
        run = run_by_node("file_system", [measured] * 2)
        (finding,) = file_system.stage(Options()).conclude(run)
        assert (finding.cause, finding.who.device) == ("no-such-path", path[:300])
        assert said in finding.what.removeprefix(path[:300])


def probe(*folders, seconds=60.0):
    return _native.core().probe_folders([*map(str, folders)], ".oddrank-test-0", seconds, 2)


def test_folders_are_tried_and_say_their_own_errors_and_nothing_is_left_in_them(tmp_path):
    (tmp_path / "file").touch()
    results = probe(tmp_path / "gone", tmp_path / "file", tmp_path, "/proc")
    assert [(result["error"], result["stopped_at"]) for result in results] == [
        (errno.ENOENT, "create"), (errno.ENOTDIR, "create"), (0, ""), (errno.ENOENT, "create"),
    ]  # fmt: skip
    assert not any(result["hangs"] or result["left"] for result in results)
    repeats = {step: len(seconds) for step, seconds in results[2]["seconds"].items()}
    assert repeats == dict.fromkeys(STEPS, 2)
    assert os.listdir(tmp_path) == ["file"]


def test_what_a_killed_run_left_an_hour_ago_is_removed_and_what_is_in_use_is_not(tmp_path):
    files = [tmp_path / f".oddrank-test-0-{slot}" for slot in range(8)]
    for file in files[:2]:
        file.touch()
    os.utime(files[1], (time.time() - 4000,) * 2)
    assert probe(tmp_path)[0]["error"] == 0
    assert list(tmp_path.iterdir()) == files[:1]
    for file in files:
        file.touch()
    assert probe(tmp_path)[0]["error"] == errno.EEXIST


@pytest.mark.needs("fuse")
def test_dead_file_systems_hold_nobody_up_whether_they_take_requests_or_not(tmp_path):
    idle, takes = tmp_path / "idle", tmp_path / "takes"
    idle.mkdir()
    takes.mkdir()
    # In memory: a disk may take too long for two fsyncs.
    in_memory = tempfile.TemporaryDirectory(prefix="oddrank-alive-", dir="/dev/shm")
    with dead_file_system(idle), dead_file_system(takes, takes=True), in_memory as alive:
        results = probe(idle, takes, alive, seconds=10.0)  # in this process it would be for ever
        found = [(result["hangs"], result["stopped_at"]) for result in results]
        assert found == [(True, "create"), (True, "create"), (False, "")]
        killed, child = (result["left"] for result in results[:2])
        if killed:
            until(lambda: os.waitpid(killed, os.WNOHANG)[0])
        until(lambda: file_system._left(child).startswith(f"process {child} in D state"))
        open_files = [os.readlink(fd) for fd in Path(f"/proc/{child}/fd").iterdir()]
        assert open_files
        assert all(name.startswith("pipe:") for name in open_files)
    os.waitpid(child, 0)


def test_a_killed_process_that_only_has_no_core_is_not_left():
    child = subprocess.Popen(["sleep", "60"])
    for number, state in ((signal.SIGSTOP, os.WSTOPPED), (signal.SIGKILL, os.WEXITED)):
        child.send_signal(number)  # it may still be loading its program
        os.waitid(os.P_PID, child.pid, state | os.WNOWAIT)
        assert file_system._left(child.pid) == ""
    child.wait()
    assert file_system._left(child.pid) == ""
    result = {"stopped_at": "write", "hangs": False, "error": errno.ECANCELED}
    assert file_system._state(result) == "busy"  # no broken file system


def test_the_usual_paths_are_read_without_asking_a_file_system(monkeypatch):
    monkeypatch.setenv("HOME", "/nowhere/home")
    monkeypatch.setenv("TMPDIR", "relative")
    found = file_system._usual()
    assert found["home"] == "/nowhere/home"
    assert found["temporary files"] == "/tmp"
    paths = file_system._paths(["/tmp", "/data"])
    assert list(paths) == ["/tmp", "/data", "working directory", "home"]
    monkeypatch.delenv("HOME")
    assert "home" not in file_system._usual()


@pytest.mark.needs("torch", "fuse")
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
