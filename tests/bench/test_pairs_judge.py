"""Findings after measurement and recheck of all links, and their text."""

import io
from dataclasses import replace

import pytest

from oddrank import render
from oddrank.bench.pairs.judge import PAIRS, Judge
from oddrank.bench.pairs.report import squares_of as squares_of_run
from oddrank.bench.pairs.stages import games_of_recheck
from oddrank.control.stages import RunState
from pair_measurements import measured, named, nodes_of


def half_from(rank):
    return lambda cell: 0.5 if cell[0] == rank else 1.0


def test_who_is_slow_twice_is_named_with_figures():
    states = nodes_of(5)
    first = measured(states, half_from(3))
    ((finding,), passed) = named(states, first, measured(states, half_from(3), ranks=[0, 1, 2, 3]))
    assert (finding.cause, finding.who.ranks, finding.who.host) == ("slow-sender", (3,), "node3")
    assert (finding.evidence[0].value, finding.evidence[0].median) == pytest.approx((5, 10))
    assert finding.confidence.level == "high"
    assert not passed


def test_who_is_as_quick_as_the_others_the_second_time_is_not_named_but_told():
    states = nodes_of(5)
    found, passed = named(states, measured(states, half_from(3)), measured(states))
    assert not found
    assert "rank 3" in passed


def test_who_was_not_measured_again_stays_unknown():
    states = nodes_of(5)
    first = measured(states, half_from(3))
    ((finding,), _) = named(states, first, measured(states, ranks=[0, 1, 2]))
    assert (finding.condition, finding.who.ranks) == ("unknown", ())


def test_a_link_that_is_delayed_and_therefore_slow_is_one_finding():
    def is_hurt(cell):
        return set(cell) == {1, 4}

    states = nodes_of(5)
    seen = measured(
        states, lambda c: 0.5 if is_hurt(c) else 1.0, lambda c: 900.0 if is_hurt(c) else 50.0
    )
    ((finding,), _) = named(states, seen, seen)
    assert (finding.cause, finding.who.kind, finding.who.ranks) == ("delayed-link", "link", (1, 4))
    assert finding.evidence[0].value == pytest.approx(900)


def test_a_link_that_is_far_off_is_named_though_another_barely_crosses_the_line():
    us = {frozenset({0, 1}): 57.0, frozenset({1, 2}): 91.2, frozenset({0, 2}): 2977.0}
    states = nodes_of(3)
    seen = measured(states, lambda c: 0.8 if c == (0, 2) else 1.0, lambda c: us[frozenset(c)])
    ((finding,), _) = named(states, seen, seen)
    assert (finding.cause, finding.who.ranks) == ("delayed-link", (0, 2))


def between(rates):
    """Returns rates of senders to other nodes; each node has two ranks."""
    return lambda cell: 1.0 if cell[0] // 2 == cell[1] // 2 else rates.get(cell[0], 1.0)


def test_a_node_is_named_where_all_of_its_ranks_are_slow_and_a_rank_where_it_alone_is():
    states = nodes_of(4, ranks=2)
    for slow, kind in (((2, 3), "node"), ((3,), "rank")):
        rate = between(dict.fromkeys(slow, 0.4))
        ((finding,), _) = named(
            states,
            measured(states, rate),
            measured(states, rate),
            measured(states, rate, alone=True),
        )
        assert (finding.cause, finding.who.ranks) == ("slow-sender", slow)
        assert finding.who.kind == kind


def test_a_rank_that_is_slow_in_its_node_and_out_of_it_is_one_finding():
    states = nodes_of(4, ranks=2)
    rate = {3: 0.4}
    seen = [
        measured(states, lambda cell: rate.get(cell[0], 1.0), alone=one) for one in (False, True)
    ]
    ((finding,), _) = named(states, seen[0], *seen)
    assert (finding.cause, finding.who.ranks) == ("slow-sender", (3,))


def test_a_rank_is_named_though_another_of_its_node_has_what_it_leaves_of_a_shared_way():
    states = nodes_of(4, ranks=2)
    rate = between({2: 0.3, 3: 1.7})
    alone = measured(states, between({2: 0.3}), alone=True)
    ((finding,), _) = named(states, measured(states, rate), measured(states, rate), alone)
    assert (finding.cause, finding.who.ranks) == ("slow-sender", (2,))


