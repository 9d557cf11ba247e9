"""A few steps of data-parallel training, and the bits of each. Runs in the ranks.

Does not use DistributedDataParallel: its first use imports torch's compiler, which takes as long as
torch itself, and each rank's own gradients are hashed before they are reduced. All ranks have the
same data: ranks of one kind of device compute the same bits.
"""

import ctypes
import hashlib
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oddrank.selftest.probes import host

if TYPE_CHECKING:
    from oddrank.process_group import Group

_SEED = 1
_LAYERS = 4
_RATE = 0.05
# Gradients are reduced in buckets of so many bytes, as in training.
_BUCKET = 8 << 20


@dataclass
class Bits:
    """The bits of each step. loss and gradients are this rank's own, before they are reduced.

    loss: a float's hex. gradients, parameters: hashes; the first of parameters is from before step
    0. sound: whether loss and gradients are finite.
    """

    loss: list[str] = field(default_factory=list)
    gradients: list[str] = field(default_factory=list)
    sound: list[bool] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)


class Training:
    """A small network of linear layers on one rank's device."""

    def __init__(self, group: "Group", width: int, batch: int) -> None:
        """On the CPU uses one thread: the number of threads changes the order of sums."""
        torch = self._torch = group.torch
        self._group = group
        if group.device.type == "cpu":
            torch.set_num_threads(1)
        dice = torch.Generator().manual_seed(_SEED)

        def uniform(*shape: int) -> Any:
            values = torch.rand(shape, generator=dice) * 2 - 1
            return values.to(group.device)

        self._weights = [
            (uniform(width, width) * math.sqrt(3 / width)).requires_grad_() for _ in range(_LAYERS)
        ]
        self._data, self._target = uniform(batch, width), uniform(batch, width)
        group.context.step("broadcast parameters", waiting=True)
        for weight in self._weights:
            group.dist.broadcast(weight.detach(), 0)
        group.synchronize()
        group.context.step("broadcast")
        self.bits = Bits(parameters=[self._hash(self._weights)])
        self.step_s: list[float] = []
        self.own_s: list[float] = []

    def step(self, number: int) -> None:
        """Trains one step. own_s is the time until this rank begins to wait for the others."""
        group = self._group
        group.context.step(f"step {number} forward and backward")
        began = time.perf_counter()
        loss = self._forward()
        loss.backward()
        group.synchronize()
        own = time.perf_counter()
        gradients = [weight.grad for weight in self._weights]
        group.context.own(gradients[0].view(-1))
        self._note(loss, gradients)
        group.context.step(f"step {number} reduce gradients", waiting=True)
        reduced = time.perf_counter()
        self._reduce(gradients)
        self._update(gradients)
        group.synchronize()
        ended = time.perf_counter()
        group.context.step(f"step {number} through")
        self.own_s.append(own - began)
        self.step_s.append(own - began + ended - reduced)
        self.bits.parameters.append(self._hash(self._weights))

    def _forward(self) -> Any:
        values = self._data
        for weight in self._weights:
            values = self._torch.tanh(values @ weight)
        return ((values - self._target) ** 2).mean()

    def _note(self, loss: Any, gradients: list[Any]) -> None:
        bits, value = self.bits, float(loss.detach())
        finite = all(bool(g.isfinite().all()) for g in gradients)
        bits.loss.append(value.hex())
        bits.gradients.append(self._hash(gradients))
        bits.sound.append(math.isfinite(value) and finite)

    def _reduce(self, gradients: list[Any]) -> None:
        flat = self._torch.cat([gradient.view(-1) for gradient in gradients])
        length = _BUCKET // flat.element_size()
        works = [self._group.dist.all_reduce(piece, async_op=True) for piece in flat.split(length)]
        for work in works:
            work.wait()
        flat /= self._group.world
        place = 0
        for gradient in gradients:
            gradient.copy_(flat[place : place + gradient.numel()].view_as(gradient))
            place += gradient.numel()

    def _update(self, gradients: list[Any]) -> None:
        with self._torch.no_grad():
            for weight, gradient in zip(self._weights, gradients, strict=True):
                weight.sub_(gradient, alpha=_RATE)
                weight.grad = None

    def _hash(self, tensors: list[Any]) -> str:
        digest = hashlib.blake2b(digest_size=8)
        for tensor in tensors:
            here = tensor.detach().cpu()  # alive until its bytes are read
            size = here.numel() * here.element_size()
            # Without NumPy, which may not be installed.
            digest.update((ctypes.c_char * size).from_address(here.data_ptr()))
        return digest.hexdigest()


def kind_of_device(group: "Group") -> str:
    """Returns device, torch version and CPU capability: ranks with the same compute equal bits."""
    torch = group.torch
    if group.device.type == "cuda":
        return f"{torch.cuda.get_device_name(group.device)}, torch {torch.__version__}"
    uses = torch.backends.cpu.get_cpu_capability()
    return f"{host.cpu_model()}, {uses}, torch {torch.__version__}"
