"""Trains a small network on all ranks for a few steps: all must have the same bits.

Does not use DistributedDataParallel: its first use imports torch's compiler, which takes as long as
torch itself, and each rank's own gradients are hashed before they are reduced. All ranks have the
same data: ranks of one kind of device compute the same bits.
"""

import ctypes
import hashlib
import math
import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from oddrank.control.stages import Context, RunState, Stage
from oddrank.finding import Evidence, Finding, Level, Row, Who, ranks_text
from oddrank.peers import majority
from oddrank.process_group import Group
from oddrank.process_group import connect as group_of
from oddrank.selftest import Depth, Options
from oddrank.selftest.probes import host
from oddrank.selftest.stages import collectives, connect

NAME = "train"
_STEPS: dict[Depth, int] = {"quick": 4, "normal": 8, "full": 20}
# Backend -> width of the layers and size of the batch.
_SHAPES = {"nccl": (2048, 1024), "gloo": (256, 64)}
_SMALL = (64, 16)
# Weights, gradients, and a flat copy of the gradients: four bytes each, in four layers.
_COPIES = 3 * 4 * 4
_SEED = 1
_LAYERS = 4
_RATE = 0.05
# Gradients are reduced in buckets of so many bytes, as in training.
_BUCKET = 8 << 20


class Result(TypedDict):
    """A rank's times, and the bits of each step.

    kind: ranks of the same kind compute equal bits. loss and gradients are this rank's own, before
    they are reduced. loss: a float's hex. gradients, parameters: hashes; the first of parameters is
    from before step 0. sound: whether loss and gradients are finite. step_s, own_s: without the
    first step; see Training.step.
    """

    kind: str
    step_s: list[float]
    own_s: list[float]
    loss: list[str]
    gradients: list[str]
    sound: list[bool]
    parameters: list[str]


class Training:
    """A small network of linear layers on one rank's device."""

    def __init__(self, group: Group, width: int, batch: int) -> None:
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
        self.result: Result = {
            "kind": kind_of_device(group),
            "step_s": [],
            "own_s": [],
            "loss": [],
            "gradients": [],
            "sound": [],
            "parameters": [self._hash(self._weights)],
        }

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
        if number > 0:  # after the warm-up
            self.result["own_s"].append(round(own - began, 6))
            self.result["step_s"].append(round(own - began + ended - reduced, 6))
        self.result["parameters"].append(self._hash(self._weights))

    def _forward(self) -> Any:
        values = self._data
        for weight in self._weights:
            values = self._torch.tanh(values @ weight)
        return ((values - self._target) ** 2).mean()

    def _note(self, loss: Any, gradients: list[Any]) -> None:
        value, finite = float(loss.detach()), all(bool(g.isfinite().all()) for g in gradients)
        self.result["loss"].append(value.hex())
        self.result["gradients"].append(self._hash(gradients))
        self.result["sound"].append(math.isfinite(value) and finite)

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


def kind_of_device(group: Group) -> str:
    """Returns device, torch version and CPU capability: ranks with the same compute equal bits."""
    torch = group.torch
    if group.device.type == "cuda":
        return f"{torch.cuda.get_device_name(group.device)}, torch {torch.__version__}"
    uses = torch.backends.cpu.get_cpu_capability()
    return f"{host.cpu_model()}, {uses}, torch {torch.__version__}"


class Plan(TypedDict):
    """shape: width of the layers, size of the batch."""

    steps: int
    shape: tuple[int, int]


def _measure(context: Context[Plan]) -> Result:
    params = context.parameters
    group = group_of(context, "")
    context.step("make the network")
    training = Training(group, *params["shape"])
    for number in range(params["steps"]):
        training.step(number)
    return training.result


# Ranks are named if at most this share of their kind differs, or a single one of three or more. If
# more differ, they are two kinds of device that look like one.
_MOST_ODD = 1 / 8


@dataclass(frozen=True)
class Vote:
    """Ranks whose value differs from most, and whether most are enough to call those odd."""

    odd: tuple[int, ...]
    sure: bool


def vote(run: RunState, values: Mapping[int, Hashable]) -> Vote:
    """Returns the ranks that deviate, of ranks that should all have the same value.

    After wrong values in collectives no majority counts: most ranks may share one error.
    """
    most = majority(values)
    odd = tuple(sorted(most.deviants))
    few = len(odd) <= max(1, int(_MOST_ODD * len(values)))
    return Vote(odd, most.is_enough and few and not collectives.seen_in(run))


def _judge(run: RunState, said: Mapping[int, Result]) -> list[Finding]:
    """Finds the first difference only: later ones are consequences."""
    kinds: dict[str, list[int]] = {}
    for rank, result in said.items():
        kinds.setdefault(result["kind"], []).append(rank)
    steps = min(len(result["loss"]) for result in said.values())
    found = _replicas(run, said, kinds, 0)
    for step in range(steps):
        found = found or _unsound(run, said, step) or _own(run, said, kinds, step)
        found = found or _replicas(run, said, kinds, step + 1)
    return found


