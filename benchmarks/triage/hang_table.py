"""The table of faults: their effects on a job, the ranks to blame, and the ranks that may be named.

`plan_case` makes a case from a row and a seed; the same seed makes the same case.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Layout:
    """How ranks share the work: tensor-parallel ranks are neighbours, then data, then pipeline."""

    world: int
    tp: int = 1
    pp: int = 1

    @property
    def dp(self) -> int:
        return self.world // (self.tp * self.pp)

    def place(self, rank: int) -> tuple[int, int, int]:
        """Returns the rank's tensor, data and pipeline index."""
        return rank % self.tp, rank // self.tp % self.dp, rank // (self.tp * self.dp)

    def tensor_groups(self) -> list[list[int]]:
        return self._split(lambda place: place[1:])

    def data_groups(self) -> list[list[int]]:
        return self._split(lambda place: (place[0], place[2]))

    def pipelines(self) -> list[list[int]]:
        """Returns the ranks of each pipeline, the first stage first."""
        return self._split(lambda place: place[:2])

    def stage(self, index: int) -> list[int]:
        return [rank for rank in range(self.world) if self.place(rank)[2] == index]

    def _split(self, key: Callable[[tuple[int, int, int]], tuple[int, ...]]) -> list[list[int]]:
        groups: dict[tuple[int, ...], list[int]] = {}
        for rank in range(self.world):
            groups.setdefault(key(self.place(rank)), []).append(rank)
        return list(groups.values())


DATA = (Layout(4), Layout(5), Layout(6), Layout(8))
DATA_AND_TENSOR = (Layout(4), Layout(6, tp=2), Layout(8, tp=2))
PIPELINE = (Layout(4, pp=2), Layout(6, pp=3), Layout(8, pp=2), Layout(8, tp=2, pp=2))
ANY = (*DATA_AND_TENSOR, *PIPELINE[:2], Layout(5))

Who = Callable[[Layout, random.Random], list[int]]


def one(layout: Layout, luck: random.Random) -> list[int]:
    return [luck.randrange(layout.world)]


def last_stage(layout: Layout, luck: random.Random) -> list[int]:
    return layout.stage(layout.pp - 1)


