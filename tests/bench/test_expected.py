"""Expected bandwidth of a collective by published figures, rows below it, and what joins GPUs."""

from dataclasses import replace

import pytest

from bench.told import by_name, told
from oddrank.bench import topology
from oddrank.bench.case import Case
from oddrank.bench.data import Row
from oddrank.bench.expected import expected, figures, nvls_wire, of_gate
from oddrank.bench.topology import Facts
from oddrank.control.stages import RankState, RunState
from oddrank.gpus import GPUS, product

GIB = 1 << 30
CURVE = figures()["curves"]["H200 x8 NVLS"]
H200 = Facts("NVIDIA H200", 8, nccl="2.29.7", nvls=True)
A100 = Facts("NVIDIA A100-SXM4-80GB", 8)


def case_of(size=8 * GIB, collective="all_reduce", dtype="float32", op="sum"):
    return Case(collective, dtype, size, op)


def gate(facts, *rows):
    """Returns what --fail-below 90% says of rows: (size, busbw), and what else they are."""
    made = []
    for size, busbw, *more in rows:
        case = case_of(size)
        row = Row("nccl", case.collective, case.dtype, case.op, size, case.count, True, 8, "ok")
        made.append((case, replace(row, busbw_GBps=busbw, **(more[0] if more else {}))))
    return of_gate(facts, made, 0.9, "8 ranks over nccl")


def test_published_rows_are_met_within_3_percent_and_are_not_slow_at_90_percent():
    for row in figures()["published"]:
        low, high = row["GBps"]
        size, collective = row.get("bytes", 8 * GIB), row.get("collective", "all_reduce")
        facts = Facts(row["gpu"], row["n"], nvls=row.get("nvls"))
        found = expected(facts, case_of(size, collective))
        assert found is not None, row
        assert 0.97 * low <= found.busbw_GBps <= 1.03 * high, row
        assert found.source, row
        if collective == "all_reduce" and found.judged:
            assert gate(facts, (size, low)) == [], row


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
        found = expected(H200, case_of(size))
        assert found.busbw_GBps == pytest.approx(GBps, rel=0.001)
        assert found.judged == (size >= 64 << 20)
    sizes = [1 << 20, 3 << 19, 2 << 20, 3 << 20, 4 << 20, 100 << 30]
    between = [expected(H200, case_of(size)).busbw_GBps for size in sizes]
    assert between == sorted(between)
    monkeypatch.setitem(CURVE, "native", True)
    assert expected(H200, case_of(1 << 20)).judged


def test_busbw_above_the_line_rate_is_explained_by_the_wire(golden):
    found = expected(H200, case_of())
    assert found.busbw_GBps > 450
    golden(found.note)
    assert nvls_wire(480, 8) == pytest.approx(308.6, abs=0.05)  # nccl-tests, pull request 239


def test_another_number_topology_or_case_has_no_expectation():
    for facts in (
        Facts("NVIDIA H200", 4),
        Facts("NVIDIA H200", 7, nvls=False),
        Facts("NVIDIA H200", 8, links=17),
        Facts("NVIDIA H200", 8, links=0),
        Facts("NVIDIA H200 NVL", 8),
        Facts("NVIDIA H200 MIG 1g.18gb", 8),
        Facts("NVIDIA H20", 8),
        Facts("NVIDIA H100 NVL", 8),
        Facts("", 8),
        Facts("NVIDIA H200", 1),
    ):
        assert expected(facts, case_of()) is None, facts
    for case in (
        case_of((1 << 20) - 4), case_of(8), case_of(op="prod"), case_of(dtype="float64"),
        case_of(collective="broadcast"), case_of(collective="sendrecv"), case_of(0, "barrier"),
    ):  # fmt: skip
        assert expected(H200, case) is None, case


def test_which_setups_have_the_same_figures():
    ring = Facts("NVIDIA H200", 8, nvls=False)
    for one, other, GBps in (
        (A100, replace(A100, gpu="NVIDIA A100-SXM4-40GB"), 234),  # with the same links
        (ring, replace(ring, nvls=None), 367.6),
        (ring, replace(ring, nccl="2.16.2", nvls=True), 367.6),
    ):
        first, second = (expected(facts, case_of()) for facts in (one, other))
        assert first.judged
        assert second.judged
        assert first.busbw_GBps == second.busbw_GBps == pytest.approx(GBps, rel=0.01), other


def test_rows_below_what_is_expected_are_one_finding_the_worst_first_and_name_no_rank(golden):
    wrong, skipped = {"check": "wrong"}, {"check": "skipped"}
    (low,) = gate(H200, (GIB, 460.0), (8 * GIB, 291.0), (8, 0.001))
    (worst,) = gate(
        H200, (GIB, 400.0), (2 * GIB, 100.0), (4 * GIB, 1.0, wrong), (4 * GIB, None, skipped)
    )
    assert (low.condition, low.cause, low.who.ranks) == ("unknown", "below-expected", ())
    assert not low.names_somebody()
    assert len(low.evidence) == 1
    assert [round(each.value) for each in worst.evidence] == [100, 400]
    golden(told(low, worst))
    assert gate(H200, (GIB, 464 * 0.901)) == []


