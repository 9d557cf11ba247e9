"""`make soak`: what is done to a network and whom it must name; writes bench_pairs_soak.json."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future

import pytest

from pair_faults import (
    Case,
    delayed_link,
    healthy,
    slow_link,
    slow_node,
    slow_rank,
    slow_receiver,
    slow_sender,
)
from soak import RESULTS, Runs, assert_all_right, run_all

pytestmark = [
    pytest.mark.soak,
    pytest.mark.needs("torch", "netns"),
    pytest.mark.timeout(14400),
]

HEALTHY = [healthy(2), healthy(4), healthy(8), healthy(6, on_host=2)]
FAULTS = [
    slow_sender(0, 2),
    slow_sender(1, 3),
    slow_sender(2, 4),
    slow_sender(5, 8),
    slow_node(1, nodes=3, on_host=2),
    slow_node(2, nodes=4, on_host=2),
    slow_rank(3, nodes=3, on_host=2),
    slow_receiver(0, 3),
    slow_receiver(3, 4),
    slow_receiver(7, 8),
    slow_link(0, 1, 3),
    slow_link(1, 3, 4),
    slow_link(2, 6, 8),
    delayed_link(0, 1, 3),
    delayed_link(0, 2, 4),
    delayed_link(3, 4, 8),
]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[Runs[Case]]:
    """One at a time: bandwidths are measured, which another job beside it would change."""
    repeats = request.config.getoption("--repeats")
    if repeats == 1:
        pytest.skip("test_pairs.py has each fault once: make soak REPEATS=2 runs them here")
    results = RESULTS / "bench_pairs_soak.json"
    yield from run_all(
        request,
        [*HEALTHY, *FAULTS],
        results,
        times=lambda _: repeats,
        run_once=run_once,
        count=count,
        workers=1,
    )


@pytest.mark.parametrize("case", HEALTHY, ids=str)
def test_healthy_networks_name_nobody(case: Case, outcomes: Runs[Case]) -> None:
    assert_all_right(outcomes[case])


@pytest.mark.parametrize("case", FAULTS, ids=str)
def test_who_is_slow_is_named_every_time(case: Case, outcomes: Runs[Case]) -> None:
    assert_all_right(outcomes[case])


def run_once(case: Case) -> str:
    """What was wrong with the verdict; "" if nothing."""
    verdict = case.run()
    said = case.said(verdict)
    return "" if said == "right" and verdict.gone() else f"{said}: {verdict}"


def count(runs: Sequence[Future[str]]) -> Mapping[str, int]:
    """A wrong name is worse than none."""
    how = Counter("error" if run.exception() else run.result().partition(":")[0] for run in runs)
    return {"wrong_name": how["wrong name"], "nobody_named": how["nobody named"]}
