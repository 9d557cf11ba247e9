"""Stage links: a node slow in both measurements is named; everything else is unknown."""

import pytest

from job import job
from netns import network
from oddrank.control.stages import RunState, Skip
from oddrank.selftest import Options
from oddrank.selftest.stages import links
from pair_measurements import measured, nodes_of

FIRST, RECHECK = links.stage(Options("quick")), links.recheck(Options("quick"))


def connected(states, backend="gloo"):
    said = {rank: {"backend": backend, "free": 1e12} for rank in states}
    return RunState(len(states), states, {"connect": said})


def slow_from(rank, rate=0.3):
    return lambda cell: rate if cell[0] == rank else 1.0


def test_a_node_that_is_slow_twice_is_named_as_links():
    states = nodes_of(5)
    run = connected(states)
    run.results["links"] = measured(states, slow_from(3))
    suspected = FIRST.conclude(run)
    assert [(f.condition, f.who.ranks, f.stage) for f in suspected] == [("unknown", (), "links")]
    assert "oddrank bench pairs" in suspected[0].next[0]
    assert RECHECK.plan(run)["games"]
    run.results["links_recheck"] = measured(states, slow_from(3))
    assert [(f.condition, f.who.ranks, f.stage) for f in RECHECK.conclude(run)] == [
        ("slow", (3,), "links")
    ]


def test_a_node_that_was_slow_once_is_no_finding():
    states = nodes_of(5)
    run = connected(states)
    run.results["links"] = measured(states, slow_from(3))
    assert FIRST.conclude(run)
    run.results["links_recheck"] = measured(states)
    assert RECHECK.conclude(run) == []


def test_links_of_several_kinds_are_no_finding():
    states = nodes_of(6)
    run = connected(states)
    run.results["links"] = measured(states, lambda cell: 1.0 if sum(cell) % 2 else 0.2)
    assert FIRST.conclude(run) == []


@pytest.mark.parametrize(
    ("nodes", "ranks", "backend", "said"),
    [
        (1, 1, "nccl", "one rank"),
        (1, 4, "gloo", "the ranks share the CPU of one host: there is no link between them"),
    ],
)
def test_where_there_is_no_link_the_stage_says_so(nodes, ranks, backend, said):
    assert FIRST.plan(connected(nodes_of(nodes, ranks), backend)) == Skip(said)


@pytest.mark.parametrize(("backend", "kinds"), [("nccl", {"inside"}), ("gloo", set())])
def test_inside_a_node_only_gpus_have_links(backend, kinds):
    run = connected(nodes_of(2, 4), backend)
    games = {game["where"] for game in FIRST.plan(run)["games"]}
    assert games == {"nodes", "ranks"} | kinds


@pytest.mark.needs("torch", "netns")
def test_a_host_that_sends_slowly_is_named_in_a_quick_run():
    with network(3) as net:
        net.slow_sender(1, 80)  # Mbit/s of 400
        verdict = job(
            3,
            3,
            hosts=net.hosts,
            launcher="env",
            command=("selftest", "--quick", "--only", "links"),
            deadline=90,
        )
    assert verdict.names(rank=1, stage="links"), str(verdict)
    assert verdict.causes == {"slow-sender"}
    assert verdict.gone()
