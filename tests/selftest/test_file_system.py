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
from findings_shown import check
from job import job
from made_up import run_by_node
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


def ms(*times):
    return judged(*({"ms": one} for one in times))


GONE = failed("missing", "No such file or directory")
FULL = failed("full", "No space left on device")
FAST_ONCE = {step: [*seen(ms=4000)["seconds"][step], 0.001] for step in STEPS}
LEFT = {**HANGS, "left": "process 77 in D state, in rpc_wait_bit_killable"}
SAID = {
    "hangs on a node": (judged({}, {}, HANGS, {}), "broken file-system-hangs: node 4-5"),
    "hangs after a slow step": (
        judged({}, {}, hangs(s=1.5)), "broken file-system-hangs: node 4-5"
    ),
    "and could not be ended": (judged({}, {}, LEFT), "broken file-system-hangs: node 4-5"),
    "hangs on one of two": (judged({}, HANGS), "broken file-system-hangs: node 2-3"),
    "hangs on half": (judged({}, {}, HANGS, HANGS), "broken file-system-hangs: /data"),
    "hangs everywhere": (judged(*[HANGS] * 3), "broken file-system-hangs: /data"),
    "answers, but slowly, beside one that hangs": (
        judged({}, hangs(1, s=0.01), HANGS), "broken file-system-hangs: node 4-5"
    ),
    "slow": (judged({}, {}, {}, {"ms": 400}), "suspicious slow-file-system: node 6-7"),
    "slow, once through": (
        judged({}, {}, {}, hangs(1, s=0.4)), "suspicious slow-file-system: node 6-7"
    ),
    "slow, twice through": (
        judged({}, {}, {}, hangs(2, s=0.4)), "suspicious slow-file-system: node 6-7"
    ),
    **{
        state: (judged({}, {}, failed(state, "why")), said)
        for state, said in {
            "missing": "different path-missing: node 4-5",
            "read-only": "different path-read-only: node 4-5",
            "full": "broken file-system-full: node 4-5",
            "broken": "broken file-system-broken: node 4-5",
        }.items()
    },
    "missing on the only node": (judged(GONE), "unknown no-such-path: /data"),
    "missing everywhere": (judged(*[GONE] * 3), "unknown no-such-path: /data"),
    "missing on all that answer": (
        judged(GONE, GONE, HANGS), "unknown no-such-path: /data; broken file-system-hangs: /data"
    ),
    "missing on two of three": (judged(GONE, GONE, {}), "broken path-missing: /data"),
    "missing, and full on the last": (
        judged(GONE, GONE, FULL),
        "broken path-missing: /data; broken file-system-full: /data",
    ),
    "a usual path is missing on a node": (
        judged(GONE, {}, {}, role="home"), "different path-missing: node 0-1"
    ),
}  # fmt: skip
HEALTHY = {
    "alike": ms(10, 40, 9, 2),
    "alone": judged({}),
    "slow everywhere": judged(*[hangs(1, s=0.4)] * 4),
    "not much slower": judged(*[{"ms": 600}] * 3, hangs(2, s=0.4)),
    "not ten times slower": ms(50, 50, 400),
    "not felt": ms(10, 10, 90),
    "of two": ms(10, 400),
    "most are slow": ms(10, 400, 400),
    "one fast repeat": judged({}, {}, {"seconds": FAST_ONCE}),
    "others are busy with it": judged({}, {}, failed("busy", "File exists")),
    "a usual path that no node has": judged(GONE, GONE, role="home"),
}


def test_the_node_on_which_a_file_system_hangs_fails_or_is_slow_is_named(golden):
    check(SAID, golden)
    check({name: (found, "") for name, found in HEALTHY.items()})
    (finding,) = judged({}, {}, {}, {"ms": 400})
    assert (finding.evidence[0].value, finding.evidence[0].median) == (0.4, 0.01)


def test_ten_thousand_nodes_with_a_hundred_dead_mounts_name_those():
    assert len(judged(*(HANGS if node % 100 == 3 else {} for node in range(10_000)))) == 100


def measure(path):
    """Returns what this node measures of the path that was asked for."""
    context = SimpleNamespace(
        parameters={"ranks": NodeLeaders.among([0]).pack(), "paths": [path], "seconds": 20.0},
        launch=SimpleNamespace(rank=0, host="node0"),
        step=lambda text: None,
    )
    return file_system.stage(Options()).measure(context)


def test_a_long_path_that_was_asked_for_is_told_where_it_is_missing(tmp_path):
    """Only the path of the option counts as asked for; the usual ones do not."""
    path = f"{tmp_path}/{'long/' * 100}gone"
    measured = measure(path)
    assert [role for role, one in measured.items() if one["asked"]] == [path]
    assert len(measured[path]["path"]) == 300
    (finding,) = file_system.stage(Options()).conclude(run_by_node("file_system", [measured] * 2))
    assert (finding.cause, finding.who.device) == ("no-such-path", path[:300])


def test_a_path_that_is_a_pipe_is_told_to_be_no_folder(tmp_path):
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    run = run_by_node("file_system", [measure(path)])
    (finding,) = file_system.stage(Options()).conclude(run)
    assert finding.what.startswith(f"{path} is not a folder on ")


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
        hung, well = probe(dead, alive, seconds=10.0)  # in this process it would be for ever
        assert (hung["hangs"], hung["stopped_at"]) == (True, "create")
        assert (well["hangs"], well["stopped_at"]) == (False, "")
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
