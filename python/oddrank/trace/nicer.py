"""`NicerTrace`: runs code and prints each of its calls and lines, as the handbook's class does.

A line's thread records it natively (arm.py). A thread that has filled half of its ring copies all
rings to a queue. The printing thread turns the queue into text natively and writes it to
sys.stdout, every 0.2 s or as soon as there is much. Threads that record faster wait for it. run()
returns when everything is written. If the process is killed, the rest is in the record file.
"""

import atexit
import functools
import linecache
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from trace import CoverageResults
from typing import Any, ParamSpec, TypeVar

import __main__
from oddrank import _native
from oddrank.printing import printflock
from oddrank.trace import packages
from oddrank.trace.arm import Armed, warn

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_EVERY_MS = 200
# Time limit for a thread that forks to wait until the printing thread is between two writes.
_FORK_SECONDS = 1.0

_one_run = threading.Lock()  # held for a run
_now: "_Printing | None" = None


class NicerTrace:
    """Prints each call and line that it runs, at native speed. A drop-in for the handbook's class.

        tracer = NicerTrace(timing=True, packages_to_include=["PIL"])
        tracer.run("main()")        # or tracer.runfunc(main, *args, **kwargs)

    prints calls to sys.stdout (Tee writes them to a file too), and lines with the time since the
    tracer was made:

         PIL.Image:3067 new
        0:00:00 Image.py:  3083:     _check_size(size)

    count: count lines, for results().write_results(). trace: print. countfuncs, countcallers: only
    note which functions are called, or by whom. outfile, infile: passed to results(). timing: print
    the time. log_pids: begin each line with the process id, to tell forked children apart.

    packages_to_include: None traces everything except ignoremods and ignoredirs. "uninstalled"
    traces code that is neither installed nor of the standard library (an editable install counts as
    uninstalled, see oddrank.trace.packages). Names: these packages and modules, and uninstalled
    code. ignoremods: packages and modules to leave out, by the names they are imported by.
    ignoredirs: folders to leave out; raises ValueError together with packages_to_include.

    Text comes at most 0.2 s after the event and is complete when run() returns; lines that the
    program prints itself appear earlier. All threads and forked children are traced. If events are
    dropped, a line says how many. If a process is killed, ends by os._exit() or exec, or hangs with
    the GIL, its record file has the text not yet printed and the stacks of all its threads:
    `oddrank trace tail FILE` (or `where`).

    Differences from the handbook's class: a line with unknown source ends like any other; trace=1,
    count=0 looks as with count=1; code of more than 4,000 instructions shows its calls only. One
    run() at a time: a second one runs its code untraced.
    """

    def __init__(  # noqa: PLR0917 - as users of the handbook's class call it
        self, count: Any = 1, trace: Any = 1, countfuncs: Any = 0, countcallers: Any = 0,
        ignoremods: Iterable[str] = (), ignoredirs: Iterable[str] | None = (),
        infile: str | None = None, outfile: str | None = None, timing: Any = False, *,
        packages_to_include: str | Iterable[str] | None = None, log_pids: Any = False,
    ) -> None:  # fmt: skip
        self.infile, self.outfile = infile, outfile
        self.counts: dict[tuple[str, int], int] = {}
        self.log_pids = log_pids
        self.donothing = not (count or trace or countfuncs or countcallers)
        self.start_ns = time.time_ns() if timing else None
        self._functions = bool(countfuncs or countcallers)
        self._with_callers = bool(countcallers)
        self._says = bool(trace) and not self._functions
        self._counts = bool(count) and not self._functions
        self._rules = _rules(
            "calls" if self._functions else "lines", packages_to_include, ignoremods, ignoredirs
        )
        # Functions: file, module, name.
        self._calledfuncs: dict[Any, int] = {}
        self._callers: dict[Any, int] = {}

    def run(self, cmd: Any) -> None:
        """Executes `cmd` (text or code) in the namespace of __main__, and traces it."""
        self.runctx(cmd, __main__.__dict__, __main__.__dict__)

    def runctx(
        self, cmd: Any, globals: dict[str, Any] | None = None, locals: Any | None = None
    ) -> None:
        """Executes `cmd` in these namespaces (by default empty ones), and traces it."""
        globals = {} if globals is None else globals
        locals = {} if locals is None else locals
        self._traced(lambda: exec(cmd, globals, locals), str(globals.get("__file__") or ""))

    def runfunc(
        self, func: Callable[Parameters, Result], /, *args: Parameters.args, **kw: Parameters.kwargs
    ) -> Result:
        """Returns or raises what func(*args, **kw) does, and traces it."""
        return self._traced(lambda: func(*args, **kw), "")

    def results(self) -> CoverageResults:
        """Returns all counts so far, as the standard library's trace.CoverageResults."""
        return CoverageResults(
            self.counts, infile=self.infile, outfile=self.outfile,
            calledfuncs=self._calledfuncs, callers=self._callers,
        )  # fmt: skip

    def _traced(self, work: Callable[[], Result], script: str) -> Result:
        if self.donothing:
            return work()
        if not _one_run.acquire(blocking=False):
            warn("another NicerTrace is running: this one traces nothing")
            return work()
        roots = [folder for folders in reversed(packages.roots()) for folder in folders]

        def make_text() -> Any:
            return _native.core().TraceText(
                says=self._says, counts=self._counts, callers=self._with_callers,
                start_ns=self.start_ns, pid=os.getpid() if self.log_pids else 0,
                script=script, roots=roots,
            )  # fmt: skip

        printing = _Printing(make_text)
        try:
            printing.start(self._rules)
            return work()
        finally:
            printing.finish()
            self._add(printing.text)

    def _add(self, text: Any) -> None:
        for file, line, count in text.lines():
            self.counts[file, line] = self.counts.get((file, line), 0) + count
        if self._functions:
            for file, name in text.called():
                self._calledfuncs[file, Path(file).stem, name] = 1
            for each in text.callers():
                caller, called = ((file, Path(file).stem, name) for file, name in each)
                self._callers[caller, called] = 1


