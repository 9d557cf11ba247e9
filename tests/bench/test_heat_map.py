"""The heat map frames what was named: a row, a column, both, or the cells of a link."""

import pytest

from oddrank.bench.plot.heat_map import marks
from oddrank.bench.saved import SavedMatrix
from saved_runs import slow

NAMES = ("n0", "n1", "n2", "n3")
CELLS = {(i, j): 1.0 for i in range(4) for j in range(4)}
NODES = tuple(frozenset({2 * i, 2 * i + 1}) for i in range(4))
ONE_EACH = SavedMatrix("", NAMES, None, CELLS, {})
BETWEEN = SavedMatrix("between nodes", NAMES, NODES, CELLS, CELLS)
INSIDE = SavedMatrix("inside n1", ("rank 2", "rank 3"), None, {(0, 1): 1.0}, {(0, 1): 1.0})
ROW, COLUMN = (1, 0, 1, 4), (0, 1, 4, 1)


@pytest.mark.parametrize(
    ("finding", "boxes"),
    [
        (slow("slow-sender", [1]), [ROW]),
        (slow("slow-receiver", [1]), [COLUMN]),
        (slow("slow-rank", [1], kind="rank"), [ROW, COLUMN]),
        (slow("slow-link", [0, 2], kind="link"), [(0, 2, 1, 1), (2, 0, 1, 1)]),
        (slow("slow-link", [0, 2], "link", device="n0 and n2"), [(0, 2, 1, 1), (2, 0, 1, 1)]),
        (slow("slow-link", [0, 2], "link", device="n2 to n0"), [(2, 0, 1, 1)]),
        (slow("slow-link", [0], kind="link"), []),
        (slow("slow-link", [0, 1, 2], kind="link"), []),
        (slow("delayed-rank", [1]), []),
        (slow("not-confirmed", [1], condition="unknown"), []),
        (slow("slow-sender", [7]), []),
        (slow("slow-sender", []), []),
        ({"condition": "slow", "cause": 3, "who": None}, []),
        ({"condition": "slow", "who": {"ranks": ["x", None]}}, []),
        ({"condition": "slow", "who": {"ranks": 3, "kind": "link", "device": 4}}, []),
        ({}, []),
    ],
)
def test_who_is_named_is_framed_as_a_row_a_column_or_cells(finding, boxes):
    assert marks([finding], ONE_EACH, 4) == boxes


def test_a_node_is_found_by_its_ranks_and_without_them_by_its_host():
    finding = slow("slow-sender", [2, 3], host="n1")
    assert marks([finding], BETWEEN, 8) == [ROW]
    assert marks([finding], SavedMatrix("", NAMES, None, CELLS, {}), 8) == [ROW]


def test_delays_are_framed_among_the_latencies_only():
    finding = slow("delayed-node", [2, 3])
    assert marks([finding], BETWEEN, 8) == []
    assert marks([finding], BETWEEN, 8, latency=True) == [ROW, COLUMN]


def test_inside_a_node_ranks_are_framed_and_not_the_node_itself():
    assert marks([slow("slow-sender", [3], kind="rank")], INSIDE, 8) == [(1, 0, 1, 2)]
    assert marks([slow("slow-node", [2, 3])], INSIDE, 8) == []


def test_who_is_slow_in_links_of_one_kind_is_not_framed_among_those_of_another():
    for source, between, inside in (
        ("bandwidth between nodes", [ROW], []),
        ("bandwidth between single ranks", [ROW], []),
        ("bandwidth inside nodes", [], [(1, 0, 1, 2)]),
        ("bandwidth", [ROW], [(1, 0, 1, 2)]),  # as older versions wrote it
    ):
        finding = slow("slow-sender", [3], kind="rank", source=source)
        assert marks([finding], BETWEEN, 8) == between
        assert marks([finding], INSIDE, 8) == inside
        assert marks([finding], ONE_EACH, 4)


@pytest.mark.parametrize("evidence", [None, [], [3], [{}], [{"source": 3}], {"source": "x y"}])
def test_evidence_that_is_none_says_nothing_of_the_kind_of_link(evidence):
    assert marks([slow("slow-sender", [1]) | {"evidence": evidence}], ONE_EACH, 4) == [ROW]


def test_a_link_is_framed_where_both_of_its_ends_are():
    inside = slow("slow-link", [2, 3], kind="link", device="rank 2 and rank 3")
    across = slow("slow-link", [2, 5], kind="link", device="n1 and n2")
    assert marks([inside], INSIDE, 8) == [(0, 1, 1, 1), (1, 0, 1, 1)]
    assert marks([across], INSIDE, 8) == []
    assert marks([inside], BETWEEN, 8) == []
    assert marks([across], BETWEEN, 8) == [(1, 2, 1, 1), (2, 1, 1, 1)]


def test_who_is_named_twice_is_framed_once():
    assert marks([slow("slow-sender", [1])] * 2, ONE_EACH, 4) == [ROW]
