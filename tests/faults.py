"""The self-test's fault matrix: faults of jobs, and the ranks that the verdict must name."""

import signal
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import cycle

from job import Live, Verdict, job
from netns import Host, two_hosts
from oddrank.selftest import Options
from oddrank.selftest.stages import TABLE, choose

# These stages measure nothing on one host without a GPU; they have tests of their own.
_NOT_HERE = ("listen", "reach", "health", "counters_recheck")
# The stages that every run measures: faults can be injected there.
STAGES = (
    "join",
    *(
        stage.name
        for stage in choose(TABLE, Options()).stages
        if not stage.confirms and stage.name not in _NOT_HERE
    ),
)
# Kind of ODDRANK_INJECT -> its name in the table of results.
RANK_FAULTS = {
    "kill": "rank SIGKILLed",
    "stop": "rank SIGSTOPped",
    "segfault": "rank segfaulted",
    "sleep": "rank asleep",
    "raise": "rank raises",
    "exit0": "rank exits 0 early",
    "gil": "rank holds the GIL for ever",
}
# A hang waits for all of it; less would be too short for a loaded machine to import torch.
DEADLINE = 40.0
# These faults are seen at once: a long deadline costs nothing.
_SEEN_AT_ONCE = ("kill", "stop", "segfault", "raise", "exit0")
_PATIENT = 60.0
# Seconds; longer than a silent guard takes to be called lost, and than the test may take to act. A
# run that has found its culprit does not wait for them.
_HELD_OPEN = 25
# A stage that --only can't name -> the stage to choose so that the run passes through it.
_ON_THE_WAY = {"join": "device", "environment": "device", "connect": "collectives"}


def only(stage: str) -> tuple[str, ...]:
    """Returns options for this stage and only the stages that it needs, to save time."""
    return ("selftest", "--quick", "--only", _ON_THE_WAY.get(stage, stage))


@dataclass(frozen=True)
class Case:
    """One cell of the matrix: the job to run and its required verdict."""

    fault: str
    where: str  # ranks and nodes, and which one has the fault
    stage: str
    run: Callable[[Sequence[Host]], Verdict]
    right: Callable[[Verdict], bool]
    needs_hosts: bool = False

    def __str__(self) -> str:
        return f"{self.fault}, {self.where}, {self.stage}"


def healthy(ranks: int, nodes: int = 1, *, quick: bool = False) -> Case:
    """Returns the case of a healthy job that runs all stages."""

    def run(hosts: Sequence[Host]) -> Verdict:
        command = ("selftest", *["--quick"] * quick)
        return job(ranks, nodes, hosts=hosts, deadline=200, command=command)

    where = f"{ranks} ranks, {nodes} node{'s' * (nodes > 1)}{', --quick' * quick}"
    return Case("healthy", where, "-", run, Verdict.healthy, nodes > 1)


def hurt_rank(kind: str, rank: int, stage: str, *, ranks: int, nodes: int = 1) -> Case:
    """Returns the case of one faulty rank. A stopped rank needs no torchrun: less to start."""
    alone = kind == "stop"

    def run(hosts: Sequence[Host]) -> Verdict:
        return job(
            ranks,
            nodes,
            hosts=hosts,
            deadline=_PATIENT if kind in _SEEN_AT_ONCE else DEADLINE,
            command=only(stage),
            launcher="env" if alone else "torchrun",
            at=stage,
            **{kind: rank},
        )

    def right(verdict: Verdict) -> bool:
        return verdict.names(rank=rank, stage=stage)

    where = f"rank {rank} of {ranks}, {nodes} node{'s' * (nodes > 1)}{', no torchrun' * alone}"
    return Case(RANK_FAULTS[kind], where, stage, run, right, nodes > 1)


def hurt_somebody(kind: str, stage: str, *, root: bool) -> Case:
    """Returns the case of rank 0 or the last, of 2 if its guard sees the fault, else of 3."""
    ranks = 2 if kind in _SEEN_AT_ONCE else 3
    return hurt_rank(kind, 0 if root else ranks - 1, stage, ranks=ranks)


