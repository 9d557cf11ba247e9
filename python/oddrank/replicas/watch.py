"""Compares replicas after the first and every N-th step of an optimizer."""

import sys
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Any

from oddrank import render
from oddrank.errors import OddrankError
from oddrank.replicas import entries
from oddrank.replicas.check import Checker
from oddrank.replicas.groups import AUTO, Groups
from oddrank.report import Report

OnDiff = str | Callable[[Report], None]


class ReplicasDifferError(OddrankError):
    """Replicas differ. `report` says which rank, tensor and block."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.summary)
        self.report = report


def watch(
    module: Any,
    optimizer: Any,
    *,
    every: int = 100,
    on_diff: OnDiff = "raise",
    groups: Groups = AUTO,
    what: Collection[str] = entries.ALL,
    facts: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
) -> "Watch":
    """Compares after the optimizer's first step, and after every `every`-th one.

    on_diff: what happens on all ranks if the verdict is odd or unknown: "raise" raises
    ReplicasDifferError in optimizer.step(), "warn" prints the report on rank 0, a function gets the
    report. facts: as of check(), or a function that returns them; compared at the first step.
    Returns a Watch: remove() ends it, and it is a context manager. Others: see check().
    """
    entries.check_choice(what)
    if every < 1:
        raise OddrankError(f"every={every}: give a number of steps from 1 on")
    if not (callable(on_diff) or on_diff in ("raise", "warn")):
        raise OddrankError(f"on_diff={on_diff!r}: give 'raise', 'warn' or a function of a report")
    checker = Checker(module, optimizer, groups, tuple(what))
    return Watch(checker, optimizer, every, on_diff, facts)


class Watch:
    """A running comparison. `report` is the last one, None before the first step."""

    def __init__(
        self,
        checker: Checker,
        optimizer: Any,
        every: int,
        on_diff: OnDiff,
        facts: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None,
    ) -> None:
        self.report: Report | None = None
        self.steps = 0
        self._checker, self._every, self._on_diff, self._facts = checker, every, on_diff, facts
        self._hook = optimizer.register_step_post_hook(self._after_step)

    def remove(self) -> None:
        """Ends it. May be called twice."""
        self._hook.remove()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.remove()

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.steps += 1
        if self.steps == 1:
            facts = self._facts() if callable(self._facts) else self._facts
            self.report = self._checker.run(facts or {})
        elif self.steps % self._every == 0:
            self.report = self._checker.run()
        else:
            return
        if self.report.findings:
            self._tell(self.report)

    def _tell(self, report: Report) -> None:
        if callable(self._on_diff):
            self._on_diff(report)
        elif self._on_diff == "warn" or _only_shows(report):
            if report.world.get("rank", 0) == 0:
                render.report(report, sys.stderr)
        else:
            raise ReplicasDifferError(report)


def _only_shows(report: Report) -> bool:
    """Returns whether nothing but suspicions were found: a job must not end for them."""
    return all(finding.condition == "suspicious" for finding in report.findings)
