"""Which stages a run of the self-test has, what is left out, and by which option."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from oddrank.control.stages import Stage

Level = Literal["quick", "normal", "full"]
LEVELS: tuple[Level, ...] = ("quick", "normal", "full")


@dataclass(frozen=True)
class Options:
    """What a run is asked for: how thorough, and the stages by name (none in `only`: all)."""

    level: Level = "normal"
    only: frozenset[str] = frozenset()
    skip: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Row:
    """A row of the table of stages.

    make: the stage for such a run. level: the least thorough run that has it. always: other stages
    are planned from what it measures.
    """

    make: Callable[[Options], Stage]
    level: Level = "quick"
    always: bool = False


@dataclass(frozen=True)
class Choice:
    """stages: to walk. left_out: the name of each other one -> why."""

    stages: tuple[Stage, ...]
    left_out: dict[str, str]


def choose(table: Sequence[Row], options: Options) -> Choice:
    """A stage that confirms another goes where that one goes."""
    stages: list[Stage] = []
    left_out: dict[str, str] = {}
    for row in table:
        stage = row.make(options)
        why = _why_not(row, stage, options)
        if why:
            left_out[stage.name] = why
        else:
            stages.append(stage)
    return Choice(tuple(stages), left_out)


def names(table: Iterable[Row]) -> tuple[str, ...]:
    """Of the stages that can be chosen."""
    stages = [row.make(Options()) for row in table if not row.always]
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