def _rules(
    level: str,
    include: str | Iterable[str] | None,
    ignoremods: Iterable[str],
    ignoredirs: Iterable[str] | None,
) -> dict[str, str]:
    dirs = [ignoredirs] if isinstance(ignoredirs, str) else list(ignoredirs or ())
    mods = [ignoremods] if isinstance(ignoremods, str) else list(ignoremods)
    if dirs and include is not None:
        raise ValueError("ignoredirs and packages_to_include: give one of them")
    if include is None:
        rules = {"*": level}
    else:
        names = [include] if isinstance(include, str) else list(include)
        # Entries of site-packages count as names too: six.py
        rules = {name.removesuffix(".py"): level for name in ("uninstalled", *names)}
        rules["*"] = "off"
    rules = {
        name: chosen
        for name, chosen in rules.items()
        if not any(name.startswith(f"{mod}.") for mod in mods)
    }
    rules.update(dict.fromkeys(mods, "off"))
    for folder in dirs:
        for path in (os.path.abspath(folder), os.path.realpath(folder)):
            rules[path.rstrip("/") + "/"] = "off"
    return rules


class _Printing:
    """One run: the thread that turns recorded events into text and writes it to sys.stdout.

    text: the compiled core's text and counts of this run.
    """

    def __init__(self, make_text: Callable[[], Any]) -> None:
        self._make_text, self.text = make_text, make_text()
        self._core = _native.core()
        self._armed: Armed | None = None
        self._trouble: Exception | None = None
        self._unread = False  # stdout has no reader any more
        self._finishing = threading.Lock()  # its holder finishes
        self._forking = 0  # id of the thread that holds _lock while it forks
        self._prepare_thread()

    def start(self, rules: dict[str, str]) -> None:
        """Begins to print, then to record: our own code is not recorded."""
        global _now
        _hook_process()
        _now = self
        self._start_thread()
        self._armed = Armed(rules, None)
        if not self._core.trace_armed():
            return  # no room for a record: arm() has warned
        if not self._armed.path:
            warn("oddrank.arm() has been called before: what it records is traced")
        self._core.trace_text_begin()

    def finish(self) -> None:
        """Stops recording and returns when everything is written. A second call does nothing."""
        global _now
        if not self._finishing.acquire(blocking=False):
            return
        try:
            self._core.trace_text_close()
            if self._armed is not None:
                self._armed.remove()
            self._end_thread()
        finally:
            self._core.trace_text_end()
            _now = None
            _one_run.release()
        if self._trouble is not None:
            warn(f"a part of the trace could not be written: {self._trouble!r}")

    def _prepare_thread(self) -> None:
        self._stopping = self._abandoned = False
        self._lock = threading.Lock()  # held while a piece is taken and written
        self._thread = threading.Thread(target=self._run, name="oddrank-print", daemon=True)

    def _start_thread(self) -> None:
        # Blocks all signals in the new thread: they belong to the program's threads, and sigwait()
        # needs them blocked in all others.
        program = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()
        except RuntimeError:  # no more threads: finish() prints everything
            pass
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, program)
        self._core.trace_text_printer(self._thread.native_id or 0)

    def _end_thread(self) -> None:
        """Ends the thread. Like print(), waits for the reader of stdout without a limit."""
        self._stopping = True
        self._core.trace_text_wake()
        try:
            if self._thread.ident is not None:
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
        text: str | None = ""
        while text is not None and not self._abandoned:
            with self._lock:
                try:
                    text = self.text.next(_lines_of)
                    if text and not self._unread:
                        _write(text)
                except BrokenPipeError:  # `... | head`: the program goes on, its lines still count
                    self._unread = True
                except Exception as error:  # no reason to end a training
                    self._trouble = error

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
        self._prepare_thread()
        self._start_thread()
        # multiprocessing ends its children by os._exit(), after its own exit functions.
        if util := sys.modules.get("multiprocessing.util"):
            finalize = util.Finalize
            util.register_after_fork(
                self, lambda one: finalize(None, one.finish, exitpriority=1000)
            )


def _write(text: str) -> None:
    """Writes to sys.stdout and flushes it; escapes characters that its encoding lacks.

    printflock writes past the buffer of Python's own stdout: text without a reader would stay there
    and cause a second error when Python ends.
    """
    stream = sys.stdout
    if stream is None:
        return
    try:
        printflock(text, end="", file=stream)
    except UnicodeEncodeError:
        encoding = getattr(stream, "encoding", None) or "ascii"
        printflock(text.encode(encoding, "backslashreplace").decode(encoding), end="", file=stream)
    stream.flush()


def _lines_of(path: str) -> list[str]:
    try:
        lines = linecache.getlines(path)
        "".join(lines).encode()
    except Exception:  # raised by a loader, or the source is no text
        return []
    return lines


@functools.cache
def _hook_process() -> None:
    def tell(what: str) -> Callable[[], None]:
        return lambda: None if _now is None else getattr(_now, what)()

    atexit.register(tell("finish"))  # for a run in a thread that Python does not wait for
    os.register_at_fork(
        before=tell("before_fork"),
        after_in_parent=tell("after_fork_in_parent"),
        after_in_child=tell("after_fork_in_child"),
    )
