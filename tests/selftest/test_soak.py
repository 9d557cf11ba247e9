"""`make soak`: the whole fault matrix, many times; writes benchmarks/results/selftest_soak.json."""

import signal
from collections.abc import Iterator

import pytest

from faults import (
    RANK_FAULTS,
    STAGES,
    Case,
    cut_link,
    healthy,
    hurt_node,
    hurt_rank,
    hurt_somebody,
    never_started,
    run_once,
    wrong_local_rank,
)
from soak import RESULTS, Runs, assert_all_right, run_all

pytestmark = [pytest.mark.soak, pytest.mark.needs("torch", "netns"), pytest.mark.timeout(14400)]

HEALTHY = [healthy(4), healthy(2), healthy(4, nodes=2), healthy(8, quick=True)]
# Every kind of fault at every stage, alternately on rank 0 and on another, so that each kind and
# each stage has both.
KINDS_AND_STAGES = [
    hurt_somebody(kind, stage, root=(i + j) % 2 == 0)
    for i, kind in enumerate(RANK_FAULTS)
    for j, stage in enumerate(STAGES)
]
MATRIX = [
    *KINDS_AND_STAGES,
    *(hurt_rank(kind, 2, "collectives", ranks=4) for kind in RANK_FAULTS),
    *(
        hurt_rank(kind, 3 * (i % 2), "collectives", ranks=4, nodes=2)
        for i, kind in enumerate(RANK_FAULTS)
    ),
    *(
        hurt_node(node, number, stage)
        for number in (signal.SIGKILL, signal.SIGSTOP)
        for node in (1, 0)
        for stage in ("device", "collectives")
    ),
    cut_link("device"),
    cut_link("collectives"),
    wrong_local_rank(2, 1),
    never_started(1, 2),
    never_started(3, 4),
]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[Runs[Case]]:
    repeats = request.config.getoption("--repeats")

    def times(case: Case) -> int:
        if case in HEALTHY:
            return repeats * 5 // 2
        return 0 if repeats == 1 else repeats  # test_faults.py has every kind and stage once

    results = RESULTS / "selftest_soak.json"
    yield from run_all(request, [*HEALTHY, *MATRIX], results, times=times, run_once=run_once)


@pytest.mark.parametrize("case", [*HEALTHY, *MATRIX], ids=str)
def test_the_verdict_is_right_every_time(case: Case, outcomes: Runs[Case]) -> None:
    if not outcomes[case]:
        pytest.skip("make soak REPEATS=2 runs it")
    assert_all_right(outcomes[case])
