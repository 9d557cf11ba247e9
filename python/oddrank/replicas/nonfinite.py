"""Finds the rank, step and tensor in which the first NaN or infinity of a training appears."""

import json
import math
import socket
from collections.abc import Collection
from types import TracebackType
from typing import Any

from oddrank.replicas import digests, entries, findings, gathers, layer_hooks, origin
from oddrank.replicas.origin import Event
from oddrank.replicas.watch import FoundError, OnDiff, check_arguments, tell
from oddrank.report import Report


class NonfiniteError(FoundError):
    """A tensor has a NaN or an infinity. `report` says which, and which rank made it."""


def watch_nonfinite(
    module: Any,
    optimizer: Any,
    *,
    every: int = 10,
    on_found: OnDiff = "raise",
    what: Collection[str] = layer_hooks.ALL,
    steps_before: int = 0,
) -> "NonfiniteWatch":
    """Looks for NaN and infinities in each step; all ranks compare after every `every`-th one.

    Reads, on each rank: what="params", each parameter once a step, before its layer runs; "values",
    inputs and outputs of each layer; "grads", gradients of outputs and parameters, before and after
    ranks exchange them. So the rank that made the value is told from those that received it.
    Call it when the module is wrapped and sharded. All ranks make the same steps.

    on_found: what happens on all ranks: "raise" raises NonfiniteError in optimizer.step(), "warn"
    prints the report on rank 0, a function gets the report. It looks no further after that.
    Leave out "grads" with a GradScaler: its first steps overflow on purpose. steps_before: steps
    of the training before this call, such as those of a resumed one: they count in the report.
    """
    layer_hooks.check_choice(what)
    check_arguments(every, on_found, "on_found")
    return NonfiniteWatch(module, optimizer, every, on_found, what=what, steps_before=steps_before)


class NonfiniteWatch:
    """A running search. `report` is None until something is found."""

    def __init__(
        self, module: Any, optimizer: Any, every: int, on_found: OnDiff,
        *, what: Collection[str], steps_before: int,
    ) -> None:  # fmt: skip
        self.report: Report | None = None
        self.steps = steps_before
        self._every, self._on_found = every, on_found
        self._first: Event | None = None
        self._order = 0
        # Events on a GPU, with their largest value there: read once, where ranks compare.
        self._pending: list[tuple[int, int, str, str, Any]] = []
        self._hooks = layer_hooks.LayerHooks(module, optimizer, what, self._see, self._after_step)
        self._layers = digests.of_bytes("\n".join(self._hooks.names).encode()).hex()

    def remove(self) -> None:
        """Ends it. May be called twice."""
        self._hooks.remove()
        self._pending.clear()

    def __enter__(self) -> "NonfiniteWatch":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.remove()

    def _see(self, kind: str, name: str, tensor: Any) -> None:
        if not (tensor.is_floating_point() or tensor.is_complex()):
            return
        self._order += 1
        if self._first is not None:
            return
        own = entries.local(tensor)
        if entries.unreadable(own) or not own.numel():
            return
        largest = largest_of(own)
        if largest.device.type == "cpu":
            self._judge(self.steps + 1, self._order, kind, name, float(largest))
        else:
            self._pending.append((self.steps + 1, self._order, kind, name, largest))

    def _judge(self, step: int, order: int, kind: str, name: str, largest: float) -> None:
        if self._first is None and not math.isfinite(largest):
            self._first = Event(step, order, kind, name, "nan" if math.isnan(largest) else "inf")

    def _after_step(self) -> None:
        self.steps += 1
        self._order = 0
        if self.steps % self._every:
            return
        self._read_pending()
        self.report = _report(self._first, self._layers, self.steps)
        if self.report is not None:
            self.remove()
            tell(self.report, self._on_found, NonfiniteError)

    def _read_pending(self) -> None:
        """Waits for each GPU once."""
        import torch

        pending, self._pending = self._pending, []
        for device in dict.fromkeys(one[-1].device for one in pending):
            own = [one for one in pending if one[-1].device == device]
            values = torch.stack([one[-1].double() for one in own]).tolist()
            for (step, order, kind, name, _), value in zip(own, values, strict=True):
                self._judge(step, order, kind, name, value)


def largest_of(tensor: Any) -> Any:
    """Returns the largest absolute value as a tensor: nan if one is. The tensor is not empty."""
    import torch

    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.element_size() == 1:  # float8, which has no order
        tensor = tensor.float()
    # Reads 20 times as fast on a CPU as isfinite() or a norm. Both pass on NaN.
    low, high = torch.aminmax(tensor)
    return torch.maximum(high, -low)


def _report(first: Event | None, layers: str, steps: int) -> Report | None:
    """Exchanges the first events of all ranks. None: there are none."""
    import torch.distributed as dist

    rank, event = 0, None if first is None else first.as_json()
    own: dict[str, Any] = {"host": socket.gethostname(), "layers": layers, "event": event}
    every = [own]
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        world, rank = dist.group.WORLD, dist.get_rank()
        if not any(one != b"\0" for one in gathers.gather(world, bytes([first is not None]))):
            return None
        every = [json.loads(one) for one in gathers.gather_any(world, json.dumps(own).encode())]
    events = {
        i: None if one["event"] is None else Event.from_json(one["event"])
        for i, one in enumerate(every)
    }
    same = len({one["layers"] for one in every}) == 1
    found = origin.judge(events, same_layers=same)
    if found is None:
        return None
    hosts = {i: one["host"] for i, one in enumerate(every)}
    data = {
        "steps": steps,
        "first": {str(i): one["event"] for i, one in enumerate(every)},
    }
    why = f"{steps} steps; NaN and infinities are looked for on each rank"
    finding = findings.first_nonfinite(found, events, hosts)
    return Report.of(
        "replicas nonfinite", {"size": len(every), "rank": rank, "hosts": hosts}, data, [finding],
        complete=True, why=why,
    )  # fmt: skip
