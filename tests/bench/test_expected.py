"""Expected bandwidth of a collective by published figures, and rows below it."""

import pytest

from measured_rows import A100, GIB, GLOO, H200, Measured, said_of_nothing
from oddrank.bench.case import Case, parse_sizes
from oddrank.bench.expected import (
    expected,
    figures,
    gpu_named,
    held,
    judged_from,
    nvls_wire,
    percent,
    shortfalls,
)
from oddrank.bench.topology import Facts


def facts_of(row):
    nodes = row.get("nodes", 1)
    pcie = row.get("pcie")
    return Facts(
        row["gpu"],
        row["n"] // nodes,
        nodes,
        "nccl",
        link="pcie" if pcie or "PCIe" in row["gpu"] else None,
        pcie=pcie,
        nics=tuple(row.get("nics", ())),
        fabric=row.get("fabric", "rdma"),
        nvls=row.get("nvls"),
        domain=row.get("domain"),
    )


@pytest.mark.parametrize("row", figures()["published"], ids=lambda row: f"{row['gpu']} {row['n']}")
def test_every_published_row_is_met_within_3_percent(row):
    case = Measured(row.get("bytes", 8 * GIB), collective=row.get("collective", "all_reduce"))
    found = expected(facts_of(row), case)
    low, high = row["GBps"]
    assert found is not None
    assert 0.97 * low <= found.busbw_GBps <= 1.03 * high
    assert found.source


@pytest.mark.parametrize("row", figures()["published"], ids=lambda row: f"{row['gpu']} {row['n']}")
def test_no_published_row_is_called_slow_at_90_percent(row):
    collective = row.get("collective", "all_reduce")
    low = Measured(row.get("bytes", 8 * GIB), row["GBps"][0], collective, n=row["n"])
    assert shortfalls([low], [expected(facts_of(row), low)], 0.9) == []


def test_no_published_copy_is_faster_than_physics():
    for copy in figures()["copies"]:
        physical = {g["name"]: g[copy["limit"]] for g in figures()["gpus"] if g[copy["limit"]]}
        assert (
            0.7
            <= copy["GBps"][0] / physical[copy["gpu"]]
            <= copy["GBps"][1] / physical[copy["gpu"]]
            <= 0.92
        )


@pytest.mark.parametrize(("size", "GBps"), figures()["curves"]["H200 x8 NVLS"]["GBps"][2:])
def test_the_whole_curve_of_h200_shows_from_1_mib_on_and_judges_from_64_mib_on(size, GBps):
    """torch has measured it: its own cost is in the small sizes."""
    assert not figures()["curves"]["H200 x8 NVLS"]["native"]
    found = expected(H200, Measured(size))
    assert found.busbw_GBps == pytest.approx(GBps, rel=0.001)
    assert found.judged == (size >= 64 << 20)


def test_a_curve_of_native_nccl_judges_small_sizes_too(monkeypatch):
    curve = figures()["curves"]["H200 x8 NVLS"]
    monkeypatch.setitem(curve, "native", True)
    assert expected(H200, Measured(1 << 20)).judged


def test_a_curve_of_torch_judges_no_small_size():
    """NCCL itself is faster there than the curve, by how much is unknown."""
    row = Measured(4 << 20, 20.0)
    assert shortfalls([row], [expected(H200, row)], 0.9) == []
    assert held([row], [expected(H200, row)]) == []


def test_between_its_points_the_curve_rises():
    sizes = [1 << 20, 3 << 19, 2 << 20, 3 << 20, 4 << 20, 100 << 30]
    values = [expected(H200, Measured(size)).busbw_GBps for size in sizes]
    assert values == sorted(values)


def test_busbw_above_the_line_rate_is_explained_by_the_wire():
    found = expected(H200, Measured())
    assert found.busbw_GBps > 450
    assert "(n+1)/n = 307 GB/s of 450" in found.note
    assert nvls_wire(480, 8) == pytest.approx(308.6, abs=0.05)  # nccl-tests, pull request 239


def test_without_nvls_a_ring_is_expected():
    for facts in (
        Facts("NVIDIA H200", 8, 1, "nccl", nvls=False),
        Facts("NVIDIA H200", 8, 1, "nccl"),
        Facts("NVIDIA H200", 8, 1, "c10d:nccl", nccl="2.16.2", nvls=True),
    ):
        assert expected(facts, Measured()).busbw_GBps == pytest.approx(367.6, rel=0.01)


@pytest.mark.parametrize(
    "facts",
    [
        Facts("NVIDIA H200", 4, 1, "nccl"),
        Facts("NVIDIA H200", 7, 1, "nccl", nvls=False),
        Facts("NVIDIA H200", 8, 1, "nccl", links=17),
        Facts("NVIDIA H200", 8, 1, "nccl", link="pcie"),
        Facts("NVIDIA H200", 8, 1, "c10d:gloo"),
        Facts("NVIDIA H200", 8, 2, "nccl"),
        Facts("NVIDIA H200 NVL", 8, 1, "nccl"),
        Facts("NVIDIA H200 MIG 1g.18gb", 8, 1, "nccl"),
        Facts("NVIDIA H20", 8, 1, "nccl"),
        Facts("NVIDIA H100 NVL", 8, 1, "nccl"),
        Facts("NVIDIA GB200", 4, 18, "nccl"),
        Facts("", 8, 1, "nccl"),
        Facts(None, 8, 1, "c10d:gloo"),
        Facts(None, 8, 1, "c10d:gloo", nics=(100.0,)),
    ],
)
def test_another_number_or_topology_has_no_expectation(facts):
    assert expected(facts, Measured()) is None


