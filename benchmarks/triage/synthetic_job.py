"""A large training job and its faults, simulated: where each rank waits once nothing moves.

The job trains on TP x PP x DP ranks with experts over EP of the DP ranks, as Megatron does it. Its
last step is simulated: hosts enqueue ahead of GPUs, a GPU runs its operations in order, and a
collective ends when all members are in it with the same operation.
"""

import random
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch_pickle import Group, Op

FAULTS = (
    "none", "missing", "size", "dtype", "order", "gpu", "host", "cycle", "p2p", "dead",
)  # fmt: skip
Fault = Literal[
    "none", "missing", "size", "dtype", "order", "gpu", "host", "cycle", "p2p", "dead"
]  # fmt: skip
# The causes of oddrank.triage.causes that name a fault rightly. A rank that skips a call is seen as
# different, as behind, or, if its next call of the group fits, as one that never entered the last.
_NOT_ENTERED = ("not-entered", "not-entered-or-inside")
CAUSES = {
    "none": (),
    "missing": ("mismatch", *_NOT_ENTERED, "inside-call", "cycle"),
    "size": ("mismatch",),
    "dtype": ("mismatch",),
    "order": ("mismatch", "cycle"),
    "gpu": ("gpu-stopped", "inside-call"),
    "host": (*_NOT_ENTERED, "host-stopped"),
    "cycle": ("cycle", "mismatch", *_NOT_ENTERED),
    "p2p": ("mismatch", "cycle", *_NOT_ENTERED),
    "dead": ("dead", "unreachable", "inside-call", *_NOT_ENTERED),
}
LAYERS = 2


@dataclass(frozen=True)
class Job:
    """tp x pp x dp ranks. ep: how many neighbours in dp share the experts; it divides dp."""

    tp: int = 2
    pp: int = 2
    dp: int = 2
    ep: int = 1
    steps: int = 50
    microbatches: int = 2

    @property
    def world(self) -> int:
        return self.tp * self.pp * self.dp


@dataclass(frozen=True)
class Truth:
    """The fault of the job. ranks: the ones to blame. causes: names that are right for it."""

    fault: Fault
    ranks: tuple[int, ...]
    causes: tuple[str, ...]
    group: str = ""
    op: str = ""
    missing: tuple[int, ...] = ()
    truncated: tuple[int, ...] = ()
    world: int = 0
    cycle: tuple[int, ...] = ()
    """Ranks that may be named, too, if the cause is a cycle."""


