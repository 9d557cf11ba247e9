"""The table of limits reproduces what was published, and says nothing where it knows nothing."""

import pytest

from measured_rows import GIB, GLOO, H200, Measured
from oddrank.bench.expect import expected, nvls_wire
from oddrank.bench.facts import Facts
from oddrank.bench.published import gpu_named, limits
from oddrank.bench.shortfall import judge, percent


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


@pytest.mark.parametrize("row", limits()["published"], ids=lambda row: f"{row['gpu']} {row['n']}")
def test_every_published_row_is_met_within_3_percent(row):
    case = Measured(row.get("bytes", 8 * GIB), collective=row.get("collective", "all_reduce"))
    found = expected(facts_of(row), case)
    low, high = row["GBps"]
    assert found is not None
    assert 0.97 * low <= found.busbw_GBps <= 1.03 * high
    assert found.source


@pytest.mark.parametrize("row", limits()["published"], ids=lambda row: f"{row['gpu']} {row['n']}")
def test_no_published_row_is_called_slow_at_90_percent(row):
    collective = row.get("collective", "all_reduce")
    low = Measured(row.get("bytes", 8 * GIB), row["GBps"][0], collective, n=row["n"])
    assert judge([low], [expected(facts_of(row), low)], 0.9) == []


def test_no_published_copy_is_faster_than_physics():
    for copy in limits()["copies"]:
        physical = {g["name"]: g[copy["limit"]] for g in limits()["gpus"] if g[copy["limit"]]}
        assert (
            0.7
            <= copy["GBps"][0] / physical[copy["gpu"]]
            <= copy["GBps"][1] / physical[copy["gpu"]]
            <= 0.92
        )


@pytest.mark.parametrize(("size", "GBps"), limits()["curves"]["H200 x8 NVLS"]["GBps"][2:])
def test_the_whole_curve_of_h200_serves_from_1_mib_on(size, GBps):
    found = expected(H200, Measured(size))
    assert found.busbw_GBps == pytest.approx(GBps, rel=0.001)
    assert found.judged


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
        Facts("NVIDIA H200", 8, 1, "c10d:nccl", nccl="2.16.2"),
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
    assert judge([slow], [found], 0.9) == []


def test_one_rank_has_the_memory_as_a_limit_of_algbw_and_none_in_place():
    alone = Facts("NVIDIA H200", 1, 1, "nccl")
    found = expected(alone, Measured(n=1, in_place=False))
    assert (found.busbw_GBps, found.algbw_GBps) == (None, 2400)
    row = Measured(n=1, busbw_GBps=None, algbw_GBps=2000, in_place=False)
    assert percent(row, found) == pytest.approx(83.3, abs=0.1)
    assert expected(alone, Measured(n=1)) is None


def test_what_a_cache_may_serve_is_held_against_no_rate_of_memory():
    """16 MiB in buffers of 32 MiB: two windows in each, of which an H200's 60 MiB hold most."""
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
    names = {gpu["name"] for gpu in limits()["gpus"]}
    for rule in limits()["within_node"]:
        assert rule["gpu"] in names
        assert 0.4 < rule["share"] < 1
        assert rule["source"]
    assert gpu_named("NVIDIA A100-SXM4-80GB")["memory_GBps"] == 2000
