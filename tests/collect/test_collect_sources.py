"""Each source of `oddrank collect`: what it reads, what it refuses, and what it says of it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collect.collecting import ras_server
from oddrank import job
from oddrank.collect.node import SOURCES
from oddrank.collect.sources import (
    Rank,
    Sink,
    Source,
    Target,
    host,
    nccl_ras,
    process,
    torch_files,
)
from oddrank.triage import facts
from oddrank.triage.evidence import collected
from oddrank.triage.evidence import kernel as kernel_evidence
from oddrank.triage.evidence import nccl_ras as ras_evidence
from oddrank.triage.judges import ras as ras_judge
from patience import PATIENCE, until
from processes import held_port, shell_script, stop
from texts import texts
from triage.facts_of import facts_of

DATA = Path(__file__).with_name("data")
HOST = "node1"


def rank(number: int = 0, pid: int | None = None, **more: Any) -> Rank:
    """Returns a rank that this process, or `pid`, is."""
    pid = os.getpid() if pid is None else pid
    own = {"local_rank": number, "world": 4, "started": job.start_time(pid), "alive": True,
           "uid": os.geteuid(), **more}  # fmt: skip
    return Rank(rank=number, pid=pid, **own)


def ran(source: Source, folder: Path, *ranks: Rank, room: int = 1 << 20) -> SimpleNamespace:
    """Runs all parts of a source; returns what it said. room: bytes for each."""
    target = Target("job", HOST, (), ranks)
    found = SimpleNamespace(files={}, lacks={}, absent=set())

    def say(message: Any) -> None:
        if "not_read" in message:
            one = message["not_read"]
            found.lacks[one["what"]] = one["why"]
            if one["absent"]:
                found.absent.add(one["what"])
        if "file" in message:
            name = message["file"]["name"]
            found.files[name] = (folder / name).read_bytes()

    for part in source.parts(target).values():
        source.work(target, part, Sink(folder, room, say))
    return found


def test_the_shares_of_the_limit_sum_up_to_one():
    assert sum(source.share for source in SOURCES) == pytest.approx(1.0)
    names = [source.name for source in SOURCES]
    assert len(set(names)) == len(names)


# NCCL RAS.


def of_ras(tmp_path, address, **more):
    found = ran(nccl_ras.SOURCE, tmp_path, rank(environ={"NCCL_RAS_ADDR": address}), **more)
    return found, [name for name in found.files if address.rpartition(":")[2] in name]


def test_ras_is_asked_twice_so_far_apart_that_triage_sees_counts_stand(tmp_path, monkeypatch):
    monkeypatch.setattr(nccl_ras, "_HELLO", PATIENCE.limit)
    with ras_server((DATA / "nccl_ras.txt").read_bytes()) as (address, asked):
        _, (name,) = of_ras(tmp_path, address)
    assert asked == [
        line for question in (b"VERBOSE STATUS\n", b"VERBOSE STATUS\n", b"diagnostics\n")
        for line in (b"CLIENT PROTOCOL 2\n", b"TIMEOUT 3\n", question)
    ]  # fmt: skip
    counts = [f for f in facts_of(ras_evidence.KIND, tmp_path / name)
              if isinstance(f, facts.Counts)]  # fmt: skip
    assert [dict(one.counts)[2] for one in counts] == [8, 8]
    first, second = (one.time for one in counts)
    assert first is not None
    assert second - first >= ras_judge._SOON


def test_what_nccl_s_diagnostics_find_is_kept_and_triage_reads_it(tmp_path, monkeypatch):
    monkeypatch.setattr(nccl_ras, "_HELLO", PATIENCE.limit)
    monkeypatch.setattr(nccl_ras, "_APART", 0.0)
    status = (DATA / "nccl_ras.txt").read_bytes()
    found_ecc = b"NCCL DIAG [INFO] ECC: uncorrected volatile errors on rank(s) {2} (worst=3)\n"
    for number, diagnostics in enumerate((found_ecc, b"BUSY: diagnostics already in progress\n")):
        with ras_server(status, diagnostics=diagnostics) as (address, _):
            found, names = of_ras(tmp_path / str(number), address)
        if number == 0:
            read = facts_of(ras_evidence.KIND, tmp_path / "0" / names[1])
            assert [one.hits for one in read if isinstance(one, facts.Trouble)] == [(2,)]
        else:
            assert names == [f"nccl_ras.{address.replace(':', '_')}.txt"]
            assert "at this moment" in found.lacks[f"NCCL diagnostics at {address}"]


@pytest.mark.parametrize(
    ("hello", "answer", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\n", b"", "it is not NCCL's RAS: it said b'HTTP/1.1 400"),
        (b"", b"", "it is not NCCL's RAS: it said b''"),
        (b"SERVER PROTOCOL 2\n", b"", "it closed the connection without an answer"),
        (b"SERVER PROTOCOL 2\n", b"x" * 4096, "its answer is over "),
        (None, b"", "timed out"),  # it says nothing
    ],
)
def test_what_is_not_ras_is_said_and_hangs_nobody(tmp_path, monkeypatch, hello, answer, why):
    if hello is not None:
        monkeypatch.setattr(nccl_ras, "_HELLO", PATIENCE.limit)
    with socket.create_server(("127.0.0.1", 0)) as silent, ras_server(answer, hello) as (speaks, _):
        address = speaks if hello is not None else f"127.0.0.1:{silent.getsockname()[1]}"
        found, names = of_ras(tmp_path, address, room=2000)
    assert names == []
    assert found.lacks[f"NCCL RAS at {address}"].startswith(why)


def test_where_nobody_listens_there_is_no_ras_and_where_it_is_off_nobody_asks(tmp_path):
    with held_port() as port:
        address = f"127.0.0.1:{port}"
        found, _ = of_ras(tmp_path, address)
    assert f"NCCL RAS at {address}" in found.absent
    off = rank(environ={"NCCL_RAS_ENABLE": "0", "NCCL_RAS_ADDR": address})
    found = ran(nccl_ras.SOURCE, tmp_path, off)
    assert found.lacks == {"NCCL RAS": "NCCL_RAS_ENABLE=0 has switched it off in all ranks"}
    assert found.absent == {"NCCL RAS"}


# Dumps of the flight recorder.


def test_dumps_of_all_ranks_are_found_by_their_variables(tmp_path):
    prefix = tmp_path / "dumps" / "nccl_trace_"
    prefix.parent.mkdir()
    for number in range(2):
        Path(f"{prefix}{number}").write_bytes(b"dump%d" % number)
    home = tmp_path / "home" / ".cache" / "torch"
    home.mkdir(parents=True)
    (home / "comm_lib_trace_rank_2").write_bytes(b"dump2")
    ranks = [
        rank(0, environ={"TORCH_FR_DUMP_TEMP_FILE": str(prefix)}),
        rank(1, environ={"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(prefix)}),
        rank(2, environ={"HOME": str(tmp_path / "home")}),
    ]
    found = ran(torch_files.FLIGHT_RECORDER, tmp_path / "out", *ranks)
    assert found.lacks == {}
    assert found.files == {
        "flight_recorder/nccl_trace_0": b"dump0",
        "flight_recorder/nccl_trace_1": b"dump1",
        "flight_recorder/comm_lib_trace_rank_2": b"dump2",
    }


def _foreign_owner(path):
    path.write_text("of somebody else")
    os.chown(path, 4711, 4711)


def _old(path):
    path.write_text("dump")
    os.utime(path, (1, 1))


def _large(path):
    path.touch()
    os.truncate(path, 1 << 40)


FOREIGN = {
    "it is a symbolic link": lambda path: path.symlink_to("/etc/hostname"),
    "it is no file but a folder, pipe or device": os.mkfifo,
    "it belongs to another user than the job": _foreign_owner,
    "it is older than the job": _old,
    "over the share of its source: raise --limit": _large,
}


def test_what_is_no_dump_of_the_job_is_left_out(tmp_path):
    paths = {}
    for number, (why, make) in enumerate(FOREIGN.items()):
        if make is not _foreign_owner or not os.geteuid():  # only root can give a file away
            paths[why] = tmp_path / f"dump{number}"
            make(paths[why])
    environ = {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "dump")}
    ranks = [rank(number, environ=environ) for number in range(len(FOREIGN))]
    found = ran(torch_files.FLIGHT_RECORDER, tmp_path / "out", *ranks)
    assert found.files == {}
    for why, path in paths.items():
        assert why in found.lacks[str(path)]


DUMPS = texts(__file__)["dumps"]


def test_torch_is_asked_for_a_new_dump_through_its_pipe(tmp_path, monkeypatch):
    monkeypatch.setattr(torch_files, "_ANSWER", 60.0)
    stem, dump = tmp_path / "pipe_", tmp_path / "dump0"
    environ = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(stem),
               "TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "dump")}  # fmt: skip
    dump.write_text("old dump")
    torch = subprocess.Popen([sys.executable, "-c", DUMPS, stem, dump], stdout=subprocess.PIPE)
    try:
        torch.stdout.readline()
        found = ran(torch_files.FLIGHT_RECORDER, tmp_path / "out", rank(environ=environ))
    finally:
        torch.kill()
        torch.communicate()
    assert (found.files, found.lacks) == ({"flight_recorder/dump0": b"new dump"}, {})
    again = ran(torch_files.FLIGHT_RECORDER, tmp_path / "out", rank(environ=environ))
    assert again.lacks == {f"{stem}0.pipe": "no process reads it"}
    assert again.files == {"flight_recorder/dump0": b"new dump"}


def test_a_stopped_torch_is_named_and_its_older_dump_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(torch_files, "_ANSWER", 0.5)
    stem = tmp_path / "pipe_"
    (tmp_path / "dump0").write_text("old dump")
    os.utime(tmp_path / "dump0", (time.time() - 0.2,) * 2)
    os.mkfifo(f"{stem}0.pipe")
    reader = os.open(f"{stem}0.pipe", os.O_RDONLY | os.O_NONBLOCK)
    environ = {"TORCH_FR_DEBUG_INFO_PIPE_FILE": str(stem),
               "TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "dump")}  # fmt: skip
    found = ran(torch_files.FLIGHT_RECORDER, tmp_path / "out", rank(environ=environ))
    assert os.read(reader, 10) == b"1\n"
    os.close(reader)
    assert found.lacks == {"a new dump of rank 0": "torch wrote none in 0.5 s"}
    assert found.files == {"flight_recorder/dump0": b"old dump"}


# Processes.


@contextmanager
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as running:
        try:
            yield running
        finally:
            running.kill()


def test_of_a_stopped_process_triage_learns_rank_state_and_threads(tmp_path):
    with sleeper() as stopped:
        stop(stopped.pid)
        found = ran(process.SOURCE, tmp_path, rank(2, pid=stopped.pid))
    (name,) = found.files
    content = json.loads(found.files[name])
    assert [one["name"] for one in content["threads"]] == ["sleep"]
    assert {"status", "wchan", "syscall"} <= content["files"].keys()
    (state,) = [f for f in facts_of(collected.KIND, tmp_path / name) if isinstance(f, facts.State)]
    assert (state.process, state.state) == (facts.Process(2, HOST, stopped.pid), "stopped")


def test_a_process_that_is_gone_and_a_pid_that_another_one_has_by_now_are_left_out(tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    for pid in (gone.pid, os.getpid()):
        found = ran(process.SOURCE, tmp_path, rank(pid=pid, started=4711))
        assert (found.files, f"/proc/{pid}" in found.lacks) == ({}, True)
    assert found.lacks == {f"/proc/{pid}": "the process ended meanwhile"}
    found = ran(process.SOURCE, tmp_path, rank(alive=False))
    assert (found.files, found.absent) == ({}, {"/proc of the ranks"})


def test_a_zombie_tells_how_it_ended(tmp_path):
    with sleeper() as dead:
        dead.kill()
        until(lambda: "Z (zombie)" in Path(f"/proc/{dead.pid}/status").read_text())
        ran(process.SOURCE, tmp_path, rank(1, pid=dead.pid))
    (file,) = tmp_path.glob("*.process.json")
    (death,) = [f for f in facts_of(collected.KIND, file) if isinstance(f, facts.Death)]
    assert (death.process.rank, death.how, death.signal) == (1, "signal", 9)


# The rest.


@pytest.mark.needs("memory-cgroup")
def test_a_cgroup_that_killed_a_process_says_so(tmp_path):
    folder = Path(f"/sys/fs/cgroup/memory/oddrank-test-{os.getpid()}")
    folder.mkdir()
    grow = f"open('{folder}/tasks', 'w').write('0')\nx = bytearray(200 << 20)"
    try:
        (folder / "memory.limit_in_bytes").write_text(str(48 << 20))
        done = subprocess.run([sys.executable, "-c", grow], check=False)
        assert done.returncode == -signal.SIGKILL
        with sleeper() as other:
            (folder / "tasks").write_text(str(other.pid))
            found = ran(host.CGROUPS, tmp_path, rank(3, pid=other.pid))
    finally:
        until(lambda: not (folder / "tasks").read_text())
        folder.rmdir()
    assert found.lacks == {}
    troubles = facts_of(collected.KIND, tmp_path / "cgroups.json")
    (own,) = [t for t in troubles if isinstance(t, facts.Trouble) and str(folder) in t.text]
    assert (own.kind, own.count, own.host) == ("oom", 1, HOST)
    assert own.text == f"the kernel killed 1 process of cgroup {folder} (limit 48 MiB) for memory"


def test_error_files_are_named_by_the_global_rank_also_of_ranks_that_ended(tmp_path):
    attempt = tmp_path / "none_x" / "attempt_0"
    for local in ("0", "1", "2"):
        (attempt / local).mkdir(parents=True)
        (attempt / local / "error.json").write_text(f"error of {local}")
    one = rank(5, local_rank=1, environ={"TORCHELASTIC_ERROR_FILE": f"{attempt}/1/error.json"})
    found = ran(torch_files.TORCHELASTIC, tmp_path / "out", one)
    assert found.files == {
        "torchelastic/rank4.error.json": b"error of 0",
        "torchelastic/rank5.error.json": b"error of 1",
        "torchelastic/rank6.error.json": b"error of 2",
    }


def test_of_the_kernel_s_log_the_end_is_kept_and_triage_reads_its_lines(tmp_path):
    entries = [(float(i), f"line {i}") for i in range(1000)]
    entries.append((1000.0, "NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus."))
    text = host._tail(entries, HOST, 5000)
    assert 4000 < len(text) <= 5000
    (tmp_path / "kernel.log").write_bytes(text)
    (xid,) = facts_of(kernel_evidence.KIND, tmp_path / "kernel.log")
    assert (xid.kind, xid.host, xid.coarse) == ("xid", HOST, False)
    assert abs(xid.time - (time.time() - time.monotonic() + 1000)) < 60


def test_the_kernel_s_log_is_read_or_it_is_said_why_not(tmp_path):
    found = ran(host.KERNEL_LOG, tmp_path)
    assert bool(found.files) != bool(found.lacks)


def test_nvidia_smi_is_kept_also_if_it_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    shell_script(tmp_path / "nvidia-smi", 'echo "$1: GPU is lost"\nexit 15')
    found = ran(host.NVIDIA_SMI, tmp_path / "out")
    assert found.files == {"nvidia-smi.txt": b"-q: GPU is lost\n"}
    assert found.lacks == {"nvidia-smi -q": "it exited with 15: -q: GPU is lost"}
