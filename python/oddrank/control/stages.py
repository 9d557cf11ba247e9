"""Stages: every rank measures, the judge judges. And what they get: evidence about the ranks."""

import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from oddrank.finding import Finding, Who, grouped
from oddrank.launch import Launch

if TYPE_CHECKING:
    from oddrank.control.session import Session

# The stage with which every command begins: a rank's result is that its guard has come.
JOIN = "join"
# Rank 0's step in join until its address is published; then it waits for the other ranks.
PUBLISHING = "publish the address"

Contact = Literal["never", "ok", "silent", "closed", "gave-up"]
Life = Literal["running", "stopped", "zombie", "dead", "uninterruptible"]
Reason = Literal["complete", "fault", "deadline", "terminated"]
Node: TypeAlias = tuple[int, str]
"""The number of a node, and the name of its host."""

Timestamps: TypeAlias = Any
"""Times of collectives, as Session.timestamps makes them (csrc/control/bind_control.cpp).

Between enter and leave, which cost less than 100 ns each, the rank shows as waiting for others.
Both are marks of this rank's progress: every rank must make the same number. One thread.
"""

Plan = TypeVar("Plan")
Plan_co = TypeVar("Plan_co", covariant=True)
Result = TypeVar("Result")
Judged = TypeVar("Judged")


class NoFaults:
    """Where tests put faults into a rank (tests/inject.py)."""

    def enter(self, stage: str) -> None: ...

    def progress(self, step: str) -> None: ...

    def timestamps(self, timestamps: Timestamps) -> Timestamps:
        return timestamps

    def said(self, measured: Any) -> Any:
        return measured

    def has(self, kind: str) -> bool:
        return False