def second_half(layout: Layout, luck: random.Random) -> list[int]:
    return list(range(layout.world // 2, layout.world))


def receiver(layout: Layout, luck: random.Random) -> list[int]:
    """Returns a rank that another stage sends to."""
    return [luck.choice([r for r in range(layout.world) if layout.place(r)[2]])]


def all_of_them(layout: Layout, luck: random.Random) -> list[int]:
    return list(range(layout.world))


def nobody(layout: Layout, luck: random.Random) -> list[int]:
    return []


May = Callable[[Layout, Sequence[int]], list[int]]


def those(layout: Layout, ranks: Sequence[int]) -> list[int]:
    return sorted(ranks)


def those_or_their_pair(layout: Layout, ranks: Sequence[int]) -> list[int]:
    """Two ranks that differ: the evidence cannot show which one is odd."""
    pairs = [group for group in layout.data_groups() if len(group) == 2]
    return sorted({r for group in pairs if set(group) & set(ranks) for r in group} | set(ranks))


def those_and_their_senders(layout: Layout, ranks: Sequence[int]) -> list[int]:
    senders = [pipe[pipe.index(r) - 1] for pipe in layout.pipelines() for r in ranks if r in pipe]
    return sorted({*ranks, *senders})


def everybody(layout: Layout, ranks: Sequence[int]) -> list[int]:
    return list(range(layout.world))


NOT_ENTERED = ("not-entered", "not-entered-or-inside")
ALL_MUTE = ("flight_recorder", "faulthandler")


@dataclass(frozen=True)
class Fault:
    """A row. kind: the cause of oddrank.triage.causes that is true; also: causes accepted as well.

    act: a function of training_hooks.py, which the culprits call at `point` of a step; or a signal
    that they get from outside, or "". may: ranks that may be named. circle: ranks wait for each
    other, so the cause "cycle" may name all of them. dies: a process ends, and the launcher would
    end the others: it is stopped until the evidence is saved. hangs: no rank gets any further.
    mute: forms of evidence that the culprits can't give: they are stopped, dead, without the GIL.
    needs: a part that the machine must have: fuse.
    """

    name: str
    kind: str
    also: tuple[str, ...]
    layouts: tuple[Layout, ...]
    act: str = ""
    point: str = "begin"
    signal: str = ""
    who: Who = one
    may: May = those
    circle: bool = False
    dies: bool = False
    hangs: bool = True
    mute: tuple[str, ...] = ()
    needs: str = ""


FAULTS: tuple[Fault, ...] = (
    Fault(
        "missing-collective", "not-entered", ("not-entered-or-inside", "mismatch", "cycle"),
        DATA_AND_TENSOR, "skip_last_bucket", may=those_or_their_pair, circle=True,
    ),
    Fault(
        "wrong-size", "mismatch", ("dead",), DATA_AND_TENSOR, "halve_bucket",
        may=those_or_their_pair, dies=True,
    ),
    Fault(
        "wrong-dtype", "mismatch", ("dead",), DATA_AND_TENSOR, "reduce_in_double",
        may=those_or_their_pair, dies=True,
    ),
    Fault(
        "wrong-order", "mismatch", (*NOT_ENTERED, "cycle"), DATA, "swap_norm_and_gather",
        may=those_or_their_pair,
    ),
    Fault(
        "wrong-order-two-groups", "cycle", (*NOT_ENTERED, "mismatch"), DATA_AND_TENSOR,
        "agree_before_gradients", may=those_or_their_pair, circle=True,
    ),
    Fault(
        "group-against-group", "cycle", (*NOT_ENTERED, "mismatch"), DATA, "save_early",
        who=second_half, may=everybody, circle=True,
    ),
    Fault(
        "send-without-recv", "mismatch", (*NOT_ENTERED, "cycle"), PIPELINE, "skip_recv",
        who=receiver, may=those_and_their_senders, circle=True,
    ),
    Fault(
        "both-recv", "mismatch", (*NOT_ENTERED, "cycle"), PIPELINE, "recv_twice",
        who=receiver, may=those_and_their_senders, circle=True,
    ),
    Fault(
        "early-return", "not-entered", ("not-entered-or-inside", "mismatch", "cycle"), PIPELINE,
        "return_early", who=last_stage, circle=True,
    ),
    Fault("dataloader", "host-stuck", NOT_ENTERED, ANY, "wait_for_worker", "batch"),
    Fault("lock", "host-stuck", NOT_ENTERED, ANY, "write_metrics", "metrics"),
    Fault("checkpoint-pipe", "host-stuck", NOT_ENTERED, ANY, "read_checkpoint", "begin"),
    Fault(
        "checkpoint-dead-disk", "host-stuck", NOT_ENTERED, ANY, "read_checkpoint", "begin",
        needs="fuse", mute=("faulthandler",),
    ),
    Fault("stopped", "host-stopped", (*NOT_ENTERED, "inside-call"), ANY, signal="SIGSTOP",
          mute=ALL_MUTE),
    Fault("killed", "dead", (), ANY, signal="SIGKILL", dies=True, mute=ALL_MUTE),
    Fault("segfault", "dead", (), ANY, "read_null", "forward", dies=True, mute=ALL_MUTE),
    Fault("out-of-memory", "dead", (), ANY, "grow", "batch", dies=True, mute=ALL_MUTE),
    Fault("raised", "dead", (), ANY, "check_labels", "batch", dies=True, mute=ALL_MUTE),
    Fault(
        "raised-and-stays", "dead", ("host-stuck", *NOT_ENTERED), ANY, "raise_beside_thread",
        "batch",
    ),
    Fault("infinite-loop", "infinite-loop", ("host-stuck", *NOT_ENTERED), ANY, "retry", "forward"),
    Fault(
        "gil-held", "gil-held", ("host-stuck", *NOT_ENTERED), ANY, "read_device", "forward",
        mute=("flight_recorder",),
    ),
    Fault("slow", "moving", NOT_ENTERED, ANY, "slow_down", hangs=False),
)  # fmt: skip
HEALTHY = Fault("healthy", "", (), (*ANY, *DATA), who=nobody, hangs=False)
# Pauses of healthy jobs: no rank is to blame, though the others wait for these ranks.
PAUSES: tuple[Fault, ...] = (
    Fault("evaluation", "", (), ANY, "evaluate", "metrics", hangs=False),
    Fault("checkpoint", "", (), ANY, "write_checkpoint", "begin", hangs=False),
    Fault("long-checkpoint", "", (), ANY, "write_long_checkpoint", "begin", hangs=False),
    Fault("compile", "", (), (Layout(4),), "compile_step", "forward", who=all_of_them, hangs=False),
    Fault("many-workers", "", (), (Layout(4),), "start_workers", "batch", hangs=False),
)  # fmt: skip
BY_NAME = {fault.name: fault for fault in (*FAULTS, HEALTHY, *PAUSES)}


@dataclass(frozen=True)
class Case:
    """One job. Its folder has the same name."""

    name: str
    fault: str
    layout: Layout
    ranks: tuple[int, ...]
    delay: int  # steps between the agreement on the fault and the fault
    variant: int  # 0 or 1: how files are cut, and their content
    seed: int

    def truth(self) -> dict[str, Any]:
        """Returns the content of truth.json: the same for the same seed."""
        fault = BY_NAME[self.fault]
        culprits = self.ranks if fault.kind else ()
        return {
            "fault": self.fault,
            "kind": fault.kind,
            "kinds": sorted({fault.kind, *fault.also} - {""}),
            "ranks": list(culprits),
            "accept": fault.may(self.layout, culprits),
            "accept_cycle": list(range(self.layout.world)) if fault.circle else [],
            "layout": asdict(self.layout),
            "seed": self.seed,
        }


def plan_case(fault: Fault, number: int, seed: int) -> Case:
    luck = random.Random(f"{seed} {fault.name} {number}")
    layout = fault.layouts[luck.randrange(len(fault.layouts))]
    ranks = tuple(sorted(fault.who(layout, luck)))
    name = f"{fault.name}-{number:03}"
    return Case(name, fault.name, layout, ranks, luck.randrange(3), luck.randrange(2), seed)


def plan(names: Sequence[str], each: int, healthy: int, seed: int) -> list[Case]:
    """Returns `each` cases of every fault named (all: none is named), then healthy jobs."""
    chosen = [fault for fault in FAULTS if not names or fault.name in names]
    cases = [plan_case(fault, number, seed) for fault in chosen for number in range(each)]
    if not names or HEALTHY.name in names:
        cases += [plan_case(HEALTHY, number, seed) for number in range(healthy)]
    return cases
