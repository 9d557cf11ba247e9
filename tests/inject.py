"""Faults of ranks: ODDRANK_TESTING=inject ODDRANK_INJECT="kill:rank=2,stage=train,step=3;...".

The ranks find this module by PYTHONPATH. A Session applies its faults; stages never mention them.
Two kinds falsify a rank's result: "scale:rank=2,stage=speed,name=copy,by=0.95" multiplies the
number of this name, or each number of the list; "set:rank=1,stage=environment,name=torch,value=2.0"
replaces the value with JSON, or with the text if it is no JSON. Dots in a name descend into
mappings.
"""

import ctypes
import json
import math
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from oddrank.control.stages import JOIN, NoFaults, Timestamps
from oddrank.errors import OddrankError

_FORM = (
    "expected kind:rank=N,stage=NAME[,step=TEXT], of slow, late and jitter also [,seconds=S],"
    " of jitter [,share=0..1], of scale ,name=NAME,by=X, of set ,name=NAME,value=V"
)


@dataclass(frozen=True)
class Fault:
    """One fault. Fires when `stage` begins, or at its `step` if one is given.

    late and jitter delay enter() of the timestamps made in that stage: late each call, jitter a
    random `share` of the calls, the same ones in every run. name: the entry that scale and set
    falsify.
    """

    kind: str
    rank: int
    stage: str
    step: str | None = None
    seconds: float = 1.0
    share: float = 1.0
    name: str = ""
    by: float = 1.0
    value: str = ""

    def is_at(self, stage: str, step: str) -> bool:
        """Returns whether it is for this stage, and for this step, a word of it, or any step."""
        return self.stage == stage and (self.step is None or self.step in (step, *step.split()))


def _raise(_: Fault) -> NoReturn:
    raise RuntimeError("injected by ODDRANK_INJECT")


def _hold_gil(_: Fault) -> None:
    # PyDLL keeps the GIL during the call, and the kernel resumes a read after a signal.
    reader, _writer = os.pipe()
    ctypes.PyDLL(None).read(reader, ctypes.create_string_buffer(1), 1)


_KINDS: dict[str, Callable[[Fault], object]] = {
    "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
    "segfault": lambda _: ctypes.string_at(8),
    "abort": lambda _: os.abort(),
    "sleep": lambda _: time.sleep(1e6),
    "raise": _raise,
    "exit0": lambda _: sys.exit(0),
    "gil": _hold_gil,
    "slow": lambda fault: time.sleep(fault.seconds),
    # Applied elsewhere: by the Context, timestamps or said.
    **dict.fromkeys(("value", "late", "jitter", "scale", "set"), lambda _: None),
}
# Parameters of a kind, besides rank, stage and step.
_MORE = {
    "slow": {"seconds"}, "late": {"seconds"}, "jitter": {"seconds", "share"},
    "scale": {"name", "by"}, "set": {"name", "value"},
}  # fmt: skip
_TYPES = {"rank": int, "seconds": float, "share": float, "by": float}


def parse(text: str) -> tuple[Fault, ...]:
    """Returns the faults of `text`. OddrankError if it is malformed."""
    return tuple(_fault(one.strip()) for one in text.split(";") if one.strip())


def _fault(text: str) -> Fault:
    kind, _, rest = text.partition(":")
    form = f"{_FORM}; kinds: {', '.join(_KINDS)}"
    pairs = dict(pair.strip().partition("=")[::2] for pair in rest.split(",") if pair.strip())
    fields = {"rank", "stage", "step"} | _MORE.get(kind, set())
    if kind not in _KINDS or not {"rank", "stage"} <= set(pairs) <= fields:
        raise OddrankError(f"ODDRANK_INJECT: {text!r}: {form}")
    try:
        values: dict[str, Any] = {
            name: _TYPES.get(name, str)(value) for name, value in pairs.items()
        }
        made = Fault(kind, **values)
        if not (0 <= made.seconds < math.inf and 0 <= made.share <= 1):
            raise ValueError("seconds are not negative, and a share is between 0 and 1")
    except ValueError as error:
        raise OddrankError(f"ODDRANK_INJECT: {text!r}: {error}; {form}") from error
    return made


class _DelayedTimestamps:
    """Native timestamps with an enter() that sleeps first."""

    def __init__(
        self, timestamps: Timestamps, delays: Sequence[tuple[Fault, random.Random]]
    ) -> None:
        self._timestamps, self._delays = timestamps, delays

    def __getattr__(self, name: str) -> Any:
        return getattr(self._timestamps, name)

    def enter(self) -> None:
        for fault, dice in self._delays:
            if dice.random() < fault.share:  # late: always
                time.sleep(fault.seconds)
        self._timestamps.enter()


def _falsified(fault: Fault, value: Any) -> Any:
    if fault.kind == "scale":
        return [one * fault.by for one in value] if isinstance(value, list) else value * fault.by
    try:
        return json.loads(fault.value)
    except ValueError:
        return fault.value


class Injector(NoFaults):
    """The faults of one rank."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self._faults = faults
        self._stage, self._step = JOIN, ""
        # Seeded by the fault, shared by all blocks of timestamps: every run is the same.
        self._dice = {fault: random.Random(repr(fault)) for fault in faults}

    @staticmethod
    def of(rank: int, environ: Mapping[str, str] = os.environ) -> "Injector":
        """Returns the faults that ODDRANK_INJECT has for `rank`."""
        faults = parse(environ.get("ODDRANK_INJECT", ""))
        return Injector(tuple(fault for fault in faults if fault.rank == rank))

    def enter(self, stage: str) -> None:
        """Begins a stage and fires its faults."""
        self._stage, self._step = stage, ""
        for fault in self._faults:
            if fault.stage == stage and fault.step is None:
                _KINDS[fault.kind](fault)

    def progress(self, step: str) -> None:
        """Begins a step and fires its faults: those with this text, or one of its words."""
        self._step = step
        for fault in self._faults:
            if fault.step is not None and fault.is_at(self._stage, step):
                _KINDS[fault.kind](fault)

    def timestamps(self, timestamps: Timestamps) -> Timestamps:
        """Returns `timestamps`, with delays if a fault has some for this stage and step."""
        delays = [
            (fault, self._dice[fault])
            for fault in self._faults
            if fault.kind in ("late", "jitter") and fault.is_at(self._stage, self._step)
        ]
        delayed: Any = _DelayedTimestamps(timestamps, delays)
        return delayed if delays else timestamps

    def said(self, measured: Any) -> Any:
        """Returns `measured`, falsified in place by the faults of the current stage."""
        for fault in self._faults:
            if fault.kind in ("scale", "set") and fault.stage == self._stage:
                *way, last = fault.name.split(".")
                place = measured
                for part in way:
                    place = place[part]
                place[last] = _falsified(fault, place[last])
        return measured

    def has(self, kind: str) -> bool:
        """Returns whether the current stage has a fault of `kind`."""
        return any(fault.kind == kind and fault.stage == self._stage for fault in self._faults)
