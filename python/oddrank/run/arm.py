"""`oddrank.arm()`: the recorder's, and the watch for scripts whose command line can't change."""

from collections.abc import Callable
from typing import Any, TypeVar, overload

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.run.options import ACTIONS, COLLECT, STALL, Action, Options
from oddrank.trace import arm as recorder
from oddrank.trace.arm import Armed
from oddrank.trace.packages import Packages

_unwatched = False  # this process records itself, and no guard watches it yet
Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def arm(
    packages: Packages = None, *, overhead: float | None = recorder.OVERHEAD, watch: bool = False,
    stall: float = STALL, json: str | None = None, on_stall: Action = COLLECT,
) -> Armed: ...  # fmt: skip
@overload
def arm(packages: Function) -> Function: ...
def arm(
    packages: Packages | Function = None, *, overhead: float | None = recorder.OVERHEAD,
    watch: bool = False, stall: float = STALL, json: str | None = None,
    on_stall: Action = COLLECT,
) -> Armed | Function:  # fmt: skip
    """Records from here on where every thread of this process is, for `oddrank trace where`.

    Call it at the top of a training script, use `with oddrank.arm():` around a part of it, or put
    `@oddrank.arm` on a function. The record is a file of 4 MiB (ODDRANK_TRACE_MB) in memory, under
    `$ODDRANK_DIR` or `/dev/shm/oddrank-UID/JOB/`. It survives this process.

    packages: how closely to record packages, on top of the defaults (user code by lines; see
    oddrank.trace.packages.rules): {"mypkg": "lines", "torch": "calls"}, "mypkg=lines,torch=calls",
    or names alone. Levels: off, where, calls, lines.
    Collectives of torch.distributed are recorded from torch's import on, if `_torch` is built or
    torch is 2.14 or newer.
    watch: also starts a guard beside this rank, and on rank 0 a judge, as `oddrank run` does; call
    it on each rank, before the training begins. stall: seconds without progress until a report.
    json: a file for the report. on_stall: "report", "collect" or "kill".
    overhead: the share of its CPU time that a process may spend on recording; None: any. While it
    spends more, the functions with the most events are recorded less closely: by calls, in the
    stack only, or not at all. The record says which, and since when. Functions that wait stay as
    they are. A function that has become quiet is recorded as before.

    Forked and spawned children are recorded too, children of ranks in files of 256 KiB. If arm() is
    called twice, the first call counts, and the first one that watches. Without room for a file,
    the process runs unrecorded, with one warning.
    Returns a handle: a context manager and a decorator. Its remove() ends the recording; its path
    is the record's, "" if there is none. If `packages` is a function, returns that function,
    recorded while it runs.
    OddrankError for an unknown level or action; RuntimeError in a subinterpreter.

    Example: oddrank.arm({"mypkg": "lines"}, watch=True)
    """
    if not (isinstance(stall, int | float) and 1 <= stall < float("inf")):
        raise OddrankError(f"stall={stall!r}: it takes a number, 1 or more seconds")
    if on_stall not in ACTIONS:
        raise OddrankError(f"on_stall={on_stall!r} is none of {', '.join(ACTIONS)}")
    global _unwatched
    _unwatched = _unwatched or not _native.core().trace_armed()
    if watch and _unwatched and not recorder.is_worker():
        from oddrank.run import start

        _unwatched = False
        start.begin(Options(stall, json, on_stall=on_stall))
    if callable(packages):
        return Armed(None, overhead)(packages)
    return Armed(packages, overhead)
