"""Facts that cannot be true, as their ranks or sizes are beyond any job's."""

from collections.abc import Iterable, Iterator

from oddrank.triage.facts import (
    MOST_RANKS,
    Advice,
    Counts,
    Fact,
    Group,
    Mismatch,
    Progress,
    Span,
    Stack,
    Stop,
    Trouble,
    World,
    ranks,
)


def bounded(facts: Iterable[Fact]) -> tuple[list[Fact], list[Fact]]:
    """Returns the facts that may be true, and those with a rank or size beyond MOST_RANKS."""
    fine: list[Fact] = []
    strange: list[Fact] = []
    groups: dict[Group, bool] = {}
    for fact in facts:
        fits = all(0 <= number < MOST_RANKS for number in _own_numbers(fact))
        if fits and isinstance(fact, (Progress, Mismatch)):
            if fact.group not in groups:
                groups[fact.group] = all(0 <= rank < MOST_RANKS for rank in fact.group.ranks)
            fits = groups[fact.group]
        (fine if fits else strange).append(fact)
    return fine, strange


def _own_numbers(fact: Fact) -> Iterator[int]:
    """Yields the ranks and sizes in a fact, but for those of its group."""
    if isinstance(fact, World):
        yield fact.size
    elif isinstance(fact, Stack):
        yield from ranks([thread.process for thread in fact.threads])
    elif isinstance(fact, Mismatch):
        for variant in fact.variants:
            yield from variant.ranks
    elif isinstance(fact, Counts):
        yield from (rank for rank, _ in fact.counts)
        yield from (*fact.dead, *fact.silent, fact.size or 0)
        yield from ranks([process for _, process in fact.members])
    elif isinstance(fact, Trouble):
        yield from fact.ranks
    elif not isinstance(fact, (Span, Stop, Advice)) and fact.process.rank is not None:
        yield fact.process.rank
