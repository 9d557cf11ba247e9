"""Keeps what each layer made in the last steps, to find the first layer where two runs part."""

from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oddrank.errors import OddrankError
from oddrank.replicas import digests, entries, layer_hooks
from oddrank.replicas.nonfinite import largest_of
from oddrank.replicas.watch import Handle
from oddrank.report import envelope, whole_file, write_json

_ADVICE = "give save() a file in a folder you can write"


def trace_layers(
    module: Any,
    optimizer: Any = None,
    *,
    steps: int = 2,
    what: Collection[str] = layer_hooks.ALL,
    values: bool = False,
) -> "Trace":
    """Keeps parameters, inputs and outputs of each layer, and gradients, of the last `steps` steps.

    Two runs, two devices or two versions of torch are compared by `oddrank replicas compare` on the
    files of save(): it names the first tensor that differs, in the order of the step. values: keeps
    copies on the CPU, so that the difference is shown, too; else digests and the largest value.
    what: some of params, values, grads. Without an optimizer next_step() ends a step.

    For a few steps: each tensor is read, and a GPU waited for, when it is made.
    """
    entries.check_choice(what, layer_hooks.ALL)
    if steps < 1:
        raise OddrankError(f"steps={steps}: give a number of steps from 1 on")
    return Trace(module, optimizer, steps, what, values)


@dataclass
class _Step:
    number: int
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    copies: dict[str, Any] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)


class Trace(Handle):
    """A running trace of one module."""

    def __init__(
        self, module: Any, optimizer: Any, steps: int, what: Collection[str], values: bool
    ) -> None:
        self._values = values
        self._steps = deque([_Step(1)], maxlen=steps + 1)  # the last one has not ended
        self._hooks = layer_hooks.LayerHooks(module, optimizer, what, self._see, self.next_step)

    def next_step(self) -> None:
        """Ends a step. An optimizer's step does it by itself."""
        self._hooks.next_step()
        self._steps.append(_Step(self._steps[-1].number + 1))

    def remove(self) -> None:
        """Ends it; what it kept can still be saved. May be called twice."""
        self._hooks.remove()

    def save(self, path: str | Path) -> None:
        """Writes the JSON of `oddrank replicas dump`; with values, a file of torch.save."""
        steps = [step for step in self._steps if step.rows]
        if not steps:
            raise OddrankError("the trace is empty: save it after a step")
        if not self._values:
            rows = {name: row for step in steps for name, row in step.rows.items()}
            data = {"path": str(path), "tensors": rows, "values": {}}
            write_json(envelope("replicas dump", {}, data), path)
            return
        import torch

        copies = {name: copy for step in steps for name, copy in step.copies.items()}
        with whole_file(path, _ADVICE) as file:
            torch.save(copies, file)

    def _see(self, kind: str, name: str, tensor: Any) -> None:
        tensor = entries.local(tensor)
        if entries.unreadable(tensor):
            return
        step = self._steps[-1]
        known = f"step {step.number}: {layer_hooks.text(kind, name)}"
        step.calls[known] += 1
        if step.calls[known] > 1:
            known = f"{known}, {step.calls[known]}"
        (digest,) = digests.of([tensor])
        step.rows[known] = {
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "digest": digest.hex(),
            "largest": _largest(tensor),
        }
        if self._values:
            step.copies[known] = tensor.to("cpu", copy=True)


def _largest(tensor: Any) -> str | None:
    """Returns the largest absolute value as a text; None for integers and empty tensors."""
    if not tensor.numel() or not (tensor.is_floating_point() or tensor.is_complex()):
        return None
    return f"{float(largest_of(tensor)):.9g}"
