"""What a stage is: every rank measures, the judge judges; and what each is given for it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from oddrank.finding import Finding, Who

if TYPE_CHECKING:
    from oddrank.control.laps import Laps
    from oddrank.control.root import RankState
    from oddrank.launch import Launch


class Context(Protocol):
    """What a measurement is given, in the worker."""

    launch: "Launch"
    parameters: Any  # what this stage's plan() said: the same on every rank
    master: str  # rank 0's address for ranks on other hosts; "" where all are on one host
    seconds: float  # of the whole command: no wait inside a stage needs to be shorter
    kept: dict[str, Any]  # what a stage leaves for later ones of its rank (the process group)

    def step(self, text: str, *, waiting: bool = False) -> None:
        """Says what this rank does next; waiting: a collective, which only ends with the others."""

    def laps(self, capacity: int) -> "Laps":
        """Stamps for many collectives, each of which shows as waiting: see Session.laps."""

    def sync_clock(self, seconds: float = 5.0) -> tuple[int, int]:
        """(ns to add to this rank's CLOCK_MONOTONIC to get the root's, error): see Session."""

    def own(self, values: Any) -> Any:
        """The tensor that this rank puts into a collective, on its way there: tests spoil it."""

    def store(self) -> Any:
        """torch's store, where the ranks exchange addresses."""


@dataclass
class Rounds:
    """What a judgement is given: who the ranks are, and their results by stage and rank."""

    world: int
    states: dict[int, "RankState"] = field(default_factory=dict)
    results: dict[str, dict[int, Any]] = field(default_factory=dict)
    device: str = ""  # what the ranks compute on, once that is known: "GPU" or "CPU"
    kept: dict[str, Any] = field(default_factory=dict)  # what a judgement leaves for later ones
    master: tuple[str, int] | None = None  # MASTER_ADDR and MASTER_PORT, as rank 0 has them
    nodes: int = 1  # that the launcher, or who typed the environment, speaks of

    def of(self, stage: str) -> dict[int, Any]:
        return self.results.get(stage, {})

    def raised(self) -> list[int]:
        """Whose measurement ended with an exception, be it for another rank's sake."""
        return sorted(rank for rank, state in self.states.items() if state.failed is not None)

    def who(self, ranks: Iterable[int]) -> Who:
        """A rank with its host and device, or several, with the host where it is one."""
        named = tuple(sorted(ranks))
        known = [self.states[rank] for rank in named if rank in self.states]
        hosts = {s.host for s in known if s.contact != "never"}
        host = hosts.pop() if len(hosts) == 1 else None
        if len(named) != 1 or host is None:
            return Who("rank", named, host)
        name = "GPU" if self.device == "GPU" else "local rank"
        return Who("rank", named, host, f"{name} {known[0].local_rank}")


@dataclass(frozen=True)
class Skip:
    """What a plan gives where there is nothing to measure: `why`, for whoever reads the report."""

    why: str


def nobody_is_odd(rounds: Rounds) -> list[Finding]:
    """The judgement of a stage that only has to be come through."""
    return []


def no_plan(rounds: Rounds) -> Any:
    return None


@dataclass(frozen=True)
class Stage:
    """One row of a command's table.

    The table does not list join, with which every command begins.
    seconds: its own deadline, cut to what is left of the command's.
    measure: in every rank; gives what JSON can hold. Only here may torch be imported.
    judge: pure, in the judge's process, once all results are there.
    plan: what the ranks shall do, from earlier stages; reaches them as context.parameters. A Skip:
    nothing, and the stage is told as not run.
    confirms: an earlier stage; this one is walked through only if that one found something, and
    what it finds, or that it finds nothing, takes the place of that.
    shown: whether a line says that it is through; on_stage may say more.
    kept: whether later stages and the end see its results; else they go after judge and on_stage,
    of 10,000 ranks megabytes a stage.
    counted: against the time after which a command begins no further stage; see `runner.run`.
    closes: what an earlier stage began: walked through even then.
    """

    name: str
    seconds: float
    measure: Callable[[Context], Any]
    judge: Callable[[Rounds], list[Finding]] = nobody_is_odd
    plan: Callable[[Rounds], Any] = no_plan
    confirms: str = ""
    shown: bool = True
    kept: bool = True
    counted: bool = True
    closes: bool = False
