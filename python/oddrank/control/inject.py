"""The one seam for faults in tests: ODDRANK_INJECT="kill:rank=2,stage=all_reduce,step=3;...".

Refused unless ODDRANK_TESTING=1. Stages never mention it: Session.enter and Session.progress do.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from oddrank.errors import OddrankError

_FOR_EVER = 1_000_000


@dataclass(frozen=True)
class Fault:
    """One fault; fires at the begin of `stage`, or at `step` of it where a step is given."""

    kind: str
    rank: int
    stage: str
    step: str | None = None
    seconds: float = 1.0


def _send(number: int) -> Callable[[Fault], None]:
    def fire(_: Fault) -> None:
        os.kill(os.getpid(), number)

    return fire


def _sleep(_: Fault) -> None:
    time.sleep(_FOR_EVER)


def _slow(fault: Fault) -> None:
    time.sleep(fault.seconds)


def _raise(_: Fault) -> NoReturn:
    raise RuntimeError("injected by ODDRANK_INJECT")


def _exit0(_: Fault) -> NoReturn:
    sys.exit(0)


def _segfault(_: Fault) -> None:
    ctypes.string_at(8)


def _abort(_: Fault) -> NoReturn:
    os.abort()


def _hold_gil(_: Fault) -> None:
    ctypes.PyDLL(None).sleep(_FOR_EVER)  # PyDLL keeps the GIL during the call


def _nothing(_: Fault) -> None:
    """Consumed by the stage itself through Session.injected."""


_KINDS: dict[str, Callable[[Fault], None]] = {
    "kill": _send(signal.SIGKILL),
    "stop": _send(signal.SIGSTOP),
    "segfault": _segfault,
    "abort": _abort,
    "sleep": _sleep,
    "raise": _raise,
    "exit0": _exit0,
    "gil": _hold_gil,
    "slow": _slow,
    "value": _nothing,
}


def parse(text: str) -> tuple[Fault, ...]:
    """Every fault of `text`. OddrankError where it is malformed."""
    return tuple(_fault(one.strip()) for one in text.split(";") if one.strip())


def _fault(text: str) -> Fault:
    kind, _, rest = text.partition(":")
    form = "expected kind:rank=N,stage=NAME[,step=TEXT], of slow also [,seconds=S]; kinds: "
    form += ", ".join(_KINDS)
    pairs = dict(pair.strip().partition("=")[::2] for pair in rest.split(",") if pair.strip())
    fields = _FIELDS | {"seconds"} if kind == "slow" else _FIELDS
    if kind not in _KINDS or not {"rank", "stage"} <= set(pairs) <= fields:
        raise OddrankError(f"ODDRANK_INJECT: {text!r}: {form}")
    try:
        rank, seconds = int(pairs["rank"]), float(pairs.get("seconds", "1"))
    except ValueError as error:
        raise OddrankError(f"ODDRANK_INJECT: {text!r}: {error}; {form}") from error
    return Fault(kind, rank, pairs["stage"], pairs.get("step"), seconds)


_FIELDS = {"rank", "stage", "step"}


def check(stages: Sequence[str], world: int) -> None:
    """OddrankError where a fault of ODDRANK_INJECT could never happen in these stages."""
    for fault in parse(os.environ.get("ODDRANK_INJECT", "")):
        if fault.stage not in ("join", *stages):
            known = ", ".join(("join", *stages))
            raise OddrankError(f"ODDRANK_INJECT: no stage {fault.stage!r}: there are {known}")
        if not 0 <= fault.rank < world:
            raise OddrankError(f"ODDRANK_INJECT: no rank {fault.rank}: there are {world}")


class Injector:
    """The faults of one rank, of which most runs have none."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self._faults = faults
        self._stage = "join"

    @staticmethod
    def of(rank: int, environ: Mapping[str, str] = os.environ) -> "Injector":
        """The faults that ODDRANK_INJECT has for `rank`; OddrankError outside tests."""
        text = environ.get("ODDRANK_INJECT", "")
        if text and environ.get("ODDRANK_TESTING") != "1":
            raise OddrankError("ODDRANK_INJECT is for tests: unset it, or set ODDRANK_TESTING=1")
        return Injector(tuple(fault for fault in parse(text) if fault.rank == rank))

    def enter(self, stage: str) -> None:
        """A stage begins."""
        self._stage = stage
        for fault in self._faults:
            if fault.stage == stage and fault.step is None:
                _KINDS[fault.kind](fault)

    def progress(self, step: str) -> None:
        """A step begins; `step` of a fault is the step's text or one word of it."""
        for fault in self._faults:
            here = fault.stage == self._stage and fault.step is not None
            if here and (fault.step == step or fault.step in step.split()):
                _KINDS[fault.kind](fault)

    def has(self, kind: str) -> bool:
        """Whether the current stage has a fault of `kind`, for those that the stage consumes."""
        return any(fault.kind == kind and fault.stage == self._stage for fault in self._faults)
