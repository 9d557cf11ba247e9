"""`oddrank.arm()`: the recorder's, and the watch for scripts whose command line can't change."""

import shutil
from collections.abc import Callable
from typing import Any, TypeVar, overload

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.trace import arm as recorder
from oddrank.trace.arm import Armed
from oddrank.trace.packages import Packages

STALL = 60.0
"""Seconds without any progress that are a stall, by default."""
REPORT, COLLECT, KILL = "report", "collect", "kill"
"""What to do at a stall: say it; save the evidence, too; then end all ranks."""
OUTPUT = "oddrank-collected"
"""The folder for evidence, by default."""

Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def arm(
    packages: Packages = None,
    *,
    hook: str | None = None,
    budget: float | None = recorder.BUDGET,
    watch: bool = False,
    stall: float = STALL,
    json: str | None = None,
    on_stall: str = COLLECT,
) -> Armed: ...
@overload
def arm(packages: Function) -> Function: ...
def arm(
    packages: Any = None,
    *,
    hook: str | None = None,
    budget: float | None = recorder.BUDGET,
    watch: bool = False,
    stall: float = STALL,
    json: str | None = None,
    on_stall: str = COLLECT,
) -> Any:
    """Records from here on where every thread of this process is, for `oddrank trace where`.

    watch: starts a guard beside this rank, and on rank 0 a judge, as `oddrank run` does; stall,
    json and on_stall as its options. Call it once on each rank, before the training begins.
    """
    if watch and not stall >= 1:
        raise OddrankError(f"stall={stall!r}: it takes 1 or more seconds")
    if watch:
        check_action(on_stall, json)
    if watch and not recorder.is_worker() and not _native.core().trace_armed():
        from oddrank.run import start

        start.begin(start.Options(stall, json, on_stall=on_stall))
    return recorder.arm(packages, hook=hook, budget=budget)


def check_action(action: str, json_path: str | None) -> None:
    """Refuses what is neither a known action nor a command: at the stall it would be too late."""
    if action not in (REPORT, COLLECT, KILL):
        check_command("on stall", action, json_path, "report, collect, kill or ")


def check_command(when: str, action: str, json_path: str | None, others: str = "") -> None:
    if not action.split() or (len(action.split()) == 1 and shutil.which(action) is None):
        raise OddrankError(f"{when}, {action!r} is no command: name {others}a shell command")
    if "{report}" in action and json_path is None:
        raise OddrankError(f"{when}, {action!r} needs a report: name its file by --json or json=")