@dataclass
class Context(Generic[Plan_co]):
    """The argument of a measurement, in the worker. Context[object]: it reads no plan.

    store: torch's, where the ranks exchange addresses. seconds: of the whole command: no wait
    inside a stage needs to be shorter. parameters: the value of this stage's plan(): the same on
    every rank, and once through JSON. master: rank 0's address for ranks on other hosts; "" where
    all are on one host. scratch: kept from stage to stage of this rank (the process group).
    """

    launch: Launch
    session: "Session"
    store: Callable[[], Any]
    seconds: float
    parameters: Plan_co
    master: str = ""
    scratch: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.step, self.timestamps = self.session.progress, self.session.timestamps
        self.sync_clock = self.session.sync_clock

    def own(self, values: Any) -> Any:
        """Returns the tensor that this rank gives to a collective; a test may have spoilt it."""
        if self.session.injector.has("value"):
            values[len(values) // 2] += 1
        return values


@dataclass(frozen=True)
class RankState:
    """The evidence about one rank as its guard reports it, by the names of the native snapshot."""

    rank: int
    host: str = ""  # "" (and node -1) if it never came
    node: int = -1
    local_rank: int = -1
    pid: int = 0
    contact: Contact = "never"  # the root's contact with its guard
    state: Life = "running"  # its process, by the kernel
    signal: int | None = None  # the one that killed it
    exit_code: int | None = None
    stage: str = ""
    step: str = ""
    progress: int = 0  # marks so far: comparable between ranks of one program
    waiting: bool = False  # inside a collective
    published: bool = False  # has given this stage's result
    failed: str | None = None  # the exception's text
    sigterm: int = 0  # the first SIGTERM or SIGINT that it got; 0: neither
    sigterm_by: int = 0  # pid of the signal's sender; 0: unknown or another namespace
    first_fault_ns: int = 0  # on the judge's clock; 0: no fault
    orphaned: bool = False  # its launcher has gone
    local_world: int = 0  # ranks of its host, at most; 0: it never came
    launcher: str = ""  # name; "": its end does not end the job
    launcher_pid: int = 0
    parting: str = ""  # why its guard left, if contact is gave-up
    unreached: str = ""  # why its guard does not reach the root, by torch's store
    wchan: str = ""  # the kernel function an uninterruptible worker sleeps in
    resolver_slow: bool = False  # reverse DNS of its host's own address gives no answer
    quiet_ms: int = -1  # without a step or collective; -1: unknown, or not watched
    oom_kills: int = 0  # in its cgroup, since its guard began
    raised_at: str = ""  # file:line; the native `failed` has it as its last line


@dataclass(frozen=True)
class OddClaim:
    """A process of this job that was turned away; the order of fields is the native one's."""

    rank: int  # as it claims
    other_world: bool  # its world has another size; else its rank was taken
    text: str
    world: int = 0  # as it claims
    pid: int = 0
    host: str = ""


@dataclass(frozen=True)
class StageRound:
    """The evidence about a stage that is over. Only the reason "complete" means all results."""

    stage: str
    results: dict[int, bytes]
    states: dict[int, RankState]
    reason: Reason
    limits: str = ""  # why ranks may have been unable to come (open files); "": nothing known
    odd: tuple[OddClaim, ...] = ()

    @property
    def other_worlds(self) -> set[int]:
        """The ranks that were turned away for another WORLD_SIZE."""
        return {claim.rank for claim in self.odd if claim.other_world}


def node_of(state: RankState) -> Node:
    """Returns the key of a rank's node: all ranks of the node have it, and no other rank."""
    return (state.node, state.host)


def by_node(states: Iterable[RankState]) -> dict[Node, list[RankState]]:
    """Returns the ranks of each node, without ranks that never came."""
    return grouped((node_of(state), state) for state in states if state.contact != "never")


@dataclass
class RunState:
    """The argument of a judgement: the ranks, and their results by stage and rank.

    A stage's module has a function that returns its results, or its judge's value, with their type:
    other modules call that, and not `of` or `judged`, which know no types.
    """

    world: int
    states: dict[int, RankState] = field(default_factory=dict)
    results: dict[str, dict[int, Any]] = field(default_factory=dict)
    device: str = ""  # what the ranks compute on, once that is known: "GPU" or "CPU"
    devices: dict[int, str] = field(default_factory=dict)  # rank -> "GPU 3", by nvidia-smi's number
    judged: dict[str, Any] = field(default_factory=dict)  # stage -> what its judge returned
    master: tuple[str, int] | None = None  # MASTER_ADDR and MASTER_PORT, as rank 0 has them
    nodes: int = 1  # by the launcher's or the user's variables

    @property
    def hosts(self) -> dict[int, str]:
        """Rank -> its host, of those that joined."""
        return {rank: state.host for rank, state in self.states.items()}

    def of(self, stage: str) -> dict[int, Any]:
        return self.results.get(stage, {})

    def raised(self) -> list[int]:
        """Returns ranks whose measurement raised, be it because of another rank."""
        return sorted(rank for rank, state in self.states.items() if state.failed is not None)

    def who(self, ranks: Iterable[int]) -> Who:
        """Names a rank with host and device, or several ranks, with the host if they share it."""
        named = tuple(sorted(ranks))
        known = [self.states[rank] for rank in named if rank in self.states]
        hosts = {s.host for s in known if s.contact != "never"}
        host = hosts.pop() if len(hosts) == 1 else None
        if len(named) != 1 or host is None:
            return Who("rank", named, host)
        return Who("rank", named, host, self.device_of(named[0]))

    def signals(self) -> str:
        """Names the signals by which ranks were to end: SIGINT, or SIGINT and SIGTERM."""
        seen = {s.sigterm for s in self.states.values()} & {signal.SIGINT, signal.SIGTERM}
        return " and ".join(signal.Signals(number).name for number in sorted(seen)) or "a signal"

    def device_of(self, rank: int) -> str:
        """Returns GPU 3, by nvidia-smi's number if that is known; local rank 3 on the CPU."""
        name = "GPU" if self.device == "GPU" else "local rank"
        return self.devices.get(rank, f"{name} {self.states[rank].local_rank}")


def nodes_of(run: RunState) -> list[tuple[int, ...]]:
    """Returns the ranks of each node; nodes in the order of their lowest rank."""
    nodes = grouped((node_of(state), rank) for rank, state in sorted(run.states.items()))
    return sorted(tuple(ranks) for ranks in nodes.values())


@dataclass(frozen=True)
class Skip:
    """A plan that measures nothing. why: shown in the report."""

    why: str


def _nothing(*_: object) -> Any:
    return None


@dataclass(frozen=True)
class Stage(Generic[Plan, Result, Judged]):
    """One row of a command's table: plan, measurement, judgement, findings.

    The table does not list join, with which every command begins.
    seconds: its own deadline, cut to the rest of the command's.
    plan: makes the ranks' context.parameters from earlier stages. With a Skip nothing is measured.
    measure: runs in every rank; returns a value that fits JSON. Only here may torch be imported.
    judge: pure, in the judge's process, once all results are there; gets them by rank. Its value
    stays in run.judged. Left out if ranks only have to pass.
    findings: makes findings from the judge's value; left out if that is findings.
    confirms: an earlier stage that this one rechecks. It runs only if that one has findings; its
    own findings replace them, or clear them.
    shown: whether its end is printed as a line; on_stage may print more.
    keeps_results: whether later stages and the report read its results. Else they are dropped after
    judge and on_stage: 10,000 ranks send megabytes per stage.
    counted: whether its time counts towards the `enough` of `runner.run`.
    closes: ends what an earlier stage began: runs even after `enough`.
    """

    name: str
    seconds: float
    measure: Callable[[Context[Plan]], Result]
    judge: Callable[[RunState, Mapping[int, Result]], Judged] = _nothing
    plan: Callable[[RunState], Plan | Skip] = _nothing
    findings: Callable[[RunState, Judged], list[Finding]] | None = None
    confirms: str = ""
    shown: bool = True
    keeps_results: bool = True
    counted: bool = True
    closes: bool = False

    def conclude(self, run: RunState) -> list[Finding]:
        """Judges this stage's results, keeps the judge's value for later stages, makes findings.

        Findings that name no stage are of this one, or of the one that it rechecks.
        """
        judged = run.judged[self.name] = self.judge(run, run.of(self.name))
        found: Any = self.findings(run, judged) if self.findings else judged
        name = self.confirms or self.name
        return [replace(one, stage=one.stage or name) for one in found or ()]


AnyStage: TypeAlias = "Stage[Any, Any, Any]"
