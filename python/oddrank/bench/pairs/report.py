"""The end of `bench pairs`: from the judge's outcome to the report and the tables above it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oddrank.bench.pairs import judge, table
from oddrank.finding import Report

if TYPE_CHECKING:
    from oddrank.control.walk import Outcome
    from oddrank.launch import Launch


def of_pairs(
    outcome: "Outcome", launch: "Launch", effect: float
) -> tuple[Report, Sequence[table.Table]]:
    """Whoever is slow, else what could have been seen; what passed by is told, and not judged."""
    rounds = outcome.rounds
    measured = bool(rounds.of(judge.PAIRS))
    found, passed = judge.settle(outcome.findings)
    if measured and not found:
        found = judge.unresolved(rounds, effect)
    report = Report.of(
        "bench",
        launch.as_world(),
        {"pairs": table.as_data(rounds) if measured else None},
        found,
        complete=outcome.complete,
        why=outcome.why or (passed if found else judge.all_well(rounds, effect, passed)),
    )
    return report, table.tables(rounds) if measured else []
