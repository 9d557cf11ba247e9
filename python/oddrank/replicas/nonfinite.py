"""Finds the rank, step and tensor in which the first NaN or infinity of a training appears."""

import json
import math
import socket
import zlib
from array import array
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from oddrank.replicas import digests, entries, findings, groups, layer_hooks
from oddrank.replicas.judge import Event, first_within, origin
from oddrank.replicas.watch import FoundError, Handle, OnDiff, check_arguments, tell
from oddrank.report import Report

# Tensors on a GPU whose extremes wait there to be read: a bound for its memory, 1 KiB each.
_MOST_PENDING = 1 << 16
_MAY_MASK = ("input", "output")  # kinds that may be an attention mask: 0 and -inf are its values

_Seen = tuple[int, int, str, str]  # step, order, kind and name of a tensor


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
    ranks exchange them. So it tells the value's maker from ranks that received it.
    Call it when the module is wrapped and sharded. All ranks make the same steps.

    on_found: the action on all ranks: "raise" raises NonfiniteError in optimizer.step(), "warn"
    prints the report on rank 0, a function gets the report. It stops searching after that.
    Leave out "grads" with a GradScaler: its first steps overflow on purpose. An attention mask,
    which has -inf and no value above 0, is no finding. steps_before: steps of the training before
    this call, such as a resumed training's: they count in the report.

    Example: oddrank.replicas.watch_nonfinite(model, optimizer, on_found="warn")
    """
    entries.check_choice(what, layer_hooks.ALL)
    check_arguments(every, on_found, "on_found")
    return NonfiniteWatch(module, optimizer, every, on_found, what=what, steps_before=steps_before)


class NonfiniteWatch(Handle):
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
        # Tensors on a GPU, with their extremes there: read once, where ranks compare.
        self._pending: list[tuple[_Seen, tuple[Any, Any]]] = []
        # Step -> a checksum of the tensors up to each one, which is alike on ranks that made the
        # same: only then can their orders be compared.
        self._paths: dict[int, array[int]] = defaultdict(lambda: array("I"))
        self._hooks = layer_hooks.LayerHooks(module, optimizer, what, self._see, self._after_step)
        self._layers = digests.of_bytes("\n".join(self._hooks.names).encode()).hex()

    def remove(self) -> None:
        """Ends it. May be called twice."""
        self._hooks.remove()
        self._pending.clear()

    def _see(self, kind: str, name: str, tensor: Any) -> None:
        import torch

        if not (tensor.is_floating_point() or tensor.is_complex()):
            return
        self._order += 1
        if self._first is not None:
            return
        path = self._paths[self.steps + 1]
        made = f"{kind} {name} {torch.is_grad_enabled()}".encode()
        path.append(zlib.crc32(made, path[-1] if path else 0))
        own = entries.local(tensor)
        if entries.unreadable(own) or not own.numel():
            return
        low, high = _extremes(own)
        seen = (self.steps + 1, self._order, kind, name)
        if low.device.type == "cpu":
            self._judge(seen, float(low), float(high))
        else:
            self._pending.append((seen, (low, high)))
            if len(self._pending) >= _MOST_PENDING:  # a long evaluation between two steps
                self._read_pending()

    def _judge(self, seen: _Seen, low: float, high: float) -> None:
        step, order, kind, name = seen
        if math.isfinite(low) and math.isfinite(high):
            return
        if kind in _MAY_MASK and low == -math.inf and high == 0.0:
            return
        # Those on a GPU are judged later than those on the CPU that were made after them.
        if self._first is None or (step, order) < (self._first.step, self._first.order):
            has_nan = math.isnan(low) or math.isnan(high)
            self._first = Event(step, order, kind, name, "nan" if has_nan else "inf")

    def _after_step(self) -> None:
        self.steps += 1
        self._order = 0
        if self.steps % self._every == 0:
            self._read_pending()
            self.report = _report(self._first, self._layers, self.steps, self._paths)
            if self.report is not None:
                self.remove()
                tell(self.report, self._on_found, NonfiniteError)
        if self._first is None and not self._pending:
            self._paths.clear()

    def _read_pending(self) -> None:
        """Waits for each GPU once."""
        import torch

        pending, self._pending = self._pending, []
        for device in dict.fromkeys(one[-1][0].device for one in pending):
            own = [one for one in pending if one[-1][0].device == device]
            values = torch.stack([one.double() for row in own for one in row[-1]]).tolist()
            for number, (seen, _) in enumerate(own):
                self._judge(seen, *values[2 * number : 2 * number + 2])
        if self._first is None:
            for step in [step for step in self._paths if step <= self.steps]:
                del self._paths[step]


def _extremes(tensor: Any) -> tuple[Any, Any]:
    """Returns the smallest and the largest value as tensors: both nan if one is."""
    import torch

    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.element_size() == 1:  # float8, which has no order
        tensor = tensor.float()
    # Reads 20 times as fast on a CPU as isfinite() or a norm.
    low, high = torch.aminmax(tensor)
    return low, high


def _report(
    first: Event | None, layers: str, steps: int, paths: Mapping[int, Sequence[int]]
) -> Report | None:
    """Exchanges the first events of all ranks. Returns None without events."""
    import torch.distributed as dist

    rank, event = 0, None if first is None else asdict(first)
    own: dict[str, Any] = {"host": socket.gethostname(), "layers": layers, "event": event}
    every = [own]
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        world, rank = dist.group.WORLD, dist.get_rank()
        if not any(one != b"\0" for one in groups.gather(world, bytes([first is not None]))):
            return None
        every = [json.loads(one) for one in groups.gather_any(world, json.dumps(own).encode())]
    events = {
        i: None if one["event"] is None else Event(**one["event"]) for i, one in enumerate(every)
    }
    same = len({one["layers"] for one in every}) == 1
    if len(every) > 1 and (meeting := first_within(events.values())) is not None:
        path = paths.get(meeting.step, ())
        here = path[meeting.order - 1] if len(path) >= meeting.order else 0
        sums = groups.gather(dist.group.WORLD, here.to_bytes(4, "little"))
        ran = {s for s, one in zip(sums, events.values(), strict=True)
               if one is not None and one.step == meeting.step
               and not layer_hooks.KINDS[one.kind].late}  # fmt: skip
        same = same and len(ran) == 1
    found = origin(events, same_layers=same)
    if found is None:
        return None
    hosts = {i: one["host"] for i, one in enumerate(every)}
    data = {
        "steps": steps,
        "first": {str(i): e and {**asdict(e), "tensor": e.tensor} for i, e in events.items()},
    }
    why = f"{steps} steps; NaN and infinities are looked for on each rank"
    finding = findings.first_nonfinite(found, events, hosts)
    return Report.of(
        "replicas nonfinite", {"size": len(every), "rank": rank, "hosts": hosts}, data, [finding],
        complete=True, why=why,
    )  # fmt: skip
