"""Runs pieces of work in child processes, each with a deadline: none of them can hang this one.

A child that does not end when it is killed is in the kernel, in a file system or driver that does
not answer. It is abandoned and named.
"""

import json
import os
import select
import selectors
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from oddrank.errors import OddrankError
from oddrank.machine import end_with, process_state, small_file
from oddrank.triage.timeline import signal_name

Say = Callable[[Mapping[str, Any]], None]
_MOST_AT_ONCE = 64
_TICK = 0.1  # seconds after which a signal is seen
_LAST_WAIT = 0.5  # for a child that was killed and hangs
_RUNNABLE_WAIT = 10.0  # for one that was killed and waits for a core
_PIECE = 1 << 16
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class Task:
    """A piece of work. It sends messages with its results; `at` names its present step."""

    name: str
    work: Callable[[Say], None]
    seconds: float
    errors: int | None = None
    """The descriptor of a file for its stderr."""


@dataclass
class Result:
    """A task's messages. why: why it did not finish; "" if it did."""

    said: list[dict[str, Any]] = field(default_factory=list)
    why: str = ""
    at: str = ""
    refused: bool = False
    """It refused its work in words for the user, which `why` has."""
    left: int | None = None
    """The pid of its process, if that hangs in the kernel and was left behind."""

    def of(self, key: str) -> list[Any]:
        """Returns the values of a key in all messages that have it."""
        return [message[key] for message in self.said if key in message]

    def lacks(self, what: str) -> list[dict[str, Any]]:
        """Returns the manifest's entry for a task that did not finish."""
        return [{"what": what, "why": self.why, "absent": False}] if self.why else []


@dataclass
class Stop:
    """Set once a signal asked this process to end: results until then are kept."""

    by: str = ""

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        def note(number: int, _: object) -> None:
            self.by = self.by or signal.Signals(number).name

        before = {number: signal.signal(number, note) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclass
class _Child:
    task: Task
    pid: int
    pipe: int
    seconds: float
    end: float
    result: Result = field(default_factory=Result)
    rest: bytes = b""


def run_all(tasks: Sequence[Task], until: float, stop: Stop) -> list[Result]:
    """Runs all tasks at the same time; returns their results in the same order.

    until: monotonic time at which all of them end, inf: each after its own seconds. After a signal,
    tasks that still run are killed.
    """
    results: dict[str, Result] = {}
    waiting = list(reversed(tasks))
    with selectors.DefaultSelector() as pipes:
        running: dict[int, _Child] = {}
        while waiting or running:
            while waiting and len(running) < _MOST_AT_ONCE and not stop.by:
                child = _start(waiting.pop(), until)
                running[child.pipe] = child
                pipes.register(child.pipe, selectors.EVENT_READ)
            for key, _ in pipes.select(_TICK):
                if not _hear(running[key.fd]):
                    pipes.unregister(key.fd)
                    child = running.pop(key.fd)
                    results[child.task.name] = _ended(child)
            now = time.monotonic()
            for child in list(running.values()):
                if stop.by or now >= child.end:
                    pipes.unregister(child.pipe)
                    del running[child.pipe]
                    # If this process was paused, the child may have ended in time.
                    ended = _hear_all(child)
                    results[child.task.name] = _ended(child) if ended else _killed(child, stop)
            if stop.by:
                for task in waiting:
                    results[task.name] = Result(why=f"not begun before {stop.by}")
                waiting = []
    return [results[task.name] for task in tasks]


def _start(task: Task, until: float) -> _Child:
    now = time.monotonic()
    end = min(now + task.seconds, until)
    parent = os.getpid()
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        _work(task, theirs, parent)
    os.close(theirs)
    os.set_blocking(ours, False)
    return _Child(task, pid, ours, max(0.0, end - now), end)


def _work(task: Task, pipe: int, parent: int) -> NoReturn:
    """Is the child. It holds none of its parent's open files: it may outlive the command."""
    code = 1
    try:
        os.setsid()
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        end_with(parent)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        if task.errors is not None:
            os.dup2(task.errors, 2)
        close_all_but(pipe)
        task.work(lambda message: _send(pipe, message))
        code = 0
    except BaseException as error:
        refused = isinstance(error, OddrankError)
        text = str(error) if refused else repr(error)
        with suppress(BaseException):
            _send(pipe, {"failed": text[:500], "refused": refused})
    finally:
        os._exit(code)


def close_all_but(kept: int) -> None:
    """Closes all that this process has open, however many, but 0 to 2 and `kept`."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            with suppress(OSError):  # listdir's own
                os.close(int(name))


def _send(pipe: int, message: Mapping[str, Any]) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(pipe, data) :]


def _hear(child: _Child) -> bool:
    """Takes a child's messages. Returns False at its end."""
    try:
        data = os.read(child.pipe, _PIECE)
    except BlockingIOError:
        return True
    *lines, child.rest = (child.rest + data).split(b"\n")
    for line in lines:
        message = json.loads(line)
        child.result.at = message.pop("at", child.result.at)
        if "failed" in message:
            child.result.why, child.result.refused = message["failed"], message["refused"]
        elif message:
            child.result.said.append(message)
    return bool(data)


def _hear_all(child: _Child) -> bool:
    """Takes a child's messages until now. Returns whether the child has finished."""
    poll = select.poll()
    poll.register(child.pipe, select.POLLIN)
    # One piece is all that a pipe holds; then comes the end, or a child that writes without end.
    return any(poll.poll(0) and not _hear(child) for _ in range(2))


def _ended(child: _Child) -> Result:
    os.close(child.pipe)
    status = _reaped(child.pid)
    if status is not None and os.WIFSIGNALED(status) and not child.result.why:
        child.result.why = f"{signal_name(os.WTERMSIG(status))} ended it"
    return child.result


def _killed(child: _Child, stop: Stop) -> Result:
    """Ends a child and the processes it has started."""
    for kill, pid in ((os.killpg, child.pid), (os.kill, child.pid)):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
    _hear_all(child)
    os.close(child.pipe)
    result = child.result
    at = f", at {result.at}" if result.at else ""
    if stop.by:
        result.why = f"cut short by {stop.by}{at}"
    else:
        result.why = f"no answer within {child.seconds:.3g} s{at}"
    if _reaped(child.pid) is None:
        kernel = small_file(f"/proc/{child.pid}/wchan")
        where = f" ({kernel})" if kernel not in ("", "0") else ""
        result.left = child.pid
        result.why += f"; its process {child.pid} hangs in the kernel{where} and was left behind"
    return result


def _reaped(pid: int) -> int | None:
    """Returns the status of a child that ends; None if it does not."""
    now = time.monotonic()
    end, last = now + _LAST_WAIT, now + _RUNNABLE_WAIT
    while True:
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return 0
        if found:
            return status
        now = time.monotonic()
        if process_state(pid) == "R":  # it only waits for a core in which to end
            end = min(now + _LAST_WAIT, last)
        if now >= end:
            return None
        time.sleep(0.005)
