"""Stage links: a node slow in both measurements is named; everything else is unknown."""

import pytest

from job import job
from netns import network
from oddrank.control.stages import RunState, Skip
from oddrank.selftest import Options
from oddrank.selftest.stages import links
from pair_measurements import measured, nodes_of
from selftest.said import check

FIRST, RECHECK = links.stage(Options("quick")), links.recheck(Options("quick"))


def connected(states, backend="gloo"):
    said = {rank: {"backend": backend, "free": 1e12} for rank in states}
    return RunState(len(states), states, {"connect": said})


def slow_from(rank):
    return lambda cell: 0.3 if cell[0] == rank else 1.0


def judged(again):
    """Returns the findings if a node is slow, before and after this second measurement."""
    states = nodes_of(5)
    run = connected(states)
    run.results["links"] = measured(states, slow_from(3))
    first = FIRST.conclude(run)
    assert RECHECK.plan(run)["games"]
    run.results["links_recheck"] = measured(states, again)
    return first, RECHECK.conclude(run)


def test_a_node_is_named_if_it_is_slow_twice(golden):
    first, again = judged(slow_from(3))
    said = {
        "unknown not-confirmed: nobody": {"once": first}, "slow slow-sender: 3": {"twice": again},
        "": {"no more": judged(lambda cell: 1.0)[1]},
    }  # fmt: skip
    check(said, golden)


def test_links_of_several_kinds_are_no_finding():
    states = nodes_of(6)
    run = connected(states)
    run.results["links"] = measured(states, lambda cell: 1.0 if sum(cell) % 2 else 0.2)
    assert FIRST.conclude(run) == []


def test_where_there_is_no_link_the_stage_says_so_and_inside_a_node_only_gpus_have_links():
    alone = "the ranks share the CPU of one host: there is no link between them"
    assert FIRST.plan(connected(nodes_of(1, 1), "nccl")) == Skip("one rank")
    assert FIRST.plan(connected(nodes_of(1, 4), "gloo")) == Skip(alone)
    for backend, kinds in (("nccl", {"inside"}), ("gloo", set())):
        games = FIRST.plan(connected(nodes_of(2, 4), backend))["games"]
        assert {game["where"] for game in games} == {"nodes", "ranks"} | kinds


@pytest.mark.needs("torch", "netns")
def test_a_host_that_sends_slowly_is_named_in_a_quick_run():
    with network(3) as net:
        net.slow_sender(1, 80)  # Mbit/s of 400
        command = ("selftest", "--quick", "--only", "links")
        verdict = job(3, 3, hosts=net.hosts, launcher="env", command=command, deadline=90)
    assert verdict.names(rank=1, stage="links"), str(verdict)
    assert verdict.causes == {"slow-sender"}
    assert verdict.gone()
