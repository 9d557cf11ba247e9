"""Makes the flight-recorder dumps of a large job that hangs, and the truth: the ranks at fault."""

import argparse
import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path

from synthetic_job import CAUSES, FAULTS, Fault, Job, Programs, Rank, Truth, harm, simulate
from torch_pickle import Frame, Op, Row, TorchPickle

START = 1_760_000_000_000_000_000


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
        self._programs = Programs(job)
        self._job = job
        steps = [self._programs.step(rank) for rank in range(job.world)]
        self._healthy = steps
        self._ranks = [Rank(list(step)) for step in steps]
        op: Op | None = None
        culprit = self._chance.randrange(job.world) if rank is None else rank
        if fault != "none":
            one = self._ranks[culprit]
            one.program, at, op = harm(one.program, fault, self._chance)
            if fault == "gpu":
                one.gpu_limit = at
            elif fault in ("host", "dead"):
                one.host_limit = at
        simulate(self._ranks)
        self.truth = Truth(
            fault, () if fault == "none" else (culprit,), CAUSES[fault],
            op.group.name if op else "", op.name if op else "", world=job.world,
            cycle=op.group.ranks if op and "cycle" in CAUSES[fault] else (),
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
            dead = self.truth.fault == "dead" and rank in self.truth.ranks
            if dead or (chance.random() < options.missing and not spared):
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
