"""Which stages a run of the self-test has, what is left out, and by which option."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from oddrank.control.stages import Stage

Level = Literal["quick", "normal", "full"]
LEVELS: tuple[Level, ...] = ("quick", "normal", "full")


@dataclass(frozen=True)
class Options:
    """What a run is asked for: how thorough, and the stages by name (none in `only`: all).

    paths: whose file systems are tried, beside those that nearly every job uses.
    baseline: path of an earlier report to be held against; "" for none.
    """

    level: Level = "normal"
    only: frozenset[str] = frozenset()
    skip: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()
    baseline: str = ""


@dataclass(frozen=True)
class Row:
    """A row of the table of stages.

    make: the stage for such a run. level: the least thorough run that has it. always: other stages
    are planned from what it measures. needed_by: it goes where one of these goes, by name.
    also_for: it goes with --only one of these as well, and can be chosen and left out itself.
    """

    make: Callable[[Options], Stage]
    level: Level = "quick"
    always: bool = False
    needed_by: tuple[str, ...] = ()
    also_for: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choice:
    """stages: to walk. left_out: the name of each other one -> why."""

    stages: tuple[Stage, ...]
    left_out: dict[str, str]


def choose(table: Sequence[Row], options: Options) -> Choice:
    """A stage that confirms another goes where that one goes."""
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


def names(table: Iterable[Row]) -> tuple[str, ...]:
    """Of the stages that can be chosen."""
    stages = [row.make(Options()) for row in table if not (row.always or row.needed_by)]
    return tuple(stage.name for stage in stages if not stage.confirms)


def _why_not(row: Row, stage: Stage, options: Options) -> str:
    if row.always:
        return ""
    name = stage.confirms or stage.name
    if name in options.skip:
        return "--skip"
    if options.only:
        return "" if name in options.only else "--only"
    if LEVELS.index(row.level) > LEVELS.index(options.level):
        return "--quick" if options.level == "quick" else "without --full"
    return ""
