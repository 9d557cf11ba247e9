"""Makes the flight-recorder dumps of a large job that hangs, and the truth: whose fault it is.

The job trains on TP x PP x DP ranks with experts over EP of the DP ranks, as Megatron does it. Its
last step is simulated: hosts enqueue ahead of GPUs, a GPU runs its operations in order, and a
collective ends when all members are in it with the same operation.
"""

import argparse
import json
import random
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).parent))
from torch_pickle import Frame, Group, Op, Row, TorchPickle

FAULTS = ("none", "missing", "size", "dtype", "order", "gpu", "host")
Fault = Literal["none", "missing", "size", "dtype", "order", "gpu", "host"]
# The causes of oddrank.triage.facts that name a fault rightly. A rank that skips a call is seen as
# different, as behind, or, if its next call of the group fits, as one that never entered the last.
CAUSES = {
    "none": (),
    "missing": ("mismatch", "not-entered", "not-entered-or-inside", "inside-call", "cycle"),
    "size": ("mismatch",),
    "dtype": ("mismatch",),
    "order": ("mismatch", "cycle"),
    "gpu": ("gpu-stopped", "inside-call"),
    "host": ("not-entered", "not-entered-or-inside", "host-stopped"),
}
START = 1_760_000_000_000_000_000
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
    """What was done to the job. ranks: who is to blame. causes: names that are right for it."""

    fault: Fault
    ranks: tuple[int, ...]
    causes: tuple[str, ...]
    group: str = ""
    op: str = ""
    missing: tuple[int, ...] = ()
    truncated: tuple[int, ...] = ()
    world: int = 0


class _Programs:
    """The groups of a job, and what each of its ranks does in a step."""

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
class _Rank:
    """A rank in the last step. enqueued, completed: how many of its operations are."""

    program: list[Op]
    enqueued: int = 0
    completed: int = 0
    host_limit: int = sys.maxsize
    gpu_limit: int = sys.maxsize
    arrived: int = -1
    counts: dict[tuple[str, int | None], int] = field(default_factory=dict)


def _harm(program: list[Op], fault: Fault, chance: random.Random) -> tuple[list[Op], int, Op]:
    """Returns a program with a fault in it, the place and the operation."""
    collectives = [i for i, op in enumerate(program) if op.peer is None and len(op.group.ranks) > 1]
    fits = collectives
    if fault == "size":
        fits = [i for i in collectives if program[i].name != "all_to_all"]
    elif fault == "order":
        fits = [
            i for i in collectives[:-1]
            if not program[i].wait
            and any(
                later.group == program[i].group and later.name != program[i].name
                for later in program[i + 1 : i + 2]
            )
        ]  # fmt: skip
    elif fault == "missing":
        # Its last call of a group must be missed by somebody: not one that others don't wait for.
        fits = collectives
    if not fits:
        raise SystemExit(f"a job of this shape has no place for the fault {fault}")
    at = chance.choice(fits)
    op = program[at]
    harmed = list(program)
    if fault == "missing":
        del harmed[at]
    elif fault == "size":
        grown = tuple((shape[0] + 8, *shape[1:]) for shape in op.sizes)
        harmed[at] = Op(op.group, op.name, (grown[0], grown[1]), op.dtype, wait=op.wait)
    elif fault == "dtype":
        harmed[at] = Op(op.group, op.name, op.sizes, "Half", wait=op.wait)
    elif fault == "order":
        harmed[at], harmed[at + 1] = harmed[at + 1], harmed[at]
    return harmed, at, op


def _same(one: Op, other: Op) -> bool:
    if one.name != other.name or one.dtype != other.dtype:
        return False
    return one.name == "all_to_all" or one.sizes[0] == other.sizes[0]


def _simulate(ranks: list[_Rank]) -> None:
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


def _enqueue(rank: _Rank) -> None:
    """Lets the host go on until an operation that it waits for."""
    while rank.enqueued < min(len(rank.program), rank.host_limit):
        if (
            rank.enqueued
            and rank.program[rank.enqueued - 1].wait
            and rank.completed < rank.enqueued
        ):
            return
        rank.enqueued += 1


@dataclass(frozen=True)
class Options:
    """How the dumps are. missing, truncated: shares. skew: seconds that clocks are off, at most."""

    buffer: int = 100
    missing: float = 0.0
    truncated: float = 0.0
    skew: float = 0.0
    active_only: bool = False
    as_json: bool = False
    frames: int = 0
    spare_culprit: bool = False


