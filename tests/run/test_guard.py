"""The guard of `oddrank run`: it tells what happens to its worker, and does nothing to it."""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from control import wire_peer as wire
from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.run.start import GuardOptions
from patience import PATIENCE, until
from processes import Marked, captured
from run.watched import (
    GUARD,
    TOKEN,
    Root,
    Worker,
    functions,
    guards,
    private_bytes,
    read_slim,
    start_guard,
    watched,
)
from texts import texts

MOST_PRIVATE = 3 << 20
BUSY = f"while os.getppid() == {os.getpid()}: pass"  # outlives no test


def test_a_worker_starts_moves_is_quiet_and_moves_again_also_once_it_arms_itself_anew(tmp_path):
    with watched(tmp_path) as (worker, root, _):
        assert root.until(stage="starting")["quiet_ms"] == -1
        worker.does("armed = oddrank.arm()")
        step = int(root.moves(worker, "oddrank.step({})")["step"]) + 1
        worker.does(f"oddrank.step({step})")
        root.hub.refresh(60.0)  # a question is answered at once
        moving = root.state()
        assert moving["step"] == str(step)
        assert 0 <= moving["quiet_ms"] < 60_000
        quiet = root.until(stage="quiet")
        assert quiet["progress"] >= 1
        assert quiet["quiet_ms"] >= 1500
        again = root.moves(worker, f"oddrank.step({step} + {{}})")
        assert again["state"] == "running"
        assert again["progress"] - quiet["progress"] == int(again["step"]) - step > 0
        worker.does("oddrank.step(0)")  # another epoch
        root.until(stage="quiet", progress=again["progress"] + 1)
        worker.does("armed.remove(); armed = oddrank.arm()")
        assert int(root.moves(worker, "oddrank.step(100 + {})")["step"]) > 100


@pytest.mark.parametrize(
    ("line", "code", "end"),
    [("os._exit(3)", 3, None), ("raise ValueError('labels out of range')", 1, "exited")],
)
def test_a_worker_that_ends_is_dead_with_its_code_and_its_record_says_why(
    tmp_path, line, code, end
):
    with watched(tmp_path) as (worker, root, _):
        worker.does("oddrank.arm()")
        worker.begins(line)
        dead = root.until(state="dead")
        assert (dead["signal"], dead["exit_code"]) == (None, code)
        found = root.snapshot()
        assert found["letter"] in ("", "Z")
        assert end is None or read_slim(found["record"])["end"] == end


def test_a_zombie_whose_threads_still_end_is_told_with_what_its_record_says(tmp_path):
    """Drivers may take seconds to free a GPU: a rank that ended well has not died meanwhile."""
    number = {"x86_64": 60, "aarch64": 93}[os.uname().machine]  # exit() of one thread
    with watched(tmp_path) as (worker, root, _):
        worker.does("oddrank.arm(); import ctypes; from oddrank import _native")
        worker.does("threading.Thread(target=time.sleep, args=(1000,)).start()")
        ends = "_native.core().trace_raised('ValueError', '', '', True)"
        worker.begins(f"{ends}; ctypes.CDLL(None).syscall({number}, 0)")
        assert root.until(state="zombie")["exit_code"] == 1


def test_a_stopped_worker_is_stopped_and_goes_on(tmp_path):
    with watched(tmp_path) as (worker, root, _):
        worker.does("oddrank.arm()")
        os.kill(worker.pid, signal.SIGSTOP)
        root.until(state="stopped")
        found = root.snapshot()
        assert found["letter"] == "T"
        # Each thread stops once it gets a core.
        until(lambda: {thread[1] for thread in root.snapshot()["threads"]} == {"T"})
        assert "waits_for_commands" in functions(found["record"])
        os.kill(worker.pid, signal.SIGCONT)
        root.until(state="running")
        worker.does("oddrank.step(1)")
        root.asks_until(step="1")