class Programs:
    """The groups of a job, and the operations of each rank in a step."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.of_rank: list[dict[str, Group]] = [{} for _ in range(job.world)]
        self._count = 0
        tp, pp, dp = range(job.tp), range(job.pp), range(job.dp)
        self._add("world", "default_pg", [list(range(job.world))])
        self._add(
            "dp", "DATA_PARALLEL_GROUP", [[self.rank(s, d, t) for d in dp] for s in pp for t in tp]
        )
        self._add(
            "tp",
            "TENSOR_MODEL_PARALLEL_GROUP",
            [[self.rank(s, d, t) for t in tp] for s in pp for d in dp],
        )
        self._add(
            "pp",
            "PIPELINE_MODEL_PARALLEL_GROUP",
            [[self.rank(s, d, t) for s in pp] for d in dp for t in tp],
        )
        blocks = range(0, job.dp, job.ep)
        self._add("ep", "EXPERT_MODEL_PARALLEL_GROUP",
                  [[self.rank(s, b + d, t) for d in range(job.ep)]
                   for s in pp for b in blocks for t in tp])  # fmt: skip

    def rank(self, stage: int, data: int, tensor: int) -> int:
        return (stage * self.job.dp + data) * self.job.tp + tensor

    def _add(self, kind: str, desc: str, members: Sequence[Sequence[int]]) -> None:
        for ranks in members:
            group = Group(str(self._count), desc, tuple(ranks))
            self._count += 1
            for rank in ranks:
                self.of_rank[rank][kind] = group

    def step(self, rank: int) -> list[Op]:
        job, groups = self.job, self.of_rank[rank]
        stage = rank // (job.dp * job.tp)
        line = groups["pp"].ranks
        shape = (2048, 1, 512)
        wide = (2048 * job.tp, 1, 512)
        ops: list[Op] = []

        def message(name: str, to: int) -> None:
            ops.append(Op(groups["pp"], name, (shape, shape), peer=line[to]))

        def layers() -> None:
            for layer in range(LAYERS):
                if job.tp > 1:
                    ops.append(Op(groups["tp"], "_all_gather_base", (shape, wide)))
                if job.ep > 1:
                    # Each rank sends as many tokens as its router says.
                    tokens = 1900 + (rank * 37 + layer * 11) % 300
                    there, back = (2048, 512), (tokens, 512)
                    counts = Op(
                        groups["ep"], "_all_gather_base", ((16,), (16 * job.ep,)), "Long", wait=True
                    )
                    ops.extend((counts, Op(groups["ep"], "all_to_all", (there, back)),
                                Op(groups["ep"], "all_to_all", (back, there))))  # fmt: skip
                if job.tp > 1:
                    ops.append(Op(groups["tp"], "_reduce_scatter_base", (wide, shape)))

        for _ in range(job.microbatches):
            if stage > 0:
                message("recv", stage - 1)
            layers()
            if stage < job.pp - 1:
                message("send", stage + 1)
        for _ in range(job.microbatches):
            if stage < job.pp - 1:
                message("recv", stage + 1)
            layers()
            if stage > 0:
                message("send", stage - 1)
        if job.dp > 1:
            ops.append(
                Op(
                    groups["dp"],
                    "_reduce_scatter_base",
                    ((1 << 22,), ((1 << 22) // job.dp,)),
                    "Float",
                )
            )
            ops.append(Op(groups["dp"], "_all_gather_base", (((1 << 22) // job.dp,), (1 << 22,))))
        ops.append(Op(groups["world"], "all_reduce", ((1,), (1,)), "Float", wait=True))
        return ops


@dataclass
class Rank:
    """A rank in the last step. enqueued, completed: how many of its operations are."""

    program: list[Op]
    enqueued: int = 0
    completed: int = 0
    host_limit: int = sys.maxsize
    gpu_limit: int = sys.maxsize
    arrived: int = -1
    counts: dict[tuple[str, int | None], int] = field(default_factory=dict)


def harm(program: list[Op], fault: Fault, chance: random.Random) -> tuple[list[Op], int, Op]:
    """Returns a program with a fault in it, the place and the operation."""
    collectives = [i for i, op in enumerate(program) if op.peer is None and len(op.group.ranks) > 1]
    pairs = [(i, program[i], program[i + 1]) for i in range(len(program) - 1)]
    # Not a last call that no other rank waits for.
    fits = collectives
    if fault == "size":
        fits = [i for i in collectives if program[i].name != "all_to_all"]
    elif fault == "order":
        fits = [
            i for i, op, after in pairs
            if i in collectives and not op.wait
            and op.group == after.group and op.name != after.name
        ]  # fmt: skip
    elif fault == "cycle":
        # Two ranks that are in both groups wait for each other.
        fits = [
            i for i, op, after in pairs
            if op.peer is after.peer is None and op.group != after.group
            and len(set(op.group.ranks) & set(after.group.ranks)) > 1
        ]  # fmt: skip
    elif fault == "p2p":
        fits = [i for i, op in enumerate(program) if op.peer is not None]
    if not fits:
        raise SystemExit(f"a job of this shape has no place for the fault {fault}")
    at = chance.choice(fits)
    op = program[at]
    harmed = list(program)
    if fault in ("missing", "p2p"):
        del harmed[at]
    elif fault == "size":
        grown = tuple((shape[0] + 8, *shape[1:]) for shape in op.sizes)
        harmed[at] = Op(op.group, op.name, (grown[0], grown[1]), op.dtype, wait=op.wait)
    elif fault == "dtype":
        harmed[at] = Op(op.group, op.name, op.sizes, "Half", wait=op.wait)
    elif fault in ("order", "cycle"):
        harmed[at], harmed[at + 1] = harmed[at + 1], harmed[at]
    return harmed, at, op


def _same(one: Op, other: Op) -> bool:
    if one.name != other.name or one.dtype != other.dtype:
        return False
    return one.name == "all_to_all" or one.sizes[0] == other.sizes[0]


def simulate(ranks: list[Rank]) -> None:
    """Runs the last step until nothing moves."""
    inside: dict[tuple[str, int, int, int], list[int]] = {}
    work = deque(range(len(ranks)))
    while work:
        number = work.popleft()
        rank = ranks[number]
        _enqueue(rank)
        at = rank.completed
        if at >= rank.enqueued or rank.arrived >= at:
            continue
        rank.arrived = at
        op = rank.program[at]
        key: tuple[str, int, int, int]
        if op.peer is None:
            way = (op.group.name, None)
            key = (op.group.name, -1, -1, rank.counts.setdefault(way, 0))
            members = len(op.group.ranks)
        else:
            pair = (number, op.peer) if op.name == "send" else (op.peer, number)
            way = (f"{op.group.name} {op.name}", op.peer)
            key = (op.group.name, *pair, rank.counts.setdefault(way, 0))
            members = 2
        rank.counts[way] += 1
        waiting = inside.setdefault(key, [])
        waiting.append(number)
        if len(waiting) < members:
            continue
        first = ranks[waiting[0]].program[ranks[waiting[0]].completed]
        if op.peer is None and not all(
            _same(first, ranks[i].program[ranks[i].completed]) for i in waiting
        ):
            continue
        del inside[key]
        for each in waiting:
            # A GPU that stops has given its share: the others get out, and stop at its next call.
            ranks[each].completed += ranks[each].completed < ranks[each].gpu_limit
        work.extend(waiting)


def _enqueue(rank: Rank) -> None:
    """Lets the host go on until an operation that it waits for."""
    while rank.enqueued < min(len(rank.program), rank.host_limit):
        if (
            rank.enqueued
            and rank.program[rank.enqueued - 1].wait
            and rank.completed < rank.enqueued
        ):
            return
        rank.enqueued += 1
