"""The heat map frames what was named: a row, a column, both, or the cells of a link."""

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


def test_what_is_named_is_framed_as_a_row_a_column_or_cells_once():
    both, link = [(0, 2, 1, 1), (2, 0, 1, 1)], {"kind": "link"}
    for finding, boxes in (
        (slow("slow-sender", [1]), [ROW]),
        (slow("slow-receiver", [1]), [COLUMN]),
        (slow("slow-rank", [1], kind="rank"), [ROW, COLUMN]),
        (slow("slow-link", [0, 2], **link), both),
        (slow("slow-link", [0, 2], **link, device="n0 and n2"), both),
        (slow("slow-link", [0, 2], **link, device="n2 to n0"), both[1:]),
        (slow("slow-link", [0], **link), []),
        (slow("slow-link", [0, 1, 2], **link), []),
        (slow("delayed-rank", [1]), []),
        (slow("not-confirmed", [1], condition="unknown"), []),
        (slow("slow-sender", [7]), []),
        (slow("slow-sender", []), []),
        ({"condition": "slow", "cause": 3, "who": None}, []),
        ({"condition": "slow", "who": {"ranks": ["x", None]}}, []),
        ({"condition": "slow", "who": {"ranks": 3, "kind": "link", "device": 4}}, []),
        ({}, []),
    ):
        assert marks([finding], ONE_EACH, 4) == marks([finding] * 2, ONE_EACH, 4) == boxes, finding
    # Evidence that is none says nothing of the kind of link.
    for evidence in (None, [], [3], [{}], [{"source": 3}], {"source": "x y"}):
        assert marks([slow("slow-sender", [1]) | {"evidence": evidence}], ONE_EACH, 4) == [ROW]


def test_between_and_inside_nodes_each_frames_its_own_links():
    by_host = SavedMatrix("", NAMES, None, CELLS, {})
    assert marks([slow("slow-sender", [2, 3], host="n1")], by_host, 8) == [ROW]
    rank, line, link = {"kind": "rank"}, [(1, 0, 1, 2)], {"kind": "link"}
    for finding, between, inside in (
        (slow("slow-sender", [2, 3], host="n1"), [ROW], []),
        (slow("slow-node", [2, 3]), [ROW, COLUMN], []),
        (slow("slow-sender", [3], **rank, source="bandwidth between nodes"), [ROW], []),
        (slow("slow-sender", [3], **rank, source="bandwidth between single ranks"), [ROW], []),
        (slow("slow-sender", [3], **rank, source="bandwidth inside nodes"), [], line),
        (slow("slow-sender", [3], **rank, source="bandwidth"), [ROW], line),  # older versions'
        (slow("slow-link", [2, 3], **link, device="rank 2 and rank 3"), [],
         [(0, 1, 1, 1), (1, 0, 1, 1)]),
        (slow("slow-link", [2, 5], **link, device="n1 and n2"), [(1, 2, 1, 1), (2, 1, 1, 1)], []),
        (slow("delayed-node", [2, 3]), [], []),
    ):  # fmt: skip
        assert marks([finding], BETWEEN, 8) == between, finding
        assert marks([finding], INSIDE, 8) == inside, finding
        if finding["who"]["kind"] == "rank":
            assert marks([finding], ONE_EACH, 4)
    assert marks([finding], BETWEEN, 8, latency=True) == [ROW, COLUMN]