def _unsound(run: RunState, said: Mapping[int, Result], step: int) -> list[Finding]:
    """Finds ranks whose own loss or gradients are not finite."""
    ranks = [rank for rank, result in said.items() if not result["sound"][step]]
    if not ranks:
        return []
    shown = ((rank, float.fromhex(said[rank]["loss"][step])) for rank in ranks[:8])
    source = f"own loss in step {step}"
    losses = tuple(Evidence(f"rank {rank}: {loss:g}", source) for rank, loss in shown)
    if 2 * len(ranks) > len(said):
        return [NOT_FINITE_ANYWHERE.found(Who("rank"), *losses, ranks=ranks_text(ranks), step=step)]
    return [NOT_FINITE.found(run.who(ranks), *losses, step=step)]


def _own(
    run: RunState, said: Mapping[int, Result], kinds: Mapping[str, list[int]], step: int
) -> list[Finding]:
    """Finds ranks whose own gradients differ, from the same data and the same parameters."""
    found = []
    for kind, ranks in kinds.items():
        own = vote(run, {r: (said[r]["loss"][step], said[r]["gradients"][step]) for r in ranks})
        bits = Evidence(f"bits of loss and gradients in step {step}; {kind}", "own hash")
        told = {"step": step, "ranks": ranks_text(ranks), "others": len(ranks) - len(own.odd)}
        if own.odd and not own.sure:
            found.append(GRADIENTS_DIFFER.found(Who("rank"), bits, **told))
        else:
            found += [OTHER_GRADIENTS.found(run.who([rank]), bits, **told) for rank in own.odd]
    return found


def _replicas(
    run: RunState, said: Mapping[int, Result], kinds: Mapping[str, list[int]], step: int
) -> list[Finding]:
    """Finds ranks with other parameters after `step` steps, if all gradients were the same."""
    found = []
    after = f"after step {step - 1}" if step else "as rank 0 has sent them"
    though = ", though their own gradients were equal" if step else ""
    for kind, ranks in kinds.items():
        replicas = vote(run, {rank: said[rank]["parameters"][step] for rank in ranks})
        odd = replicas.odd
        told = {"after": after, "though": though, "others": len(ranks) - len(odd)}
        if odd and not replicas.sure:
            bits = Evidence(f"bits of the parameters {after}; {kind}", "hash")
            found.append(REPLICAS_DIFFER.found(Who("rank"), bits, ranks=ranks_text(ranks), **told))
        else:
            bits = Evidence(f"bits of the parameters {after}", "hash")
            found += [OTHER_PARAMETERS.found(run.who([rank]), bits, **told) for rank in odd]
    return found


_AGAIN = ("run it again: an intermittent fault shows in another step, or not at all",)
_ALONE = ("run the self-test on its host alone; if it differs there too, take the device out",)
_COMMON: tuple[Level, str] = ("low", "most ranks have it")
_DIVIDED: tuple[Level, str] = ("low", "no large majority agrees")
# fmt: off
NOT_FINITE = Row(
    "not-finite", "broken", "{who} is broken: it computes loss or gradients that are not finite in"
    " step {step}, from the same data and parameters as the others",
    ("high", "computed without the others, for whom all was finite"), _ALONE, drains_node=True)
NOT_FINITE_ANYWHERE = Row(
    "not-finite-anywhere", "unknown", "loss or gradients are not finite on {ranks} in step {step}:"
    " what they have in common is at fault, not a single rank", _COMMON, _AGAIN)
OTHER_GRADIENTS = Row(
    "other-gradients", "different", "{who} is different: its own gradients in step {step} are not"
    " those of the other {others} ranks, which are equal",
    ("medium", "data and parameters are equal, but the bits also depend on the order of"
     " computation"), _ALONE, drains_node=True)
GRADIENTS_DIFFER = Row(
    "gradients-differ", "unknown", "{ranks} compute different gradients from the same data and"
    " parameters in step {step}, and no majority says which are right", _DIVIDED, _AGAIN)
# Though all ranks' gradients were equal.
OTHER_PARAMETERS = Row(
    "other-parameters", "mismatch", "{who} does not match: its parameters {after} are not those of"
    " the other {others} ranks{though}",
    ("medium", "what it received or made of it differs: the way to it may be at fault"),
    ("oddrank selftest --full --only collectives: is data changed on its way?", *_AGAIN))
REPLICAS_DIFFER = Row(
    "replicas-differ", "unknown", "{ranks} have different parameters {after}{though}, and no"
    " majority says which are right", _DIVIDED, _AGAIN)
# fmt: on


def stage(options: Options) -> Stage[Plan, Result, list[Finding]]:
    def make_plan(run: RunState) -> Plan:
        shape = _SHAPES[connect.backend(run)]
        if _COPIES * shape[0] ** 2 > connect.free(run):
            shape = _SMALL
        return {"steps": _STEPS[options.depth], "shape": shape}

    return Stage(NAME, 120, _measure, _judge, make_plan)
