"""Runs a step twice from the same state, and compares the bits: finds a rank that computes wrong.

The only check of tensors without a copy on another rank, such as fully sharded parameters.
"""

import copy
import json
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from oddrank.errors import OddrankError
from oddrank.replicas import digests, entries, findings, gathers, layer_hooks, origin
from oddrank.replicas.groups import AUTO, Places, shard_again
from oddrank.replicas.origin import Event
from oddrank.report import Report

_WHAT = (entries.PARAMS, entries.BUFFERS, entries.OPTIM)

_OTHER_BITS = "has other bits in the second run"
_ELSEWHERE = "comes at another place in the second run"
_ONCE = "is in one of both runs only"

# Kind, name and digest of a tensor, in the order of the step.
Record = tuple[str, str, bytes]


def replay(
    step: Callable[[], Any], module: Any, optimizer: Any = None, *, others: Sequence[Any] = ()
) -> Report:
    """Runs `step` twice from the same state and random numbers, and compares each tensor's bits.

    All ranks call it in the place of step(); afterwards the training is one step further. step: a
    function without arguments that uses the same data each time. others: what else the step
    changes and has state_dict() and load_state_dict(): a scheduler, a GradScaler, a data loader.

    A rank is named if it alone, or first, gets other bits. If all ranks do, the step itself is not
    deterministic: see torch.use_deterministic_algorithms. Needs memory for a copy of module and
    optimizer. Hooks and logging of the step run twice.
    """
    for other in others:
        if not (hasattr(other, "state_dict") and hasattr(other, "load_state_dict")):
            raise OddrankError(
                f"others= has a {type(other).__name__}: give objects with state_dict() and"
                " load_state_dict()"
            )
    before = _State(module, optimizer, others)
    first = _recorded(step, module, optimizer)
    before.restore()
    second = _recorded(step, module, optimizer)
    return _report(_parted(first, second), len(second), digests.of_bytes(_order(second)).hex())


def _recorded(step: Callable[[], Any], module: Any, optimizer: Any) -> list[Record]:
    """Runs a step. Returns its tensors, then those that it leaves."""
    found: list[Record] = []

    def see(kind: str, name: str, tensor: Any) -> None:
        own = entries.local(tensor)
        if not entries.unreadable(own):
            found.append((kind, name, digests.of([own])[0]))

    hooks = layer_hooks.LayerHooks(module, optimizer, layer_hooks.ALL, see)
    try:
        step()
    finally:
        hooks.remove()
    left = [
        (name, entries.local(tensor))
        for name, _, tensor, _ in entries.every(module, optimizer, Places.of(module, AUTO), _WHAT)
        if not entries.unreadable(tensor)
    ]
    every = digests.of([tensor for _, tensor in left])
    found += [("left", name, digest) for (name, _), digest in zip(left, every, strict=True)]
    return found


def _parted(first: Sequence[Record], second: Sequence[Record]) -> Event | None:
    """Returns the first tensor that is not the same."""
    for number, (one, other) in enumerate(zip(first, second, strict=False)):
        if one[:2] != other[:2]:
            return Event(1, number, other[0], other[1], _ELSEWHERE)
        if one[2] != other[2]:
            return Event(1, number, other[0], other[1], _OTHER_BITS)
    if len(first) != len(second):
        kind, name, _ = max(first, second, key=len)[min(len(first), len(second))]
        return Event(1, min(len(first), len(second)), kind, name, _ONCE)
    return None


def _order(records: Sequence[Record]) -> bytes:
    return "\n".join(f"{kind} {name}" for kind, name, _ in records).encode()


