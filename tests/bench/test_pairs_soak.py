"""`make soak`: network faults and the ranks that must be named; writes bench_pairs_soak.json."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from random import Random
from typing import Any

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
from pair_rounds import play
from soak import RESULTS, Runs, asked_for, assert_all_right, names, write_rows

pytestmark = [pytest.mark.soak, pytest.mark.needs("torch", "netns"), pytest.mark.timeout(36000)]
_SEED = 20261122


@dataclass(frozen=True)
class Kind:
    """One kind of fault on one network; each round draws the faulty host or rank."""

    fault: str
    hosts: int
    on_host: int
    draw: Callable[[Random], Case]

    stage = "pairs"

    @property
    def where(self) -> str:
        return f"{self.hosts} hosts" + f" of {self.on_host} ranks" * (self.on_host > 1)

    def __str__(self) -> str:
        return f"{self.fault}, {self.where}"


def _of_hosts(hosts: int) -> list[Kind]:
    """Returns the faults for hosts of one rank each."""

    def one(make: Callable[[int, int], Case]) -> Callable[[Random], Case]:
        return lambda random: make(random.randrange(hosts), hosts)

    def two(make: Callable[[int, int, int], Case]) -> Callable[[Random], Case]:
        return lambda random: make(*random.sample(range(hosts), 2), hosts)

    return [
        Kind("healthy", hosts, 1, lambda random: healthy(hosts)),
        Kind("slow sender", hosts, 1, one(slow_sender)),
        Kind("slow receiver", hosts, 1, one(slow_receiver)),
        Kind("slow link", hosts, 1, two(slow_link)),
        Kind("delayed link", hosts, 1, two(delayed_link)),
    ]


def _of_two_ranks(hosts: int) -> list[Kind]:
    ranks = 2 * hosts
    return [
        Kind("healthy", hosts, 2, lambda random: healthy(ranks, 2)),
        Kind("slow sender", hosts, 2, lambda random: slow_node(random.randrange(hosts), hosts, 2)),
        Kind("slow rank", hosts, 2, lambda random: slow_rank(random.randrange(ranks), hosts, 2)),
    ]


# With two hosts, slow sender, receiver and link are the same, and a delay has nothing to compare
# with.
TWO = [kind for kind in _of_hosts(2) if kind.fault in {"healthy", "slow sender"}]
TABLE = [*TWO, *_of_hosts(3), *_of_hosts(4), *_of_hosts(8), *_of_two_ranks(3), *_of_two_ranks(4)]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[Runs[Kind]]:
    """Runs one network at a time: another job would disturb the measurements."""
    repeats = request.config.getoption("--repeats")
    if repeats == 1:
        pytest.skip("test_pairs.py has each fault once: make soak REPEATS=2 runs them here")
    runs: Runs[Kind] = {kind: [Future() for _ in range(repeats)] for kind in asked_for(request)}
    try:
        for hosts, on_host in dict.fromkeys((kind.hosts, kind.on_host) for kind in runs):
            here = {k: made for k, made in runs.items() if (k.hosts, k.on_host) == (hosts, on_host)}
            try:
                _play(hosts, on_host, here)
            except Exception as error:  # the other networks go on
                for run in (run for made in here.values() for run in made if not run.done()):
                    run.set_exception(error)
        yield runs
    finally:  # also after Ctrl-C
        done = {kind: made for kind, made in runs.items() if all(run.done() for run in made)}
        write_rows(done, TABLE, RESULTS / "bench_pairs_soak.json", names)


@pytest.mark.parametrize("case", TABLE, ids=str)
def test_who_is_hurt_is_named_every_time_and_nobody_else(case: Kind, outcomes: Runs[Kind]) -> None:
    assert_all_right(outcomes[case])


def _play(hosts: int, on_host: int, runs: Runs[Kind]) -> None:
    """Runs all rounds in one job, the kinds in random order."""
    random = Random(_SEED + 10 * hosts + on_host)
    rounds = [(kind.draw(random), run) for kind, made in runs.items() for run in made]
    random.shuffle(rounds)

    def judged(number: int, report: Mapping[str, Any]) -> None:
        case, run = rounds[number]
        said = case.said(report)
        run.set_result("" if said == "right" else f"{said}: {case}, {report['findings']}")

    play(hosts, on_host, [case for case, _ in rounds], judged)