class Hang:
    """A job with one fault: its dumps and the truth."""

    def __init__(
        self, job: Job, fault: Fault = "none", rank: int | None = None, seed: int = 0
    ) -> None:
        self._chance = random.Random(seed)
        self._programs = _Programs(job)
        self._job = job
        steps = [self._programs.step(rank) for rank in range(job.world)]
        self._healthy = steps
        self._ranks = [_Rank(list(step)) for step in steps]
        op: Op | None = None
        culprit = self._chance.randrange(job.world) if rank is None else rank
        if fault != "none":
            one = self._ranks[culprit]
            one.program, at, op = _harm(one.program, fault, self._chance)
            if fault == "gpu":
                one.gpu_limit = at
            elif fault == "host":
                one.host_limit = at
        _simulate(self._ranks)
        self.truth = Truth(
            fault, () if fault == "none" else (culprit,), CAUSES[fault],
            op.group.name if op else "", op.name if op else "", world=job.world,
        )  # fmt: skip

    def write(self, folder: Path, options: Options = Options()) -> Truth:
        """Writes _dump_<rank> for each rank that left one, and truth.json beside the folder."""
        chance = random.Random(self._chance.random())
        folder.mkdir(parents=True, exist_ok=True)
        missing, truncated = [], []
        hosts = [
            chance.uniform(-options.skew, options.skew) for _ in range(self._job.world // 8 + 1)
        ]
        for rank in range(self._job.world):
            spared = options.spare_culprit and rank in self.truth.ranks
            if chance.random() < options.missing and not spared:
                missing.append(rank)
                continue
            content = self.dump(rank, options, START + int(hosts[rank // 8] * 1e9))
            if chance.random() < options.truncated and not spared:
                truncated.append(rank)
                content = content[: chance.randrange(len(content))]
            (folder / f"_dump_{rank}").write_bytes(content)
        truth = Truth(
            **{**asdict(self.truth), "missing": tuple(missing), "truncated": tuple(truncated)}
        )
        folder.with_name(folder.name + ".truth.json").write_text(
            json.dumps(asdict(truth), indent=1)
        )
        return truth

    def dump(self, rank: int, options: Options, start: int = START) -> bytes:
        """Returns the dump of a rank."""
        rows = self._rows(rank, options, start)
        config = {
            group.name: {"name": group.name, "desc": group.desc, "ranks": str(list(group.ranks))}
            for group in self._programs.of_rank[rank].values()
        }
        head = {
            "version": "2.10",
            "pg_config": config,
            "comm_lib_version": "2.27.5",
            "pg_status": self._status,
        }
        if options.active_only:
            rows = [row for row in rows if row.state != "completed"]
        rows = rows[-options.buffer :]
        if options.as_json:
            return json.dumps({**head, "entries": [row.as_dict() for row in rows]}).encode()
        return TorchPickle().dump(head, rows)

    def position(self, rank: int) -> tuple[int, int]:
        """Returns how many operations of the last step a rank has enqueued and completed."""
        return self._ranks[rank].enqueued, self._ranks[rank].completed

    def _rows(self, rank: int, options: Options, start: int) -> list[Row]:
        """Returns the newest entries of a rank, and keeps its counters."""
        one, healthy = self._ranks[rank], self._healthy[rank]
        before = self._job.steps
        # So many steps before the last fill the buffer.
        shown = min(before, -(-options.buffer // max(len(healthy), 1)))
        skipped = before - shown
        seqs: dict[str, int] = {}
        messages: dict[str, int] = {}
        for op in healthy:
            counts = seqs if op.peer is None else messages
            counts[op.group.name] = counts.get(op.group.name, 0) + skipped
        names = {group.name: i for i, group in enumerate(self._programs.of_rank[rank].values())}
        status: dict[str, list[int]] = {}
        rows: list[Row] = []
        record = skipped * len(healthy)
        for step in range(shown + 1):
            last = step == shown
            for index, op in enumerate(one.program[: one.enqueued] if last else healthy):
                name = op.group.name
                counts = seqs if op.peer is None else messages
                counts[name] = counts.get(name, 0) + 1
                done = not last or index < one.completed
                created = start + record * 1_000_000 + (rank % 97) * 1_000
                local = op.group.ranks.index(rank) if op.peer is not None else 0
                other = op.group.ranks.index(op.peer) if op.peer is not None else 0
                arrow = "->" if op.name == "send" else "<-"
                called = op.name if op.peer is None else f"{op.name} {local}{arrow}{other}"
                seq, message = seqs.get(name, 0), messages.get(name, 0)
                counters = status.setdefault(str(names[name]), [-1, -1])
                counters[0] = counts[name]
                if done:
                    counters[1] = counts[name]
                rows.append(Row(
                    op, op.group, names[name], record, seq, message, seq + message, created,
                    created + 900_000 if done else 0, "completed" if done else "scheduled",
                    f"nccl:{called}", _frames(op, options.frames),
                ))  # fmt: skip
                record += 1
        self._status = {
            name: {
                "last_enqueued_collective": enqueued,
                "last_started_collective": -1,
                "last_completed_collective": completed,
            }
            for name, (enqueued, completed) in sorted(status.items())
        }
        return rows


def _frames(op: Op, depth: int) -> tuple[Frame, ...]:
    return tuple(
        (f"{op.name}_{level}", f"/job/model/layer_{level}.py", 10 + level) for level in range(depth)
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("folder", type=Path, help="gets _dump_<rank>; truth.json lies beside it")
    for name, value in (
        ("tp", 2),
        ("pp", 2),
        ("dp", 4),
        ("ep", 2),
        ("steps", 50),
        ("microbatches", 2),
    ):
        arguments.add_argument(f"--{name}", type=int, default=value)
    arguments.add_argument("--fault", choices=FAULTS, default="host")
    arguments.add_argument(
        "--rank", type=int, help="who gets the fault; by default chosen by --seed"
    )
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--buffer", type=int, default=100, help="entries of a dump")
    arguments.add_argument("--missing", type=float, default=0.0, help="share of dumps not written")
    arguments.add_argument("--truncated", type=float, default=0.0, help="share of dumps cut off")
    arguments.add_argument("--skew", type=float, default=0.0, help="seconds that clocks are off")
    arguments.add_argument("--frames", type=int, default=0, help="depth of the stacks")
    arguments.add_argument("--active-only", action="store_true", help="only what has not completed")
    arguments.add_argument("--json", dest="as_json", action="store_true", help="the form of JSON")
    arguments.add_argument("--spare-culprit", action="store_true", help="its dump is always whole")
    chosen = vars(arguments.parse_args())
    job = Job(**{name: chosen[name] for name in Job.__dataclass_fields__})
    options = Options(**{name: chosen[name] for name in Options.__dataclass_fields__})
    truth = Hang(job, chosen["fault"], chosen["rank"], chosen["seed"]).write(
        chosen["folder"], options
    )
    print(json.dumps(asdict(truth)))


if __name__ == "__main__":
    main()