def _report(parted: Event | None, tensors: int, order: str) -> Report:
    import torch.distributed as dist

    rank, event = 0, None if parted is None else parted.as_json()
    own: dict[str, Any] = {"host": socket.gethostname(), "order": order, "event": event}
    every = [own]
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        rank, text = dist.get_rank(), json.dumps(own).encode()
        every = [json.loads(one) for one in gathers.gather_any(dist.group.WORLD, text)]
    events = {
        i: None if one["event"] is None else Event.from_json(one["event"])
        for i, one in enumerate(every)
    }
    hosts = {i: one["host"] for i, one in enumerate(every)}
    found = origin.judge(events, same_layers=len({one["order"] for one in every}) == 1)
    if found is not None and len(every) == 1:
        found = replace(found, ranks=(), why="there is no other rank to compare with")
    data = {"tensors": tensors, "first": {str(i): one["event"] for i, one in enumerate(every)}}
    why = f"{tensors} tensors of a step, and those that it left, compared with its replay"
    return Report.of(
        "replicas replay", {"size": len(every), "rank": rank, "hosts": hosts}, data,
        [] if found is None else [findings.not_repeated(found, events, hosts)],
        complete=True, why=why,
    )  # fmt: skip


class _State:
    """A copy of all that a step changes."""

    def __init__(self, module: Any, optimizer: Any, others: Sequence[Any]) -> None:
        import torch

        shard_again(module)
        parameters = list(module.parameters())
        known = {id(one) for one in parameters}
        for group in optimizer.param_groups if optimizer is not None else ():
            parameters += [one for one in group["params"] if id(one) not in known]
        inner = [*parameters, *module.buffers()]
        self._optimizer = optimizer
        self._tensors = [_copied(one) for one in inner if not entries.without_values(one)]
        # A step may put other tensors into their places.
        self._buffers = [(part, dict(part._buffers)) for part in module.modules()]
        self._grads = [(tensor, tensor.grad) for tensor in parameters]
        self._tensors += [_copied(grad) for _, grad in self._grads if grad is not None]
        self._groups: list[dict[str, Any]] = []
        self._state: dict[Any, dict[str, Any]] = {}
        if optimizer is not None:
            self._groups = [dict(group) for group in optimizer.param_groups]
            # Tensors stay the same objects, since others may hold them; lists of them are copied.
            self._state = {
                key: {
                    name: one if isinstance(one, torch.Tensor) else copy.deepcopy(one)
                    for name, one in own.items()
                }
                for key, own in optimizer.state.items()
            }
            self._tensors += [
                _copied(value)
                for own in [*self._state.values(), *self._groups]
                for value in own.values()
                if isinstance(value, torch.Tensor)
            ]
        self._others = [(one, copy.deepcopy(one.state_dict())) for one in others]
        self._random = _random_states()

    def restore(self) -> None:
        if any(entries.without_values(own) for _, own, _ in self._tensors):
            raise OddrankError("the step freed the memory of a tensor: replay can't undo it")
        for tensor, own, kept in self._tensors:
            if _has_moved(tensor, own):
                tensor.data = own
            own.copy_(kept)
        for part, buffers in self._buffers:
            part._buffers.update(buffers)
        for parameter, grad in self._grads:
            parameter.grad = grad
        if self._optimizer is not None:
            for group, kept_group in zip(self._optimizer.param_groups, self._groups, strict=True):
                group.update(kept_group)
            self._optimizer.state.clear()
            self._optimizer.state.update(self._state)
        for one, state in self._others:
            one.load_state_dict(state)
        _set_random_states(self._random)


def _copied(tensor: Any) -> tuple[Any, Any, Any]:
    """Returns a tensor, its memory as this rank holds it, and a copy of that."""
    own = entries.local(tensor)
    return tensor, own, own.clone()


def _has_moved(tensor: Any, own: Any) -> bool:
    """Returns whether the step has given a plain tensor other memory: p.data = p.data - g."""
    plain = not hasattr(tensor, "placements") and not entries.unreadable(tensor)
    return plain and bool(tensor.data_ptr() != own.data_ptr() or tensor.shape != own.shape)


def _random_states() -> dict[str, Any]:
    import random

    import torch

    states: dict[str, Any] = {"torch": torch.get_rng_state(), "random": random.getstate()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state_all()
    if "numpy" in sys.modules:
        states["numpy"] = sys.modules["numpy"].random.get_state()
    return states


def _set_random_states(states: dict[str, Any]) -> None:
    import random

    import torch

    torch.set_rng_state(states["torch"])
    random.setstate(states["random"])
    if "cuda" in states:
        torch.cuda.set_rng_state_all(states["cuda"])
    if "numpy" in states:
        sys.modules["numpy"].random.set_state(states["numpy"])