def test_a_snapshot_of_a_living_worker_has_its_stack_threads_and_use(tmp_path):
    with watched(tmp_path) as (worker, root, _):
        bare = root.snapshot()  # without a record
        assert (bare["record"], [thread[0] for thread in bare["threads"]]) == (b"", [worker.pid])
        worker.does("oddrank.arm(); oddrank.step(4)")
        worker.does(f"exec('def spins():\\n    {BUSY}')")
        worker.does("threading.Thread(target=spins, daemon=True).start()")
        worker.does("child = __import__('subprocess').Popen(['sleep', '1000'])")
        first = root.snapshot()
        until(lambda: root.snapshot()["cpu_ns"] > first["cpu_ns"] > 0)
        until(lambda: max(thread[3] for thread in root.snapshot()["threads"]) > 0)
        second = root.snapshot()
        assert second["io_bytes"] >= first["io_bytes"] > 0
        assert second["realtime_ns"] > first["realtime_ns"]
        assert abs(time.time() - second["realtime_ns"] / 1e9) < 3600
        assert first["start_time"] == worker.started
        assert first["letter"] in ("R", "S", "D")
        assert first["wait_status"] == -1
        assert first["oom_kills"] == 0
        threads = {thread[0]: thread[1] for thread in second["threads"]}
        assert threads[worker.pid] in ("R", "S")
        assert len(threads) == 2
        assert {thread[3] for thread in root.snapshot(0)["threads"]} == {0.0}  # one look
        record = read_slim(second["record"])
        assert (record["step"], record["pid"], record["life"]) == (4, worker.pid, "alive")
        assert "waits_for_commands" in functions(second["record"])
        worker.does("child.kill(); child.wait()")


def test_a_worker_that_gets_no_core_uses_as_much_time_as_if_it_had_one(tmp_path):
    core = min(os.sched_getaffinity(0))
    # A share of one in five, of processes or of sessions, at any niceness of this test: the kernel
    # counts how long the worker waited only once it runs.
    hogs = [
        subprocess.Popen([sys.executable, "-c", f"import os\n{BUSY}"], start_new_session=True)
        for _ in range(4)
    ]
    try:
        for hog in hogs:
            os.sched_setaffinity(hog.pid, [core])
        with watched(tmp_path) as (worker, root, _):
            os.sched_setaffinity(worker.pid, [core])
            worker.begins(BUSY)
            before = root.snapshot()
            used = cpu_seconds(worker.pid), sum(cpu_seconds(hog.pid) for hog in hogs)

            def seems_at_work_without_a_core() -> bool:
                after = root.snapshot()
                seconds = after["realtime_ns"] - before["realtime_ns"]
                own = cpu_seconds(worker.pid) - used[0]
                others = sum(cpu_seconds(hog.pid) for hog in hogs) - used[1]
                seems_at_work = after["cpu_ns"] - before["cpu_ns"] > 0.5 * seconds > 1e8
                return seems_at_work and own < 0.5 * others

            until(seems_at_work_without_a_core)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_snapshot_of_a_dead_worker_comes_from_the_record_that_stays(tmp_path):
    with watched(tmp_path) as (worker, root, _):
        worker.does("oddrank.arm(); oddrank.step(5)")
        root.asks_until(step="5")
        os.kill(worker.pid, signal.SIGKILL)
        assert root.until(state="dead")["signal"] == signal.SIGKILL
        found = root.snapshot()
        assert found["letter"] == "Z"  # this test has not asked for it
        assert os.WTERMSIG(found["wait_status"]) == signal.SIGKILL
        assert found["threads"] == []
        assert "waits_for_commands" in functions(found["record"])
        assert read_slim(found["record"])["step"] == 5