def test_what_a_gate_cannot_judge_says_so_and_from_which_size_on_it_can(golden):
    found = {
        "too small": gate(A100, (8, 1.0), (256 << 20, 1.0)),
        "nothing is published": gate(Facts("NVIDIA L4", 2), (8 * GIB, 1.0)),
        "links are down": gate(replace(H200, links=17), (8 * GIB, 1.0)),
        "nodes with NICs between them": gate(None, (8 * GIB, 1.0)),
        "wrong values": gate(H200, (8 * GIB, None, {"check": "wrong"})),
    }
    for (one,) in found.values():
        assert (one.condition, one.cause, one.who.ranks) == ("unknown", "nothing-published", ())
    golden(by_name({name: told(*one) for name, one in found.items()}))


HGX = {"nvlinks": 18, "nvlink_MBps": 26562, "pcie": 5, "pcie_width": 16, "fabric": ""}
NVL72 = {**HGX, "fabric": "07" * 16 + ".3"}


def facts(links_of=lambda rank: HGX, *, gpu_of=lambda rank: "NVIDIA H200", backend="nccl", ranks=8,
          per_node=8, nvls_of=lambda rank: True):  # fmt: skip
    """Returns the facts of nodes, from their ranks' facts."""
    states = {r: RankState(r, host=f"n{r // per_node}", node=r // per_node) for r in range(ranks)}
    results = {
        "devices": {rank: {"gpu": gpu_of(rank)} for rank in states},
        "connect": {
            rank: {"nccl": "2.27.7", "links": links_of(rank), "nvls": nvls_of(rank), "ring": None}
            for rank in states
        },
    }
    return topology.facts(RunState(ranks, states, results), backend)


def test_ranks_are_as_well_joined_as_the_worst_of_them():
    assert facts().links == 18
    assert facts(lambda rank: HGX if rank else {**HGX, "nvlinks": 17}).links == 17
    assert facts(lambda rank: HGX if rank else {"unknown": "no NVML"}).links is None
    assert facts(lambda rank: None).links is None
    assert facts(gpu_of=lambda rank: "NVIDIA A40" if rank else "NVIDIA H200") is None
    assert facts(gpu_of=lambda rank: None) is None
    assert facts(backend="c10d:gloo") is None


@pytest.mark.parametrize("nodes", [2, 4])  # of 16 GPUs there is no figure
def test_nodes_have_a_figure_only_where_one_fabric_joins_them(nodes):
    gb200 = {"gpu_of": lambda rank: "NVIDIA GB200", "ranks": 4 * nodes, "per_node": 4}
    assert facts(lambda rank: HGX, **gb200) is None
    assert facts(lambda rank: {**NVL72, "fabric": f"{rank // 4}"}, **gb200) is None
    found = expected(facts(lambda rank: NVL72, **gb200), case_of())
    assert (found and found.note.split(",")[0]) == ("NVLS" if nodes == 2 else None)


def test_an_algorithm_that_nccl_may_not_use_is_not_expected_of_it():
    for settings, expects in (
        ({}, "NVLS"), ({"NCCL_NVLS_ENABLE": "0"}, "ring"),
        ({"NCCL_NVLS_ENABLE": "2", "NCCL_ALGO": ""}, "NVLS"),
        ({"NCCL_ALGO": "Ring"}, "ring"), ({"NCCL_ALGO": "RING,Tree"}, "ring"),
        ({"NCCL_ALGO": "Tree"}, None), ({"NCCL_ALGO": "^NVLS"}, "ring"),
        ({"NCCL_ALGO": "^Tree,NVLSTree"}, "NVLS"), ({"NCCL_ALGO": "allreduce:^nvls"}, "ring"),
        ({"NCCL_ALGO": "ring;allreduce:nvls,ring;broadcast:tree"}, "NVLS"),
        ({"NCCL_ALGO": "broadcast:ring"}, "NVLS"),
        ({"NCCL_ALGO": "NVLS", "NCCL_NVLS_ENABLE": "0"}, None),
    ):  # fmt: skip
        nvls, ring = topology.algorithms(settings, True)
        found = expected(Facts("NVIDIA H200", 8, "2.27.7", nvls=nvls, ring=ring), case_of())
        assert (found and found.note.split(",")[0]) == expects, settings


def test_nvls_is_expected_only_where_every_gpu_has_multicast():
    for last, others in ((True, True), (False, True), (False, False), (None, True), (None, None)):
        said = [*[others] * 7, last]
        found = expected(facts(nvls_of=said.__getitem__), case_of())
        assert found.note.split(",")[0] == ("NVLS" if last and others else "ring"), (last, others)