@pytest.mark.parametrize(
    "case",
    [
        Measured((1 << 20) - 4),
        Measured(8),
        Measured(op="prod"),
        Measured(dtype="float64"),
        Measured(collective="broadcast"),
        Measured(collective="barrier"),
    ],
)
def test_another_case_has_no_expectation(case):
    assert expected(H200, case) is None


def test_gloo_between_nodes_has_its_nic_as_a_limit_that_is_never_judged():
    found = expected(GLOO, Measured(1 << 24))
    assert found.busbw_GBps == pytest.approx(25 / 8)
    assert found.physical
    slow = Measured(1 << 24, 0.1)
    assert percent(slow, found) == pytest.approx(3.2)
    assert shortfalls([slow], [found], 0.9) == []


def test_one_rank_has_the_memory_as_a_limit_of_algbw_and_none_in_place():
    alone = Facts("NVIDIA H200", 1, 1, "nccl")
    found = expected(alone, Measured(n=1, in_place=False))
    assert (found.busbw_GBps, found.algbw_GBps) == (None, 2400)
    row = Measured(n=1, busbw_GBps=None, algbw_GBps=2000, in_place=False)
    assert percent(row, found) == pytest.approx(83.3, abs=0.1)
    assert expected(alone, Measured(n=1)) is None


def test_what_a_cache_may_serve_is_held_against_no_rate_of_memory():
    """Two windows of 16 MiB in each buffer of 32 MiB: an H200's cache of 60 MiB holds most."""
    alone, case = Facts("NVIDIA H200", 1, 1, "nccl"), Measured(16 << 20, n=1, in_place=False)
    row = Measured(16 << 20, n=1, busbw_GBps=None, algbw_GBps=3000, in_place=False)
    cached, from_memory = (expected(alone, case, size << 20) for size in (64, 128))
    assert percent(row, cached) is None
    assert cached.source
    assert "64 MiB" in cached.note
    assert not cached.judged
    assert percent(row, from_memory) == pytest.approx(125)


def test_more_nodes_than_were_published_are_shown_and_not_judged():
    nics = (400.0,) * 8
    four = Facts("NVIDIA H100 80GB HBM3", 8, 4, "nccl", nics=nics, fabric="rdma")
    nine = Facts("NVIDIA H100 80GB HBM3", 8, 9, "nccl", nics=nics, fabric="rdma")
    assert expected(four, Measured()).judged
    assert expected(nine, Measured()).busbw_GBps == expected(four, Measured()).busbw_GBps
    assert not expected(nine, Measured()).judged


def test_the_table_names_known_products_and_collectives_only():
    names = {gpu["name"] for gpu in figures()["gpus"]}
    for rule in figures()["within_node"]:
        assert rule["gpu"] in names
        assert 0.4 < rule["share"] < 1
        assert rule["source"]
    assert gpu_named("NVIDIA A100-SXM4-80GB")["memory_GBps"] == 2000


def test_a_node_at_61_percent_is_below_what_is_expected_and_no_rank_of_it_is_named():
    rows = [Measured(GIB, 460.0), Measured(8 * GIB, 291.0), Measured(8, 0.001)]
    (found,) = shortfalls(rows, [expected(H200, row) for row in rows], 0.9)
    assert (found.condition, found.cause, found.who.ranks) == ("unknown", "below-expected", ())
    assert "61%" in found.what
    assert not found.names_somebody()
    assert len(found.evidence) == 1


def test_the_worst_row_comes_first_and_wrong_or_missing_values_are_not_judged():
    rows = [
        Measured(GIB, 400.0),
        Measured(2 * GIB, 100.0),
        Measured(4 * GIB, 1.0, check="wrong"),
        Measured(4 * GIB, None, check="skipped: memory"),
    ]
    (found,) = shortfalls(rows, [expected(H200, row) for row in rows], 0.9)
    assert [round(each.value) for each in found.evidence] == [100, 400]


def test_what_is_too_small_to_be_judged_says_from_which_size_on_it_is():
    found = said_of_nothing(A100, [Measured(8), Measured(256 << 20)])
    assert (found.condition, found.cause, found.who.ranks) == ("unknown", "nothing-published", ())
    assert "8 ranks over nccl" in found.what
    assert [one.text for one in found.evidence] == [
        "2 of 2 rows: all_reduce is judged from 4 GiB on"
    ]
    assert found.next[0].endswith("--sizes 4GiB")
    assert parse_sizes("4GiB") == [judged_from(A100, Case("all_reduce", "float32", 8))]


def test_where_nothing_is_published_no_size_is_named():
    rows = [Measured(1 << 24), Measured(1 << 24, collective="broadcast")]
    found = said_of_nothing(GLOO, rows)
    assert [one.text.partition(": ")[2] for one in found.evidence] == [
        "all_reduce has a physical limit, but no published figure",
        "no figure is published for broadcast on these devices",
    ]
    assert not any("--sizes" in one for one in found.next)
    assert judged_from(Facts("NVIDIA L4", 8, 1, "nccl"), Case("all_reduce", "float32", 8)) is None


@pytest.mark.parametrize(("check", "why"), [("wrong", "wrong values"), ("skipped", "not measured")])
def test_what_could_be_judged_and_has_no_time_that_counts_is_told(check, why):
    (told,) = said_of_nothing(
        H200, [Measured(busbw_GBps=None, algbw_GBps=None, check=check)]
    ).evidence
    assert told.text == f"1 of 1 rows: {why}"