def test_the_collector_runs_once_asked_and_its_words_are_the_answer(tmp_path):
    command = f"echo saved; echo x >> {tmp_path}/runs"
    with watched(tmp_path, collector=["/bin/sh", "-c", command]) as (worker, root, mark):
        root.begin("collect", "1,12,100")  # ranks of other nodes
        root.snapshot()
        root.begin("collect", "3,0,12")
        assert root.result() == b"saved\n"
        assert (tmp_path / "runs").read_text() == "x\n"
        (guard,) = guards(mark)
        until(lambda: not children_of(guard.pid))
        assert worker.does("print(1 + 1)") == "2"


def test_the_end_of_the_worker_does_not_end_the_collector(tmp_path):
    go = tmp_path / "go"
    os.mkfifo(go)
    with watched(tmp_path, collector=["/bin/sh", "-c", f"cat {go}"]) as (worker, root, mark):
        root.begin("collect", "0")
        (guard,) = guards(mark)
        until(lambda: children_of(guard.pid))
        worker.end()
        root.until(state="dead")
        time.sleep(6)  # longer than a guard stays otherwise
        go.write_text("saved")
        assert root.result() == b"saved"
        until(lambda: not guards(mark))


@pytest.mark.parametrize(
    ("before", "number"),
    [("pass", signal.SIGTERM), ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", signal.SIGKILL)],
)
def test_a_root_may_end_the_worker_and_what_it_has_started(tmp_path, before, number):
    with watched(tmp_path) as (worker, root, mark):
        worker.does(f"{before}; import subprocess; subprocess.Popen(['sleep', '1000'])")
        root.begin("kill")
        assert root.until(state="dead")["signal"] == number
        until(lambda: "sleep" not in [process.name for process in mark.living()])


CHILD_STEPS = texts(__file__)["child steps"]


def test_what_a_child_does_moves_a_worker_that_only_waits_for_it(tmp_path):
    with watched(tmp_path) as (worker, root, _):
        worker.does("oddrank.arm()")
        root.until(stage="quiet")
        worker.does(f"exec({CHILD_STEPS!r}, globals())")
        moving = root.until(stage="moving")
        until(lambda: root.hub.refresh(10.0) or root.state()["progress"] > moving["progress"])
        worker.does("child.kill(); child.join()")
        root.until(stage="quiet")


@pytest.mark.parametrize("ended", ["worker", "root"])
def test_a_guard_ends_with_its_worker_or_its_root_and_leaves_the_worker_alone(tmp_path, ended):
    with watched(tmp_path) as (worker, root, mark):
        (worker if ended == "worker" else root).end()
        until(lambda: not guards(mark))
        assert ended == "worker" or worker.does("print(1 + 1)") == "2"


class Relay:
    """The network between guards and their root. While `passes` is not set it is cut."""

    def __init__(self, root: Root) -> None:
        self.passes, self.is_tried, self._root = threading.Event(), False, root.port
        self.passes.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        root.address = f"127.0.0.1:{self._listener.getsockname()[1]}#{TOKEN}"
        threading.Thread(target=self._accept, daemon=True).start()

    def end(self) -> None:
        self.passes.set()
        self._listener.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with self._listener, suppress(OSError):  # it is over
            while True:
                guard = self._listener.accept()[0]
                self.is_tried |= not self.passes.is_set()
                self.passes.wait()
                root = socket.create_connection(("127.0.0.1", self._root))
                for ends in ((guard, root), (root, guard)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with one, suppress(OSError):  # the other side is gone
            while data := one.recv(1 << 16):
                self.passes.wait()
                other.sendall(data)
        with suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)


def test_a_guard_comes_back_once_its_root_can_be_reached_again(tmp_path):
    root = Root(heartbeat_ms=1000)
    network = Relay(root)
    try:
        with watched(tmp_path, root=root) as (worker, root, mark):
            worker.does("oddrank.arm(); oddrank.step(1)")
            root.asks_until(step="1")
            (guard,) = guards(mark)
            network.passes.clear()
            root.until(contact="silent")
            until(lambda: network.is_tried)
            worker.does("oddrank.step(2)")
            network.passes.set()
            root.until(contact="ok")
            assert root.asks_until(step="2")["state"] == "running"
            assert [one.pid for one in guards(mark)] == [guard.pid]
            os.kill(worker.pid, signal.SIGKILL)
            assert root.until(state="dead")["signal"] == signal.SIGKILL
    finally:
        network.end()


@pytest.mark.parametrize("how", ["end stage", "end frame"])
def test_a_guard_that_nobody_listens_to_waits_for_its_worker_alone(tmp_path, how):
    with watched(tmp_path) as (worker, root, mark):
        if how == "end stage":
            root.begin("end")
        else:
            root.hub.end(0, 60.0)
        until(lambda: root.state()["contact"] != "ok" or how == "end frame")
        (guard,) = guards(mark)
        until(lambda: not sockets_of(guard.pid))
        worker.end()
        until(lambda: not guards(mark))


@pytest.fixture
def unwatched(tmp_path):
    """Yields a worker, a root, and a mark for the guard that the test starts."""
    root, mark, worker = Root(), Marked(), Worker(tmp_path)
    yield worker, root, mark
    worker.end()
    mark.kill_all()


def descriptors_of(pid: int) -> dict[int, str]:
    folder = Path(f"/proc/{pid}/fd")
    found = {}
    for one in folder.iterdir():
        with suppress(FileNotFoundError):  # a file of /proc that it has read meanwhile
            found[int(one.name)] = os.readlink(one)
    return found


def sockets_of(pid: int) -> list[str]:
    return [link for link in descriptors_of(pid).values() if link.startswith("socket:")]


def test_a_guard_keeps_nothing_of_the_process_that_started_it(unwatched):
    worker, root, mark = unwatched
    reader, writer = os.pipe()
    start_guard(worker, root.address, mark=mark, pass_fds=[writer])
    os.close(writer)
    assert os.read(reader, 1) == b""  # nobody has the other end
    root.until(contact="ok")
    (guard,) = guards(mark)
    links = descriptors_of(guard.pid)
    assert [links[fd] for fd in range(3)] == ["/dev/null"] * 3

    def others() -> list[str]:
        links = descriptors_of(guard.pid).items()
        return sorted(link.partition(":")[0] for fd, link in links if fd > 2)

    # Not at once: it may have a file of /proc open just now.
    until(lambda: others() in (["anon_inode", "socket"], ["pidfd", "socket"]))
    assert os.getsid(guard.pid) not in (os.getsid(0), os.getsid(worker.pid))
    assert os.readlink(f"/proc/{guard.pid}/cwd") == "/"
    os.close(reader)


def test_a_script_waits_for_no_guard(unwatched):
    """The guard is no child of its worker."""
    worker, root, mark = unwatched
    worker.does(f"os.environ.update({mark.environ})")
    options = GuardOptions(worker.pid, address=root.address).packed()
    worker.does(f"__import__('subprocess').run({str(GUARD)!r}, input={options}, check=True)")
    root.until(contact="ok", pid=worker.pid)
    asked = worker.does("exec('try: os.wait()\\nexcept ChildProcessError: print(\"none\")')")
    assert asked == "none"
    (guard,) = guards(mark)
    assert guard.parent != worker.pid


def test_a_guard_takes_little_memory_also_after_a_snapshot(tmp_path):
    with watched(tmp_path) as (worker, root, mark):
        worker.does("oddrank.arm(); import json, email.message, http.client; oddrank.step(1)")
        root.asks_until(step="1")
        (guard,) = guards(mark)
        assert private_bytes(guard.pid) <= MOST_PRIVATE
        root.snapshot()
        assert private_bytes(guard.pid) <= MOST_PRIVATE


def test_a_guard_ignores_the_signals_of_launchers(tmp_path):
    with watched(tmp_path) as (worker, root, mark):
        (guard,) = guards(mark)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            os.kill(guard.pid, number)
        os.kill(worker.pid, signal.SIGKILL)
        assert root.until(state="dead")["signal"] == signal.SIGKILL


def test_the_address_comes_by_a_file_that_appears_later(tmp_path, unwatched):
    worker, root, mark = unwatched
    file = tmp_path / "root"
    start_guard(worker, "", rendezvous_file=str(file), mark=mark)
    file.touch(mode=0o600)
    file.write_text("of another version")
    (guard,) = guards(mark)
    file.write_text(root.address)
    root.until(contact="ok", pid=worker.pid, host="node1")
    assert file.exists()  # other guards of this host may need it
    command = Path(f"/proc/{guard.pid}/cmdline").read_bytes()
    assert TOKEN.encode() not in command


@pytest.mark.parametrize("earlier_root", ["lives", "goes"])
def test_the_address_of_an_earlier_run_is_left_for_the_one_that_takes_its_place(
    tmp_path, unwatched, earlier_root
):
    worker, root, mark = unwatched
    file = tmp_path / "root"
    file.touch(mode=0o600)
    if earlier_root == "goes":
        fake = FakeRoot()
        file.write_text(fake.address)
        start_guard(worker, "", rendezvous_file=str(file), mark=mark)
        fake.accept().socket.close()
        fake.listener.close()
    else:
        with watched(tmp_path) as (_, earlier, _):
            file.write_text(earlier.address)
            start_guard(worker, "", rendezvous_file=str(file), mark=mark)
            until(lambda: earlier.hub.notes()[1])  # it has turned the guard away
    file.write_text(root.address)
    root.until(contact="ok", pid=worker.pid)


def test_the_address_comes_by_a_fetcher_which_leaves_no_zombie(unwatched):
    worker, root, mark = unwatched
    start_guard(worker, "", fetcher=["/bin/echo", "-n", root.address], mark=mark)
    root.until(contact="ok", pid=worker.pid)
    (guard,) = guards(mark)
    until(lambda: not children_of(guard.pid))


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_a_worker_that_dies_before_its_root_is_known_is_still_told_of(tmp_path, unwatched):
    worker, root, mark = unwatched
    file = tmp_path / "root"
    start_guard(worker, "", rendezvous_file=str(file), mark=mark)
    os.kill(worker.pid, signal.SIGKILL)
    file.touch(mode=0o600)
    file.write_text(root.address)
    assert root.until(contact="ok", state="dead")["signal"] == signal.SIGKILL


RIGHT = GuardOptions(os.getpid(), records=["/records/rank0"], collector=["/bin/true"])
WRONG = {
    "nothing": b"",
    "another version's": b"--pid",
    "cut off": RIGHT.packed()[:-1],
    "too long a text": RIGHT.packed()[:-13] + b"\xff" * 13,
    **{
        f"{name} {value}": replace(RIGHT, **{name: value}).packed()
        for name, value in (
            ("pid", 0), ("pid", -4), ("pid", 2147483647), ("rank", -1), ("world", 0),
            ("local_rank", -1), ("local_world", 0), ("node", -1), ("quiet_ms", 0),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_option_is_one_line(wrong):
    done = subprocess.run(
        [GUARD], input=WRONG[wrong], check=False, capture_output=True, timeout=PATIENCE.limit
    )
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert done.stderr.startswith(b"oddrank-guard: ")


class FakeRoot:
    """The root's side of the protocol, by hand."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE.limit)
        port = self.listener.getsockname()[1]
        self.address = f"127.0.0.1:{port}#{TOKEN}"

    def accept(self) -> wire.Peer:
        return wire.Peer(0, self.listener.accept()[0])

    def welcome(self) -> wire.Peer:
        peer = self.accept()
        knock = peer.expect(wire.KNOCK)
        (size,) = struct.unpack_from("<I", knock, 4)
        proof = wire.proof("root", TOKEN, "mine", knock[8 : 8 + size].decode())
        peer.send(wire.frame(wire.PROOF, wire.text("mine") + wire.proof_text(proof)))
        peer.expect(wire.HELLO)
        return peer.send(wire.frame(wire.WELCOME, struct.pack("<II", 10_000, 30_000)))


def go(stage: str, number: int = 1) -> bytes:
    return struct.pack("<I", number) + wire.text(stage) + wire.text("")


# These end the connection.
BROKEN = {
    "an unknown kind": wire.frame(99, b"x"),
    "a huge length": b"\xff\xff\xff\xff\x04",
    "zeros": bytes(4096),
    "too long a frame": wire.frame(wire.GO, bytes(70_000)),
    "half a frame": wire.frame(wire.GO, go("snapshot"))[:-3],
}
# These are left out.
ODD = {
    "an empty go": wire.frame(wire.GO),
    "a go with a length that lies": wire.frame(wire.GO, struct.pack("<II", 1, 2**31)),
    "an unknown stage": wire.frame(wire.GO, go("dance")),
    "an empty question": wire.frame(wire.REPORT),
    "a roster": wire.frame(wire.ROSTER, b"\xff" * 100),
    "another's state": wire.state(1),
    "another's knock": wire.knock(),
    "a second welcome": wire.frame(wire.WELCOME, bytes(8)),
    "many snapshots": wire.frame(wire.GO, go("snapshot")) * 50,
}


@pytest.fixture
def hostile(unwatched):
    """Returns a worker, its guard's mark and a root that is none of ours."""
    worker, _, mark = unwatched
    root = FakeRoot()
    start_guard(worker, root.address, mark=mark)
    return worker, mark, root


@pytest.mark.parametrize("frames", BROKEN.values(), ids=BROKEN)
def test_a_root_that_breaks_the_rules_is_left_and_the_worker_goes_on(hostile, frames):
    worker, mark, root = hostile
    peer = root.welcome()
    with suppress(OSError):  # it may have gone before it has read all
        peer.send(frames)
        peer.socket.shutdown(socket.SHUT_WR)
    until(lambda: not guards(mark))
    assert worker.does("print(6 * 7)") == "42"


def test_odd_frames_of_a_root_are_left_out(hostile):
    worker, mark, root = hostile
    peer = root.welcome()
    for number, (name, frames) in enumerate(ODD.items(), 77):
        peer.send(frames)
        peer.send(wire.frame(wire.REPORT, struct.pack("<I", number)))
        while struct.unpack("<I", peer.expect(wire.STATE)[-4:])[0] != number:
            pass
        peer.send(wire.frame(wire.GO, go("snapshot", number)))
        while struct.unpack("<I", peer.expect(wire.RESULT)[:4])[0] != number:
            pass
        assert len(guards(mark)) == 1, name
    assert worker.does("print(6 * 7)") == "42"


def test_a_root_that_does_not_know_the_token_learns_nothing(hostile):
    worker, _, root = hostile
    peer = root.accept()
    peer.expect(wire.KNOCK)
    forged = wire.frame(wire.WELCOME, struct.pack("<II", 250, 5000))
    forged += wire.frame(wire.END, struct.pack("<i", 0))
    peer.send(wire.frame(wire.PROOF, wire.text("mine") + wire.text("x" * 32)) + forged)
    assert peer.receive() is None
    assert worker.does("print(6 * 7)") == "42"


def test_a_broken_snapshot_is_refused():
    for payload in (b"", b"x", bytes(100), b"\xff" * 1000, os.urandom(5000)):
        with pytest.raises(OddrankError, match="broken"):
            _native.core().run_unpack_snapshot(payload)


def test_a_guard_needs_no_library_but_libc(tmp_path):
    listed = captured(["ldd", GUARD], check=True).stdout
    assert not [name for name in ("libstdc++", "libgcc_s", "python") if name in listed]
    assert os.access(GUARD, os.X_OK)
