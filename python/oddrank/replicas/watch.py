"""Compares replicas after the first and every N-th step of an optimizer."""

import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from oddrank import render
from oddrank.errors import OddrankError
from oddrank.replicas import entries, layer_hooks
from oddrank.replicas.check import Checker
from oddrank.replicas.groups import AUTO, Groups
from oddrank.report import Report

OnDiff = str | Callable[[Report], None]


class FoundError(OddrankError):
    """A running training has a finding, which `report` holds."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.summary)
        self.report = report


class ReplicasDifferError(FoundError):
    """Replicas differ. `report` says which rank, tensor and block."""


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

    on_diff: the action on all ranks if the verdict is odd or unknown: "raise" raises
    ReplicasDifferError in optimizer.step(), "warn" prints the report on rank 0, a function gets the
    report. facts: as of check(), or a function that returns them; compared at the first step.
    Rank 0 says once on stderr if some tensors, or all, are not compared, and why.
    Returns a Watch: remove() ends it, and it is a context manager. Others: see check().

    Example: oddrank.replicas.watch(model, optimizer, every=500, on_diff="warn")
    """
    entries.check_choice(what)
    check_arguments(every, on_diff, "on_diff")
    layer_hooks.check_optimizer(optimizer)
    checker = Checker(module, optimizer, groups, tuple(what))
    return Watch(checker, optimizer, every, on_diff, facts)


Own = TypeVar("Own", bound="Handle")


class Handle:
    """A watch, active until remove(), which may be called twice; also a context manager."""

    def remove(self) -> None:
        """Ends it. May be called twice."""
        raise NotImplementedError

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


class Watch(Handle):
    """A running comparison. `report` is the last one, None before the first step."""

    def __init__(
        self, checker: Checker, optimizer: Any, every: int, on_diff: OnDiff,
        facts: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None,
    ) -> None:  # fmt: skip
        self.report: Report | None = None
        self.steps = 0
        self._checker, self._every, self._on_diff, self._facts = checker, every, on_diff, facts
        self._hook = optimizer.register_step_post_hook(self._after_step)

    def remove(self) -> None:
        """Ends it. May be called twice."""
        self._hook.remove()

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.steps += 1
        if self.steps == 1:
            facts = self._facts() if callable(self._facts) else self._facts
            # Ranks that compare after other steps would wait for each other there.
            self.report = self._checker.run({**(facts or {}), "every= of watch": self._every})
            if self.report.data["skipped"] or self.report.verdict == "incomplete":
                layer_hooks.say(f"replicas.watch: {self.report.why}")
        elif self.steps % self._every == 0:
            self.report = self._checker.run()
        else:
            return
        if self.report.findings:
            tell(self.report, self._on_diff, ReplicasDifferError)


def check_arguments(every: int, on_found: OnDiff, name: str) -> None:
    """Raises OddrankError if a number of steps, or the action on a report, is invalid."""
    if every < 1:
        raise OddrankError(f"every={every}: give a number of steps from 1 on")
    if not (callable(on_found) or on_found in ("raise", "warn")):
        raise OddrankError(f"{name}={on_found!r}: give 'raise', 'warn' or a function of a report")


def tell(report: Report, on_found: OnDiff, error: type[FoundError]) -> None:
    """Raises `error`, prints the report on rank 0, or calls the user's function with it."""
    if callable(on_found):
        on_found(report)
    elif on_found == "warn":
        if report.world.get("rank", 0) == 0:
            render.report(report, sys.stderr)
    else:
        raise error(report)
