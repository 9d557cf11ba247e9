"""Expected bandwidth of a collective by published figures, and rows below it."""

from dataclasses import replace

import pytest

from bench.told import by_name, told
from measured_rows import A100, GIB, H200, Measured, said_of_nothing
from oddrank.bench.case import Case, parse_sizes
from oddrank.bench.data import Expected
from oddrank.bench.expected import expected, figures, held, judged_from, nvls_wire, shortfalls
from oddrank.bench.topology import Facts
from oddrank.gpus import GPUS, product

CURVE = figures()["curves"]["H200 x8 NVLS"]


def facts_of(row):
    nodes, pcie = row.get("nodes", 1), row.get("pcie")
    return Facts(
        row["gpu"], row["n"] // nodes, nodes,
        link="pcie" if pcie or "PCIe" in row["gpu"] else None, pcie=pcie,
        nics=tuple(row.get("nics", ())), fabric=row.get("fabric", "rdma"), nvls=row.get("nvls"),
        domain=row.get("domain"),
    )  # fmt: skip


def test_published_rows_are_met_within_3_percent_and_are_not_slow_at_90_percent():
    for row in figures()["published"]:
        low, high = row["GBps"]
        collective = row.get("collective", "all_reduce")
        case = Measured(row.get("bytes", 8 * GIB), low, collective, n=row["n"])
        found = expected(facts_of(row), case)
        assert found is not None, row
        assert 0.97 * low <= found.busbw_GBps <= 1.03 * high, row
        assert found.source, row
        assert shortfalls([case], [found], 0.9) == [], row


def test_the_table_names_known_products_and_has_a_source_for_each_rule():
    names = {gpu.name for gpu in GPUS if gpu.product}
    for rule in figures()["within_node"]:
        assert rule["gpu"] in names
        assert 0.4 < rule["share"] < 1
        assert rule["source"]
    assert product("NVIDIA A100-SXM4-80GB").link == 300
    rules = {rule["gpu"] for rule in figures()["within_node"]}
    assert {gpu.bandwidths for gpu in GPUS} - {""} <= rules


def test_a_curve_measured_by_torch_shows_from_1_mib_on_and_judges_from_64_mib_on(monkeypatch):
    """torch's own cost is in the small sizes: NCCL itself is faster there, by how much is open."""
    assert not CURVE["native"]
    for size, GBps in CURVE["GBps"][2:]:
        found = expected(H200, Measured(size))
        assert found.busbw_GBps == pytest.approx(GBps, rel=0.001)
        assert found.judged == (size >= 64 << 20)
    slow = Measured(4 << 20, 20.0)
    assert shortfalls([slow], [expected(H200, slow)], 0.9) == []
    assert held([slow], [expected(H200, slow)]) == []
    sizes = [1 << 20, 3 << 19, 2 << 20, 3 << 20, 4 << 20, 100 << 30]
    between = [expected(H200, Measured(size)).busbw_GBps for size in sizes]
    assert between == sorted(between)
    monkeypatch.setitem(CURVE, "native", True)
    assert expected(H200, Measured(1 << 20)).judged


def test_busbw_above_the_line_rate_is_explained_by_the_wire(golden):
    found = expected(H200, Measured())
    assert found.busbw_GBps > 450
    golden(found.note)
    assert nvls_wire(480, 8) == pytest.approx(308.6, abs=0.05)  # nccl-tests, pull request 239


def test_another_number_topology_or_case_has_no_expectation():
    for facts in (
        Facts("NVIDIA H200", 4, 1),
        Facts("NVIDIA H200", 7, 1, nvls=False),
        Facts("NVIDIA H200", 8, 1, links=17),
        Facts("NVIDIA H200", 8, 1, link="pcie"),
        Facts("NVIDIA H200", 8, 2),
        Facts("NVIDIA H200 NVL", 8, 1),
        Facts("NVIDIA H200 MIG 1g.18gb", 8, 1),
        Facts("NVIDIA H20", 8, 1),
        Facts("NVIDIA H100 NVL", 8, 1),
        Facts("NVIDIA GB200", 4, 18),
        Facts("", 8, 1),
        Facts("NVIDIA H200", 1, 1),
    ):
        assert expected(facts, Measured()) is None, facts
    for case in (
        Measured((1 << 20) - 4), Measured(8), Measured(op="prod"), Measured(dtype="float64"),
        Measured(collective="broadcast"), Measured(collective="barrier"),
        Measured(collective="sendrecv"),
    ):  # fmt: skip
        assert expected(H200, case) is None, case


def test_which_setups_have_the_same_figures_and_are_judged_by_them():
    nics = {"nics": (400.0,) * 8, "fabric": "rdma"}
    four, nine = (Facts("NVIDIA H100 80GB HBM3", 8, nodes, **nics) for nodes in (4, 9))
    ring = Facts("NVIDIA H200", 8, 1, nvls=False)
    for one, other, GBps, judged in (
        (four, nine, 380, False),  # more nodes than were published
        (A100, replace(A100, gpu="NVIDIA A100-SXM4-40GB"), 234, True),  # with the same links
        (ring, replace(ring, nvls=None), 367.6, True),
        (ring, replace(ring, nccl="2.16.2", nvls=True), 367.6, True),
    ):
        first, second = (expected(facts, Measured()) for facts in (one, other))
        assert first.busbw_GBps == second.busbw_GBps == pytest.approx(GBps, rel=0.01), other
        assert (first.judged, second.judged) == (True, judged), other


def test_rows_below_what_is_expected_are_one_finding_the_worst_first_and_name_no_rank(golden):
    rows = [Measured(GIB, 460.0), Measured(8 * GIB, 291.0), Measured(8, 0.001)]
    others = [Measured(GIB, 400.0), Measured(2 * GIB, 100.0)]
    others += [Measured(4 * GIB, 1.0, check="wrong"), Measured(4 * GIB, None, check="skipped")]
    (low,), (worst,) = (
        shortfalls(each, [expected(H200, row) for row in each], 0.9) for each in (rows, others)
    )
    assert (low.condition, low.cause, low.who.ranks) == ("unknown", "below-expected", ())
    assert not low.names_somebody()
    assert len(low.evidence) == 1
    assert [round(each.value) for each in worst.evidence] == [100, 400]
    golden(told(low, worst))
    row = Measured(busbw_GBps=90.0)
    for limit, count in ((100.0, 0), (100.1, 1)):
        assert len(shortfalls([row], [Expected(limit, "", judged=True)], 0.9)) == count


def test_what_a_gate_cannot_judge_says_why_and_from_which_size_on_it_can(golden):
    unknown = [Measured(), Measured(collective="broadcast")]
    untimed = [Measured(busbw_GBps=None, check=c) for c in ("wrong", "skipped")]
    found = {
        "too small": said_of_nothing(A100, [Measured(8), Measured(256 << 20)]),
        "nothing is published": said_of_nothing(Facts("NVIDIA L4", 2, 1), unknown),
        "wrong values": said_of_nothing(H200, untimed[:1]),
        "not measured": said_of_nothing(H200, untimed[1:]),
    }
    for one in found.values():
        assert (one.condition, one.cause, one.who.ranks) == ("unknown", "nothing-published", ())
    golden(by_name({name: told(one) for name, one in found.items()}))
    small = Case("all_reduce", "float32", 8)
    assert parse_sizes("4GiB") == [judged_from(A100, small)]
    assert judged_from(Facts("NVIDIA L4", 8, 1), small) is None