def test_a_rank_whose_mates_take_more_of_a_shared_way_is_not_named_if_alone_it_is_quick():
    states = nodes_of(4, ranks=2)
    seen = measured(states, between({2: 0.65, 3: 1.15}))
    found, passed = named(states, seen, seen, measured(states, alone=True))
    assert not found
    assert "rank 2" in passed


def test_of_a_slow_node_one_rank_that_looked_slow_alone_is_not_named_for_it():
    """Noise hid the slow node in the measurement, but all its ranks are slow alone."""
    states = nodes_of(4, ranks=2)
    first = measured(states, between({2: 0.65, 3: 1.15}))
    again = between({2: 0.5, 3: 0.5})
    ((finding,), _) = named(
        states, first, measured(states, again), measured(states, again, alone=True)
    )
    assert (finding.condition, finding.who.ranks) == ("unknown", ())


def test_a_node_with_fewer_ranks_moves_less_and_is_not_slow():
    states = {rank: state for rank, state in nodes_of(4, ranks=2).items() if rank != 7}
    judge, run = Judge(0.2), RunState(7, states, {PAIRS: measured(states)})
    assert not judge.suspects(run)
    assert not judge.unresolved(run)


def test_ranks_that_cut_a_pass_into_different_parts_add_up_to_what_their_node_moved():
    states = nodes_of(3, ranks=2)
    seen = measured(states)
    peer, _, latency = seen[2]["nodes"][0]
    seen[2]["nodes"][0] = (peer, [4.0, 6.0], latency)
    look = Judge(0.2).measurement(RunState(6, states, {PAIRS: seen}))
    assert look.between["GB/s"][0, 1][0] == [15]
    assert look.between["GB/s"][0, 1][1] == [20] * 4


def test_doubted_ranks_meet_again_while_their_mates_rest():
    states = nodes_of(5, ranks=2)
    seen = measured(states, between({2: 0.65, 3: 1.15}))
    games = games_of_recheck(Judge(0.2), RunState(10, states, {PAIRS: seen}))
    assert [game.where for game in games] == ["ranks", "ranks"]
    assert [len(team) for game in games for team in game.teams] == [1] * 8
    assert (2,) in games[0].teams
    assert (3,) in games[1].teams


def squares_of(states):
    run = RunState(len(states), states, {PAIRS: measured(states)})
    return squares_of_run(run, Judge(0.2).measurement(run))


def test_the_data_has_a_matrix_between_nodes_and_one_inside_each():
    states = nodes_of(3, ranks=2)
    data = squares_of(states).as_data()
    assert data["names"] == ["node0", "node1", "node2"]
    assert data["ranks"] == [[0, 1], [2, 3], [4, 5]]
    assert data["GBps"][0] == [None, 20, 20]  # both ranks of the node at once
    assert data["latency_us"][2] == [50, 50, None]
    assert [one["node"] for one in data["inside"]] == ["node0", "node1", "node2"]
    assert data["inside"][1]["names"] == ["rank 2", "rank 3"]
    assert data["inside"][1]["GBps"] == [[None, 10], [10, None]]


def test_where_most_links_are_not_measured_the_data_is_a_list_of_those_that_are():
    data = squares_of(nodes_of(65)).as_data()
    assert len(data["links"]) == 65 * 64
    assert data["links"][0] == [0, 1, 10, 50]
    assert "GBps" not in data


def test_two_nodes_whose_hosts_have_one_name_are_two():
    states = {rank: replace(state, host="node") for rank, state in nodes_of(2, ranks=2).items()}
    data = squares_of(states).as_data()
    assert data["names"] == ["node#0", "node#1"]
    assert [one["ranks"] for one in data["inside"]] == [[[0], [1]], [[2], [3]]]


def test_one_node_has_the_matrix_of_its_ranks():
    states = nodes_of(1, ranks=3)
    data = squares_of(states).as_data()
    assert data["names"] == ["rank 0", "rank 1", "rank 2"]
    assert data["inside"] == []


@pytest.mark.parametrize(("count", "widest"), [(16, 200), (17, 100)])
def test_a_matrix_is_shown_as_long_as_a_screen_holds_it(count, widest):
    states = nodes_of(count)
    stream = io.StringIO()
    for title, columns, rows in squares_of(states).tables():
        render.table(columns, rows, stream, title=title)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= widest
    assert ("node15" in stream.getvalue()) == (count == 16)
