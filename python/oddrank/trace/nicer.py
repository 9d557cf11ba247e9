"""`NicerTrace`: runs code and prints each of its calls and lines, as the handbook's class does.

A line's thread records it natively (arm.py). A thread that has filled half of its ring copies all
rings to a queue. The printing thread turns the queue into text natively and writes it to
sys.stdout, every 0.2 s or as soon as there is much. Threads that record faster wait for it. run()
returns when everything is written. If the process is killed, the rest is in the record file.
"""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from trace import CoverageResults
from typing import Any, ParamSpec, TypeAlias, TypeVar

import __main__
from oddrank import _native
from oddrank.trace import packages, printer
from oddrank.trace.arm import arm

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_Function: TypeAlias = tuple[str, str | None, str]  # file, module, name: as trace has them


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
        self,
        count: Any = 1,
        trace: Any = 1,
        countfuncs: Any = 0,
        countcallers: Any = 0,
        ignoremods: Iterable[str] = (),
        ignoredirs: Iterable[str] | None = (),
        infile: str | None = None,
        outfile: str | None = None,
        timing: Any = False,
        *,
        packages_to_include: str | Iterable[str] | None = None,
        log_pids: Any = False,
    ) -> None:
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
        self._calledfuncs: dict[_Function, int] = {}
        self._callers: dict[tuple[_Function, _Function], int] = {}

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
        self,
        func: Callable[Parameters, Result],
        /,
        *args: Parameters.args,
        **kw: Parameters.kwargs,
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
        core = _native.core()
        roots = [folder for folders in reversed(packages.roots()) for folder in folders]

        def make_text() -> Any:
            return core.TraceText(
                says=self._says, counts=self._counts, callers=self._with_callers,
                start_ns=self.start_ns, pid=os.getpid() if self.log_pids else 0,
                script=script, roots=roots,
            )  # fmt: skip

        printing = printer.begin(make_text, lambda: arm(self._rules, budget=None))
        if printing is None:
            return work()
        try:
            return work()
        finally:
            printing.finish()
            self._add(printing.text)

    def _add(self, text: Any) -> None:
        for file, line, count in text.lines():
            self.counts[file, line] = self.counts.get((file, line), 0) + count
        if self._functions:
            for file, name in text.called():
                self._calledfuncs[_function(file, name)] = 1
            for caller, called in text.callers():
                self._callers[_function(*caller), _function(*called)] = 1


def _rules(
    level: str,
    include: str | Iterable[str] | None,
    ignoremods: Iterable[str],
    ignoredirs: Iterable[str] | None,
) -> dict[str, str]:
    """Turns the handbook's arguments into rules for arm()."""
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


def _function(file: str, name: str) -> _Function:
    return file, Path(file).stem, name