def hurt_node(node: int, number: signal.Signals, stage: str) -> Case:
    """Returns the case of a node whose launcher and two ranks get a signal."""

    def run(hosts: Sequence[Host]) -> Verdict:
        return _during(stage, node, hosts, lambda live: live.signal_node(node, number))

    def right(verdict: Verdict) -> bool:
        return verdict.names(rank=_ranks_of(node), stage=stage)

    how = "killed" if number == signal.SIGKILL else "stopped"
    return Case(f"whole node {how}", f"node {node} of 2", stage, run, right, needs_hosts=True)


def cut_link(stage: str) -> Case:
    def run(hosts: Sequence[Host]) -> Verdict:
        return _during(stage, 1, hosts, lambda live: hosts[1].cut(), launcher="env")

    def right(verdict: Verdict) -> bool:
        cut = verdict.causes == {"link-cut"}
        return cut and verdict.names(rank=_ranks_of(1), stage=stage)

    return Case("link between the nodes cut", "node 1 of 2", stage, run, right, needs_hosts=True)


def wrong_local_rank(rank: int, local_rank: int) -> Case:
    def run(hosts: Sequence[Host]) -> Verdict:
        return job(4, local_ranks={rank: local_rank}, deadline=_PATIENT, command=only("join"))

    def right(verdict: Verdict) -> bool:
        named = verdict.names(rank=rank, stage="join")
        return named and verdict.causes == {"wrong-local-rank"}

    return Case("wrong LOCAL_RANK", f"rank {rank} of 4", "join", run, right)


def never_started(rank: int, ranks: int) -> Case:
    def run(hosts: Sequence[Host]) -> Verdict:
        return job(ranks, launcher="env", absent=[rank], deadline=20, command=only("join"))

    def right(verdict: Verdict) -> bool:
        return verdict.causes == {"never-joined"} and verdict.names(rank=rank, stage="join")

    return Case("never started", f"rank {rank} of {ranks}, no torchrun", "join", run, right)


def run_once(case: Case) -> str:
    """Runs the case; returns the verdict's error, "" without one."""
    with two_hosts() if case.needs_hosts else nullcontext(()) as hosts:
        verdict = case.run(hosts)
    return "" if case.right(verdict) and verdict.gone() else str(verdict)


def _during(
    stage: str,
    victim: int,
    hosts: Sequence[Host],
    act: Callable[[Live], None],
    launcher: str = "torchrun",
) -> Verdict:
    """Acts once `stage` has begun; a slow rank of the other node keeps the stage open."""
    slow = 0 if victim == 1 else 3
    run = [s.name for s in choose(TABLE, Options("quick", frozenset({stage}))).stages]
    before = run[run.index(stage) - 1]
    return job(
        4,
        nodes=2,
        hosts=hosts,
        inject=f"slow:rank={slow},stage={stage},seconds={_HELD_OPEN}",
        deadline=_PATIENT,
        command=only(stage),
        launcher=launcher,
        after=f"{before:<12} 4/4",
        act=act,
    )


def _ranks_of(node: int) -> tuple[int, int]:
    return (2 * node, 2 * node + 1)


# A few short jobs for `make test`.
SMOKE = [
    healthy(2, quick=True),
    hurt_rank("kill", 0, "join", ranks=2),
    hurt_rank("stop", 1, "environment", ranks=2),
]

# Run on every change: every kind of fault and every stage at least once, alternately on rank 0 and
# on others. `make soak` has these and many more.
_ALL = [
    *SMOKE,
    hurt_rank("raise", 0, "device", ranks=2),
    hurt_rank("exit0", 1, "device", ranks=2),
    cut_link("device"),
    wrong_local_rank(2, 1),
    never_started(1, 2),
    healthy(1),
    healthy(4),
    healthy(4, nodes=2, quick=True),
    *(
        hurt_somebody(kind, stage, root=number % 2 == 0)
        for number, (stage, kind) in enumerate(zip(STAGES, cycle(RANK_FAULTS), strict=False))
    ),
    hurt_rank("kill", 3, "collectives", ranks=4, nodes=2),
    hurt_rank("stop", 0, "collectives", ranks=4, nodes=2),
    hurt_node(0, signal.SIGKILL, "collectives"),
    hurt_node(1, signal.SIGSTOP, "collectives"),
]
IN_EVERY_RUN = list({str(case): case for case in _ALL}.values())
