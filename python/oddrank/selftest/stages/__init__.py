"""The stages of the self-test, in their order, and the choice of a run's stages.

A stage and its recheck share a file.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from oddrank.control.stages import AnyStage
from oddrank.selftest import Options
from oddrank.selftest.speed_judge import SPEED
from oddrank.selftest.stages import (
    collectives,
    connect,
    counters,
    device,
    environment,
    file_system,
    fingerprint,
    health,
    links,
    reach,
    speed,
)


@dataclass(frozen=True)
class StageRow:
    """A row of the table of stages.

    make: makes the stage from a run's options.
    always: runs in every run, as others are planned from its results. needed_by: runs if one of
    these stages runs. also_for: --only of one of these runs it, too; it can also be chosen or
    skipped.
    """

    make: Callable[[Options], AnyStage]
    always: bool = False
    needed_by: tuple[str, ...] = ()
    also_for: tuple[str, ...] = ()


TABLE = (
    StageRow(environment.stage, always=True),
    StageRow(counters.stage),
    StageRow(reach.listen, needed_by=("reach",)),
    StageRow(reach.stage),
    StageRow(reach.recheck),
    StageRow(file_system.stage),
    StageRow(health.stage, also_for=(SPEED,)),
    StageRow(device.stage),
    StageRow(speed.stage),
    StageRow(fingerprint.stage),
    StageRow(speed.recheck),
    StageRow(connect.stage, needed_by=(links.NAME, collectives.NAME)),
    StageRow(links.stage),
    StageRow(links.recheck),
    StageRow(collectives.stage),
    StageRow(collectives.localise),
    StageRow(counters.recheck, needed_by=("counters",)),
)


@dataclass(frozen=True)
class Choice:
    """stages: to run. left_out: the name of each other stage -> why."""

    stages: tuple[AnyStage, ...]
    left_out: dict[str, str]


def choose(table: Sequence[StageRow], options: Options) -> Choice:
    """Chooses the stages of a run. A stage that rechecks another runs if that one runs."""
    made = [(row, row.make(options)) for row in table]
    why = {stage.name: _why_not(row, stage, options) for row, stage in made}
    for row, stage in made:
        if why[stage.name] == "--only" and any(why[name] == "" for name in row.also_for):
            why[stage.name] = ""
        if row.needed_by:
            reasons = [why[name] for name in row.needed_by]
            why[stage.name] = "" if "" in reasons else reasons[0]
    stages = tuple(stage for _, stage in made if not why[stage.name])
    return Choice(stages, {name: reason for name, reason in why.items() if reason})


def names(table: Iterable[StageRow]) -> tuple[str, ...]:
    stages = [row.make(Options()) for row in table if not (row.always or row.needed_by)]
    return tuple(stage.name for stage in stages if not stage.confirms)


def _why_not(row: StageRow, stage: AnyStage, options: Options) -> str:
    if row.always:
        return ""
    name = stage.confirms or stage.name
    if name in options.skip:
        return "--skip"
    if options.only:
        return "" if name in options.only else "--only"
    return ""
