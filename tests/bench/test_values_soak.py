"""`make soak`: wrong values in collectives and their ranks; writes bench_values_soak.json."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from job import job
from oddrank.bench.collectives import COLLECTIVES
from oddrank.bench.plan import AUTO, tasks
from soak import RESULTS, Runs, asked_for, assert_all_right, names, write_rows

pytestmark = [pytest.mark.soak, pytest.mark.needs("torch"), pytest.mark.timeout(3600)]
_SEED = 20261122
_DTYPES = ("float32", "bfloat16", "int64")
_NAMES = [name for name in COLLECTIVES if name != "barrier"]
# Collectives in which only the root has input.
_FROM_ROOT = ("broadcast", "scatter")


@dataclass(frozen=True)
class Kind:
    """Cases of a sweep; in half of them one rank has wrong values."""

    fault: str
    ranks: int

    stage = "bench run"

    @property
    def where(self) -> str:
        return f"{self.ranks} ranks"

    def __str__(self) -> str:
        return f"{self.fault}, {self.where}"


TABLE = [Kind(fault, ranks) for ranks in (2, 4, 8) for fault in ("healthy", "wrong values")]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[Runs[Kind]]:
    repeats = request.config.getoption("--repeats")
    if repeats == 1:
        pytest.skip("test_run.py has this fault: make soak REPEATS=2 runs it here")
    runs: Runs[Kind] = {}
    for ranks in sorted({kind.ranks for kind in asked_for(request)}):
        runs |= _sweep(ranks, repeats)
    yield runs
    write_rows(runs, TABLE, RESULTS / "bench_values_soak.json", names)


@pytest.mark.parametrize("case", TABLE, ids=str)
def test_who_puts_in_wrong_values_is_named_every_time_and_nobody_else(
    case: Kind, outcomes: Runs[Kind]
) -> None:
    assert_all_right(outcomes[case])


def _sweep(ranks: int, repeats: int) -> Runs[Kind]:
    """Runs one job: as many cases with a fault as without."""
    random = Random(_SEED + ranks)
    each = -(-2 * repeats // (len(_NAMES) * len(_DTYPES)))
    sizes = [(4096 << i % 6) + 1024 * (i // 6) for i in range(each)]
    planned = tasks(
        backends=(AUTO,), collectives=_NAMES, dtypes=_DTYPES, ops=("sum",),
        sizes=sizes, places=(AUTO,), world=ranks,
    )  # fmt: skip
    chosen = random.sample(planned, 2 * repeats)
    hurt = {
        task.name: 0 if task.case.collective in _FROM_ROOT else random.randrange(ranks)
        for task in chosen[:repeats]
    }
    what = {"--collectives": _NAMES, "--dtypes": _DTYPES, "--sizes": sizes}
    options = [text for name, of in what.items() for text in (name, ",".join(map(str, of)))]
    verdict = job(
        ranks,
        command=("bench", "run", *options, "--budget", "5", "--precision", "50%"),
        inject=";".join(f"value:rank={rank},stage={name}" for name, rank in hurt.items()),
        deadline=1800,
    )
    assert verdict.report is not None, str(verdict)
    assert not verdict.report["data"]["not_measured"], str(verdict)
    found: dict[str, list[Any]] = {}
    for one in verdict.report["findings"]:
        found.setdefault(one["stage"], []).append(one)
    # Findings on other cases would go unnoticed.
    assert set(found) <= {task.name for task in chosen}, str(verdict)
    runs: Runs[Kind] = {Kind("healthy", ranks): [], Kind("wrong values", ranks): []}
    for task in chosen:
        kind = Kind("wrong values" if task.name in hurt else "healthy", ranks)
        run: Future[str] = Future()
        run.set_result(_said(found.get(task.name, []), hurt.get(task.name), task.name))
        runs[kind].append(run)
    return runs


def _said(found: Sequence[Mapping[str, Any]], rank: int | None, name: str) -> str:
    """Returns what is wrong with a case's findings, "" if nothing. rank: its faulty rank."""
    named = [number for one in found for number in one["who"]["ranks"]]
    if named == ([] if rank is None else [rank]) and len(found) == len(named):
        return ""
    return f"{'wrong name' if named else 'nobody named'}: {name}, due: {rank}, said: {found}"
