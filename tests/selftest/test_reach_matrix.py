"""Nodes that a matrix of connections names, and when it names none."""

from oddrank.selftest.reach_matrix import PEERS, both, distances, judge, peers
from selftest.said import takes_one_pass


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
LINK = ([], [(0, 1)], "")
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
    far_link = said(8, lambda i, j: j == 2 or (i, j) == (5, 6))
    assert far_link == ([(2, "deaf")], [(5, 6)], "")
    odd, links, _ = said(20, lambda i, j: (i < 3) != (j < 3))  # a small rack
    assert (sorted(odd), links) == ([(0, "cut off"), (1, "cut off"), (2, "cut off")], [])


def test_of_a_single_pair_the_link_is_named_and_where_nothing_or_all_is_closed_nobody():
    for sizes, broken, expected in (
        ((2, 3, 4, 8, 65), lambda i, j: {i, j} == {0, 1}, LINK),
        ((2, 3, 4, 8, 65), lambda i, j: (i, j) == (0, 1), LINK),
        ((2, 3, 8, 65, 66, 1000), lambda i, j: False, HEALTHY),
        ((3, 8, 1000), lambda i, j: True, CLOSED),
    ):
        assert [said(nodes, broken) for nodes in sizes] == [expected] * len(sizes)


def test_without_a_pattern_nobody_is_named():
    for broken in (
        {(0, 1), (0, 2), (1, 2)},  # node 0 can't send or node 2 can't receive
        {(0, 1), (1, 0), (0, 2), (2, 0), (1, 2)},
    ):
        assert said(3, lambda i, j, broken=broken: (i, j) in broken) == SCATTERED, broken
    assert said(9, lambda i, j: j < 3)[0] == [(0, "deaf"), (1, "deaf"), (2, "deaf")]
    assert said(9, lambda i, j: j < 4) == SCATTERED  # more than a third
    assert said(40, lambda i, j: (i * 7 + j * 3) % 2 == 0)[2] == "scattered"
    found = judge(rows(8, lambda i, j: (i < 4) != (j < 4)))  # two racks
    assert found.scattered
    assert [sorted(group) for group in found.groups] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_what_was_not_tried_is_no_failure_and_only_what_failed_twice_counts():
    without = [
        "".join("-" if 3 in (node, peer) else "." for peer in peers(node, 6)) for node in range(6)
    ]
    assert judge(without).failed == judge(["-" * 5] * 6).failed == 0
    assert both("..trt-", ".t.su-") == "...su-"
    assert both("rt.", "--t") == "rt."
    assert both("s", "t") == "t"


def test_of_many_nodes_each_is_tried_by_as_many_and_both_ways_or_not_at_all():
    for nodes in (66, 67, 100, 129, 4096, 10_000):
        far = distances(nodes)
        assert len(set(far)) == len(far) == PEERS
        assert 0 not in far
        assert {nodes - d for d in far} == set(far), nodes


def test_many_nodes_are_judged_without_looking_at_all_pairs():
    for broken in (lambda i, j: True, lambda i, j: i % 2 != j % 2):

        def judged(nodes, broken=broken):
            found = judge(rows(nodes, broken))
            assert (found.tried, found.nodes) == (PEERS * nodes, ())

        takes_one_pass(judged, 3_000)
