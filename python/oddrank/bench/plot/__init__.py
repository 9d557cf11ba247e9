"""Draws saved reports: the kinds of runs, and their names in legends."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from oddrank.bench.saved import Saved
from oddrank.errors import OddrankError


def check_kinds(runs: Sequence[Saved]) -> bool:
    """Returns whether `runs` is one run of pairs. OddrankError if it mixes kinds."""
    matrices = [run for run in runs if run.matrices]
    empty = [run for run in runs if not run.matrices and not run.rows]
    if empty:
        raise OddrankError(f"nothing to draw: {empty[0].path} has neither rows nor pairs")
    if matrices and len(runs) > 1:
        raise OddrankError(f"{matrices[0].path} is of bench pairs: draw it alone")
    return bool(matrices)


def names(runs: Sequence[Saved]) -> list[str]:
    """Returns a short, distinct name of each run for legends: its file's name without .json.

    Files with the same name get as much of their paths as makes them distinct; a path that is given
    twice gets a number.
    """
    found = [_tail(run.path, 1) for run in runs]
    for name, count in Counter(found).items():
        if count > 1:
            alike = [i for i, other in enumerate(found) if other == name]
            for i, label in zip(alike, _distinct_names([runs[i].path for i in alike]), strict=True):
                found[i] = label
    return found


def _distinct_names(paths: Sequence[str]) -> list[str]:
    depths = range(1, 1 + max(len(Path(path).parts) for path in paths))
    tails = [[_tail(path, depth) for path in paths] for depth in depths]
    apart = len(set(tails[-1]))
    shortest = next(tail for tail in tails if len(set(tail)) == apart)
    nth: Counter[str] = Counter()
    labels = []
    for tail in shortest:
        nth[tail] += 1
        labels.append(tail if shortest.count(tail) == 1 else f"{tail} #{nth[tail]}")
    return labels


def _tail(path: str, depth: int) -> str:
    return str(Path(*Path(path).parts[-depth:])).removesuffix(".json") or path
