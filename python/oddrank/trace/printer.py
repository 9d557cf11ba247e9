"""The thread that turns recorded events into NicerTrace's text and writes it to sys.stdout."""

import atexit
import io
import linecache
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from oddrank import _native
from oddrank.trace.arm import Armed, warn

_EVERY_MS = 200
# Time limit for a thread that forks to wait until the printing thread is between two writes.
_FORK_SECONDS = 1.0

_one_run = threading.Lock()  # held from begin() to finish()
_now: "Printing | None" = None
_process_is_hooked = False


def begin(make_text: Callable[[], Any], arm: Callable[[], Armed]) -> "Printing | None":
    """Starts to record and print until finish(). Returns None if another run is doing so."""
    global _now
    if not _one_run.acquire(blocking=False):
        warn("another NicerTrace is running: this one traces nothing")
        return None
    try:
        _hook_process()
        _now = Printing(make_text)
        _now.start(arm)
    except BaseException:
        _now = None
        _one_run.release()
        raise
    return _now


class Printing:
    """One run's printing thread.

    text: the compiled core's text and counts of this run.
    """

    def __init__(self, make_text: Callable[[], Any]) -> None:
        self._make_text = make_text
        self.text = make_text()
        self._core = _native.core()
        self._armed: Armed | None = None
        self._trouble: Exception | None = None
        self._unread = False  # stdout has no reader any more
        self._finishing = threading.Lock()  # its holder finishes
        self._forking = 0  # id of the thread that holds _lock while it forks
        self._begin_thread()

    def start(self, arm: Callable[[], Armed]) -> None:
        """Begins to record, as the last step: our own code is not recorded."""
        try:
            self._armed = arm()
            if not self._core.trace_armed():
                return  # no room for a record: arm() has warned
            if not self._armed.path:
                warn("oddrank.arm() has been called before: what it records is traced")
            self._core.trace_text_begin()
        except BaseException:
            self._finish()
            raise

    def finish(self) -> None:
        """Stops recording and returns when everything is written. A second call does nothing."""
        global _now
        if not self._finishing.acquire(blocking=False):
            return
        try:
            self._finish()
        finally:
            _now = None
            _one_run.release()
        if self._trouble is not None:
            warn(f"a part of the trace could not be written: {self._trouble!r}")

    def _finish(self) -> None:
        self._core.trace_text_close()
        if self._armed is not None:
            self._armed.remove()
        try:
            self._end_thread()
        finally:
            self._core.trace_text_end()

    def _begin_thread(self) -> None:
        self._stopping = self._abandoned = False
        self._lock = threading.Lock()  # held while a piece is taken and written
        self._thread: threading.Thread | None = threading.Thread(
            target=self._run, name="oddrank-print", daemon=True
        )
        try:
            self._start_thread(self._thread)
        except BaseException:  # control-C: no one else would end the thread
            self._stopping = self._abandoned = True
            self._core.trace_text_wake()
            raise

    def _start_thread(self, thread: threading.Thread) -> None:
        # Blocks all signals in the new thread: they belong to the program's threads, and sigwait()
        # needs them blocked in all others.
        program = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            thread.start()
        except RuntimeError:  # no more threads: finish() prints everything
            self._thread = None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, program)
        self._core.trace_text_printer((self._thread and self._thread.native_id) or 0)

    def _end_thread(self) -> None:
        """Ends the thread. Like print(), waits for the reader of stdout without a limit."""
        self._stopping = True
        self._core.trace_text_wake()
        try:
            if self._thread is not None:
                self._thread.join()
            else:
                self._print()
        except BaseException:  # control-C: the rest is not wanted
            self._abandoned = True
            raise

    def _run(self) -> None:
        stopping = False
        while not stopping:
            self._core.trace_text_wait(_EVERY_MS)
            stopping = self._stopping
            self._print()

    def _print(self) -> None:
        self._core.trace_text_collect()
        more = True
        while more and not self._abandoned:
            with self._lock:
                more = self._print_piece()

    def _print_piece(self) -> bool:
        try:
            text = self.text.next(_lines_of)
            if text and not self._unread:
                _write(text)
        except BrokenPipeError:  # `... | head`: the program goes on, its lines are still counted
            self._unread = True
            return True
        except Exception as error:
            # A stdout that fails is no reason to end a training.
            self._trouble = error
            return True
        return text is not None

    def before_fork(self) -> None:
        if self._lock.acquire(timeout=_FORK_SECONDS):
            self._forking = threading.get_ident()

    def after_fork_in_parent(self) -> None:
        if self._forking == threading.get_ident():
            self._forking = 0
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Makes the child print its own events; the parent prints those from before the fork."""
        self._core.trace_text_forked()
        self._forking = 0
        self.text = self._make_text()
        self._begin_thread()
        # multiprocessing ends its children by os._exit(), after its own exit functions.
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.register_after_fork(self, _finish_at_exit)


def _finish_at_exit(printing: Printing) -> None:
    sys.modules["multiprocessing.util"].Finalize(None, printing.finish, exitpriority=1000)


def _write(text: str) -> None:
    """Writes to sys.stdout and flushes it; escapes characters that its encoding lacks.

    Writes past the buffer of Python's own stdout: text without a reader would stay in the buffer
    and cause a second error when Python ends.
    """
    stream = sys.stdout
    if stream is None:
        return
    if _is_plain(stream):
        try:
            data = text.encode("utf-8", stream.errors or "strict")
        except UnicodeEncodeError:
            data = text.encode("utf-8", "backslashreplace")
        stream.flush()
        _write_all(stream.fileno(), data)
        return
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = getattr(stream, "encoding", None) or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def _is_plain(stream: Any) -> bool:
    if type(stream) is not io.TextIOWrapper or stream.encoding.lower() != "utf-8":
        return False
    raw = getattr(stream.buffer, "raw", None)
    return isinstance(raw, io.FileIO) and os.get_blocking(raw.fileno())


def _write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def _lines_of(path: str) -> list[str]:
    try:
        lines = linecache.getlines(path)
        "".join(lines).encode()
    except Exception:  # raised by a loader, or the source is no text
        return []
    return lines


def _hook_process() -> None:
    global _process_is_hooked
    if not _process_is_hooked:
        _process_is_hooked = True
        atexit.register(_tell, "finish")  # for a run in a thread that Python does not wait for
        os.register_at_fork(
            before=lambda: _tell("before_fork"),
            after_in_parent=lambda: _tell("after_fork_in_parent"),
            after_in_child=lambda: _tell("after_fork_in_child"),
        )


def _tell(what: str) -> None:
    if _now is not None:
        getattr(_now, what)()
