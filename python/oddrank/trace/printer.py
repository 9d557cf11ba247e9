"""The thread that turns recorded events into NicerTrace's text and writes it to sys.stdout."""

import contextlib
import linecache
import os
import select
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

from oddrank import _native
from oddrank.trace.arm import Armed

_EVERY_MS = 200
# A thread that forks waits so long for the printing one to be between two writes.
_FORK_SECONDS = 1.0

_one_run = threading.Lock()  # held from begin() to finish()
_now: "Printing | None" = None
_forks_are_hooked = False


def begin(make_text: Callable[[], Any], arm: Callable[[], Armed]) -> "Printing | None":
    """Records from here to finish(), and prints it as the text that is made; None: another does."""
    global _now
    if not _one_run.acquire(blocking=False):
        warnings.warn(
            "another NicerTrace is running: this one traces nothing", RuntimeWarning, stacklevel=4
        )
        return None
    try:
        _hook_forks()
        _now = Printing(make_text)
        _now.start(arm)
    except BaseException:
        _now = None
        _one_run.release()
        raise
    return _now


class Printing:
    """One run's printing thread.

    text: what has been printed and counted, as the native core has it.
    """

    def __init__(self, make_text: Callable[[], Any]) -> None:
        self._make_text = make_text
        self.text = make_text()
        self._core = _native.core()
        self._armed: Armed | None = None
        self._trouble: Exception | None = None
        self._finished = False
        self._begin_thread()

    def start(self, arm: Callable[[], Armed]) -> None:
        """Begins to record: as the last thing, so that nothing of ours is among it."""
        try:
            self._armed = arm()
            if not self._core.trace_armed():
                return  # no room for a record; arm() has said so
            if not self._armed.path:
                warnings.warn(
                    "oddrank.arm() has been called before: what it records is traced",
                    RuntimeWarning,
                    stacklevel=5,
                )
            self._core.trace_text_begin(self._write_end, self._printer)
        except BaseException:
            self._finish()
            raise

    def finish(self) -> None:
        """Records no more, and returns when all has been written. Does nothing a second time."""
        global _now
        if self._finished:
            return
        try:
            self._finish()
        finally:
            _now = None
            _one_run.release()
        if self._trouble is not None:
            warnings.warn(
                f"a part of the trace could not be written: {self._trouble!r}",
                RuntimeWarning,
                stacklevel=5,
            )

    def _finish(self) -> None:
        self._finished = True
        self._core.trace_text_close()
        if self._armed is not None:
            self._armed.disarm()
        try:
            self._end_thread()
        finally:
            self._core.trace_text_end()

    def _begin_thread(self) -> None:
        self._stopping = False
        self._lock = threading.Lock()  # held while a piece is taken and written
        self._read_end, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread: threading.Thread | None = threading.Thread(
            target=self._run, name="oddrank-print", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError:  # no more threads: finish() prints what has been kept
            self._thread = None
        self._printer = (self._thread and self._thread.native_id) or 0

    def _end_thread(self) -> None:
        """As print() would, it waits for whoever reads stdout as long as they take."""
        self._stopping = True
        os.write(self._write_end, b"\0")
        if self._thread is not None:
            self._thread.join()
        else:
            self._print()
        os.close(self._read_end)
        os.close(self._write_end)

    def _run(self) -> None:
        wake = select.poll()
        wake.register(self._read_end, select.POLLIN)
        while True:
            wake.poll(_EVERY_MS)
            with contextlib.suppress(BlockingIOError):
                os.read(self._read_end, 4096)
            stopping = self._stopping
            self._print()
            if stopping:
                return

    def _print(self) -> None:
        self._core.trace_text_collect()
        more = True
        while more:
            with self._lock:
                more = self._print_piece()

    def _print_piece(self) -> bool:
        try:
            text = self.text.next(_lines_of)
            if text:
                _write(text)
        except Exception as error:
            # What stdout does not take is no reason to end a training.
            self._trouble = error
            return True
        return text is not None

    def before_fork(self) -> None:
        self._locked = self._lock.acquire(timeout=_FORK_SECONDS)

    def after_fork_in_parent(self) -> None:
        if self._locked:
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """The child prints for itself; what it inherits unprinted is the parent's."""
        for end in (self._read_end, self._write_end):
            os.close(end)
        self._begin_thread()
        self.text = self._make_text()
        self._core.trace_text_forked(self._write_end, self._printer)
        # multiprocessing ends its children by os._exit(), after its own exit functions.
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.register_after_fork(self, _finish_at_exit)


def _finish_at_exit(printing: Printing) -> None:
    sys.modules["multiprocessing.util"].Finalize(None, printing.finish, exitpriority=1000)


def _lines_of(path: str) -> list[str]:
    try:
        lines = linecache.getlines(path)
        "".join(lines).encode()
    except Exception:  # of a loader, or source that is no text
        return []
    return lines


def _write(text: str) -> None:
    stream = sys.stdout
    if stream is None:
        return
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = getattr(stream, "encoding", None) or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def _hook_forks() -> None:
    global _forks_are_hooked
    if not _forks_are_hooked:
        _forks_are_hooked = True
        os.register_at_fork(
            before=lambda: _tell("before_fork"),
            after_in_parent=lambda: _tell("after_fork_in_parent"),
            after_in_child=lambda: _tell("after_fork_in_child"),
        )


def _tell(what: str) -> None:
    if _now is not None:
        getattr(_now, what)()
