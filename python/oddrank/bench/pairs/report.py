"""The end of `bench pairs`: from the judge's outcome to the report and the tables above it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oddrank.bench.pairs import table
from oddrank.bench.pairs.judge import PAIRS, Judge, settle
from oddrank.finding import Report

if TYPE_CHECKING:
    from oddrank.control.walk import Outcome
    from oddrank.launch import Launch


def of_pairs(
    outcome: "Outcome", launch: "Launch", judge: Judge
) -> tuple[Report, Sequence[table.Table]]:
    """Whoever is slow, else what could have been seen; what passed by is told, and not judged."""
    rounds = outcome.rounds
    measured = bool(rounds.of(PAIRS))
    found, passed = settle(outcome.findings)
    if measured and not found:
        found = judge.unresolved(rounds)
    why = outcome.why or passed
    if measured and not found:
        why = outcome.why or judge.all_well(rounds, passed)
    squares = table.squares(rounds, judge.look(rounds)) if measured else None
    report = Report.of(
        "bench",
        launch.as_world(),
        {"pairs": squares.as_data() if squares else None},
        found,
        complete=outcome.complete,
        why=why,
        raised=rounds.raised(),
    )
    return report, squares.tables() if squares else []
