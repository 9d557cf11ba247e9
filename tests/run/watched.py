"""A worker that a test commands, its guard, and a root: real processes all."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from oddrank import _native, job
from oddrank.control.address import listen_on
from oddrank.run.start import GuardOptions
from patience import PATIENCE, until
from processes import Marked, Process
from texts import texts

GUARD = Path(str(_native.core().__file__)).with_name("oddrank-guard")
TOKEN = "a-secret"
QUIET_MS = 1500
_RUN = "a-run"
# Runs each line that the test writes, and says so.
_LOOP = texts(__file__)["loop"]


class Worker:
    """A Python process that does what it is told; it is not armed before it is told."""

    def __init__(self, folder: Path, mark: Marked | None = None) -> None:
        self.records = folder / "records"
        environ = {
            **os.environ, **(mark or Marked()).environ, "ODDRANK_DIR": str(self.records),
            "TORCHELASTIC_RUN_ID": _RUN,
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-c", _LOOP], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env=environ, start_new_session=True,
        )  # fmt: skip
        self.pid = int(self._said())
        self.started = job.start_time(self.pid)

    def _said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def begins(self, line: str) -> None:
        """Lets it begin something that does not end."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def does(self, line: str) -> str:
        """Lets it do something; returns what it printed."""
        self.begins(line)
        said = ""
        while (one := self._said()) != "done":
            assert self.process.poll() is None, f"it ended in {line}"
            said += one
        return said

    def paths(self) -> list[str]:
        name = f"rank0-{self.pid}-{self.started}.trace"
        return [f"/dev/shm/none-of-mine/{_RUN}/{name}", str(self.records / _RUN / name)]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Root:
    """The hub of a job of one rank, as the judge of `oddrank run` drives it."""

    def __init__(self, world: int = 1, heartbeat_ms: int = 10_000) -> None:
        core = _native.core()
        listener, self.port = listen_on(0)
        self.hub = core.Hub(
            listener, world, TOKEN, "roothost", 3600.0, heartbeat_ms, 3 * heartbeat_ms
        )
        self.hub.begin(0, "join", "", 3600.0)
        self.address = f"127.0.0.1:{self.port}#{TOKEN}"
        self.stage = 0

    def state(self, rank: int = 0) -> dict[str, Any]:
        state: dict[str, Any] = self.hub.snapshot()[rank]
        return state

    def until(self, **wanted: Any) -> dict[str, Any]:
        """Waits until the guard has told these values of rank 0, unasked; returns its state."""
        until(lambda: self._has(wanted))
        return self.state()

    def moves(self, worker: "Worker", line: str) -> dict[str, Any]:
        """Runs the line until the guard has told that the worker moves; returns its state then.

        {} in the line: the number of the run. A guard that is read late has told since that the
        worker is quiet again: then the line runs once more. That a record has begun is a move, too,
        before it has a step.
        """
        for number in range(1, 20):
            worker.does(line.format(number))
            end = time.monotonic() + 5
            while time.monotonic() < end:
                state = self.state()
                if state["stage"] == "moving" and state["step"]:
                    return state
                time.sleep(0.005)
        raise AssertionError("it was never seen moving")

    def asks_until(self, **wanted: Any) -> dict[str, Any]:
        """The same, asking the guard: progress alone is not told."""
        until(lambda: self.hub.refresh(10.0) or self._has(wanted))
        return self.state()

    def _has(self, wanted: dict[str, Any]) -> bool:
        return all(self.state()[name] == value for name, value in wanted.items())

    def begin(self, stage: str, parameters: str = "") -> None:
        self.stage += 1
        self.hub.begin(self.stage, stage, parameters, 60.0)

    def result(self) -> bytes:
        """Waits for the guard's answer to the present stage."""
        until(lambda: self.hub.result_count() == 1)
        result: bytes = self.hub.results()[0]
        return result

    def snapshot(self, look_ms: int = 200) -> dict[str, Any]:
        self.begin("snapshot", str(look_ms))
        found: dict[str, Any] = _native.core().run_unpack_snapshot(self.result())
        return found

    def end(self) -> None:
        """Ends as a root that dies: the connections are closed."""
        self.hub = None


def start_guard(
    worker: Worker, address: str, *, mark: Marked, pass_fds: Sequence[int] = (), **more: Any
) -> None:
    """Starts the guard of a worker; returns once the guard has left this process.

    more: of GuardOptions.
    """
    options = GuardOptions(
        worker.pid, host="node1", quiet_ms=QUIET_MS, address=address, records=worker.paths(), **more
    )
    subprocess.run(
        [str(GUARD)], input=options.packed(), env={**os.environ, **mark.environ},
        pass_fds=pass_fds, capture_output=True, check=True, timeout=PATIENCE.limit,
    )  # fmt: skip


def guards(mark: Marked) -> list[Process]:
    """Returns the guards, without their children, which bear the name until they exec."""
    named = [one for one in mark.living() if one.name == "oddrank-guard"]
    return [one for one in named if one.parent not in {guard.pid for guard in named}]


@contextmanager
def watched(
    folder: Path, *, root: Root | None = None, **options: Any
) -> Iterator[tuple[Worker, Root, Marked]]:
    """Yields a worker with its guard, and the root that has welcomed it."""
    mark, root, worker = Marked(), root or Root(), Worker(folder)
    try:
        start_guard(worker, root.address, mark=mark, **options)
        root.until(contact="ok", pid=worker.pid)
        yield worker, root, mark
    finally:
        worker.end()
        mark.kill_all()


def private_bytes(pid: int) -> int:
    """Returns the memory that a process shares with nobody (USS)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private"))


def read_slim(record: bytes) -> dict[str, Any]:
    """Returns the snapshot of a record's bytes."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(record)
        file.flush()
        found: dict[str, Any] = _native.core().trace_snapshot(file.name)
        return found


def functions(record: bytes) -> Sequence[str]:
    """Returns the functions of the main thread's stack in a record, outermost first."""
    found = read_slim(record)
    (main,) = (thread for thread in found["threads"] if thread["tid"] == found["pid"])
    return [frame[0] for frame in main["stack"]]
