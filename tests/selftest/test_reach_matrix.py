"""Nodes that a matrix of connections names, and when it names none."""

import pytest

from oddrank.selftest.reach_matrix import PEERS, both, distances, judge, peers


def rows(nodes, broken, letter="t"):
    """Returns the result letters of all nodes. broken(i, j): whether i fails to connect to j."""
    return [
        "".join(letter if broken(node, peer) else "." for peer in peers(node, nodes))
        for node in range(nodes)
    ]


def said(nodes, broken):
    """Returns ((node, how), ...), (ends, ...), and whether all is closed or without a pattern."""
    judgement = judge(rows(nodes, broken))
    odd = [(one.node, one.how) for one in judgement.nodes]
    links = [link.ends for link in judgement.links]
    return odd, links, "closed" * judgement.all_closed + "scattered" * judgement.scattered


HEALTHY, CLOSED, SCATTERED = ([], [], ""), ([], [], "closed"), ([], [], "scattered")
WAYS = {
    "deaf": lambda i, j: j == 2,
    "silent": lambda i, j: i == 2,
    "cut off": lambda i, j: 2 in (i, j),
}


def test_a_node_is_named_and_not_those_who_do_not_reach_it():
    for nodes in (3, 4, 8, 66, 1000):
        for how, broken in WAYS.items():
            assert said(nodes, broken) == ([(2, how)], [], ""), (nodes, how)
    assert said(12, lambda i, j: j == 5 and i != 4) == ([(5, "deaf")], [], "")  # few reach it


def test_a_single_pair_is_a_link_of_which_neither_end_is_named():
    for nodes in (2, 3, 4, 8, 65):
        for broken in (lambda i, j: {i, j} == {0, 1}, lambda i, j: (i, j) == (0, 1)):
            assert said(nodes, broken) == ([], [(0, 1)], ""), nodes


def test_a_node_and_a_link_far_from_it_are_both_named():
    assert said(8, lambda i, j: j == 2 or (i, j) == (5, 6)) == ([(2, "deaf")], [(5, 6)], "")


def test_where_nothing_or_all_is_closed_nobody_is_named():
    for nodes in (2, 3, 8, 65, 66, 1000):
        assert said(nodes, lambda i, j: False) == HEALTHY, nodes
    for nodes in (3, 8, 1000):
        assert said(nodes, lambda i, j: True) == CLOSED, nodes


def test_two_racks_that_do_not_reach_each_other_name_no_node():
    found = judge(rows(8, lambda i, j: (i < 4) != (j < 4)))
    assert found.scattered
    assert [sorted(group) for group in found.groups] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_small_rack_apart_from_a_large_one_is_named():
    odd, links, _ = said(20, lambda i, j: (i < 3) != (j < 3))
    assert (sorted(odd), links) == ([(0, "cut off"), (1, "cut off"), (2, "cut off")], [])


def test_of_three_nodes_none_is_named_if_the_other_two_are_not_well():
    for broken in (
        {(0, 1), (0, 2), (1, 2)},  # node 0 can't send or node 2 can't receive
        {(0, 2), (1, 2), (0, 1)},
        {(0, 1), (1, 0), (0, 2), (2, 0), (1, 2)},
    ):
        assert said(3, lambda i, j, broken=broken: (i, j) in broken) == SCATTERED


def test_more_odd_nodes_than_a_third_and_half_of_all_ways_have_no_pattern():
    assert said(9, lambda i, j: j < 3)[0] == [(0, "deaf"), (1, "deaf"), (2, "deaf")]
    assert said(9, lambda i, j: j < 4) == SCATTERED
    assert said(40, lambda i, j: (i * 7 + j * 3) % 2 == 0)[2] == "scattered"


def test_what_was_not_tried_is_no_failure():
    letters = rows(6, lambda *_: 0)
    without = [
        "".join("-" if 3 in (node, peer) else "." for peer in peers(node, 6)) for node in range(6)
    ]
    assert [*map(len, without)] == [*map(len, letters)]
    assert judge(without).failed == 0
    assert judge(["-" * 5] * 6).failed == 0


def test_of_two_looks_only_what_failed_twice_counts():
    assert both("..trt-", ".t.su-") == "...su-"
    assert both("rt.", "--t") == "rt."


@pytest.mark.parametrize("nodes", [66, 67, 100, 129, 4096, 10_000])
def test_of_many_nodes_each_is_tried_by_as_many_and_both_ways_or_not_at_all(nodes):
    far = distances(nodes)
    assert len(set(far)) == len(far) == PEERS
    assert 0 not in far
    assert {nodes - d for d in far} == set(far)


@pytest.mark.parametrize(
    "broken",
    [lambda i, j: j == 4321, lambda i, j: True, lambda i, j: (i < 5000) != (j < 5000)],
    ids=["one deaf", "all closed", "two halves"],
)
def test_ten_thousand_nodes_are_judged_without_looking_at_all_pairs(broken):
    letters = rows(10_000, broken)
    assert sum(map(len, letters)) == PEERS * 10_000
    found = judge(letters)
    assert found.tried == PEERS * 10_000
    assert [one.node for one in found.nodes] in ([4321], [])
