"""Who is named after two looks at all links, from what the ranks said; and how that is shown."""

import io

import pytest

from oddrank import render
from oddrank.bench.pairs import judge, table
from oddrank.bench.pairs.judge import CONFIRM, PAIRS
from oddrank.control.root import RankState
from oddrank.control.stages import Rounds


def nodes_of(count, ranks=1):
    return {
        node * ranks + local: RankState(
            node * ranks + local, f"node{node}", node, local, contact="ok"
        )
        for node in range(count)
        for local in range(ranks)
    }


def measured(states, rate=lambda cell: 1.0, latency=lambda cell: 50.0, ranks=None):
    """Three visits of everybody to those who share its local rank or its node."""
    shown = states if ranks is None else {rank: states[rank] for rank in ranks}
    return {
        rank: [
            (
                peer,
                [10 * rate((peer, rank))] * 4,
                [latency((rank, peer))] * 4 if rank < peer else [],
            )
            for _ in range(3)
            for peer, other in shown.items()
            if peer != rank and (own.local_rank == other.local_rank or own.node == other.node)
        ]
        for rank, own in shown.items()
    }


def named(states, first, second):
    rounds = Rounds(len(states), states, {PAIRS: first})
    suspects = judge.suspects(rounds, 0.2)
    assert suspects
    assert all(finding.condition == "unknown" for finding in suspects)  # so far
    rounds.results[CONFIRM] = second
    return judge.settle(judge.confirmed(rounds, 0.2))


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


def test_a_node_is_named_by_all_of_its_ranks_and_a_rank_alone():
    states = nodes_of(4, ranks=2)
    seen = measured(states, lambda cell: 0.5 if len({2, 3} & {*cell}) == 1 else 1.0)
    ((finding,), _) = named(states, seen, seen)
    assert (finding.cause, finding.who.kind, finding.who.ranks) == ("slow-node", "node", (2, 3))
    seen = measured(states, lambda cell: 0.5 if cell[1] == 3 and cell[0] != 2 else 1.0)
    ((finding,), _) = named(states, seen, seen)
    assert (finding.cause, finding.who.ranks) == ("slow-receiver", (3,))


def test_a_rank_that_is_slow_inside_its_node_only_is_named():
    states = nodes_of(2, ranks=4)

    def rate(cell):
        return 0.5 if cell[0] == 6 and cell[1] in {4, 5, 7} else 1.0

    seen = measured(states, rate)
    ((finding,), _) = named(states, seen, seen)
    assert (finding.cause, finding.who.ranks) == ("slow-sender", (6,))


def test_the_data_has_a_matrix_between_nodes_and_one_inside_each():
    states = nodes_of(3, ranks=2)
    data = table.as_data(Rounds(6, states, {PAIRS: measured(states)}))
    assert data["names"] == ["node0", "node1", "node2"]
    assert data["GBps"][0] == [None, 20, 20]  # both of its ranks at once
    assert data["latency_us"][2] == [50, 50, None]
    assert [one["node"] for one in data["inside"]] == ["node0", "node1", "node2"]
    assert data["inside"][1]["names"] == ["rank 2", "rank 3"]
    assert data["inside"][1]["GBps"] == [[None, 10], [10, None]]


def test_one_node_has_the_matrix_of_its_ranks():
    states = nodes_of(1, ranks=3)
    data = table.as_data(Rounds(3, states, {PAIRS: measured(states)}))
    assert data["names"] == ["rank 0", "rank 1", "rank 2"]
    assert data["inside"] == []


@pytest.mark.parametrize(("count", "widest"), [(16, 200), (17, 100)])
def test_a_matrix_is_shown_as_long_as_a_screen_holds_it(count, widest):
    states = nodes_of(count)
    stream = io.StringIO()
    for title, columns, rows in table.tables(Rounds(count, states, {PAIRS: measured(states)})):
        render.table(columns, rows, stream, title=title)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= widest
    assert ("node15" in stream.getvalue()) == (count == 16)
