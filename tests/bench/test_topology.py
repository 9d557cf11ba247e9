"""The NICs that carry a job's traffic between nodes, and the expected bandwidth."""

import pytest

from bench.told import by_name
from measured_rows import Measured, said_of_nothing
from oddrank.bench import topology
from oddrank.bench.case import Case
from oddrank.bench.expected import expected, shortfalls
from oddrank.bench.topology import Facts
from oddrank.control.stages import RankState, RunState

NODES, GPUS = 4, 8
NDR = (400.0,) * 8
COMPUTE = {f"mlx5_{i}": 400 for i in range(GPUS)}
STORAGE = {"mlx5_8": 400, "mlx5_9": 400}


@pytest.fixture
def rates(tmp_path):
    """Returns the rates of a rank's RDMA ports, from the kernel's files and NCCL's settings."""
    for name, rate in {**COMPUTE, **STORAGE}.items():
        folder = tmp_path / name / "ports" / "1"
        folder.mkdir(parents=True)
        (folder / "state").write_text("4: ACTIVE\n")
        (folder / "rate").write_text(f"{rate} Gb/sec (4X NDR)\n")
    return lambda **settings: topology.rdma_rates(settings, tmp_path)


def facts(
    nics_of, fabric_of=lambda rank: "rdma", *, gpu_of=lambda rank: "NVIDIA H100 80GB HBM3",
    backend="nccl", ranks=NODES * GPUS, algorithms_of=lambda rank: {"nvls": None, "ring": None},
):  # fmt: skip
    """Returns the facts of nodes of eight GPUs, from their ranks' facts."""
    states = {r: RankState(r, host=f"n{r // GPUS}", node=r // GPUS) for r in range(ranks)}
    results = {
        "devices": {rank: {"gpu": gpu_of(rank)} for rank in states},
        "connect": {
            rank: {"nics": nics_of(rank), "fabric": fabric_of(rank), "nccl": "2.27.7",
                   "links": None, **algorithms_of(rank)}
            for rank in states
        },
    }  # fmt: skip
    return topology.facts(RunState(ranks, states, results), backend)


def due(known):
    return expected(known, Case("all_reduce", "float32", 8 << 30))


def test_ports_that_serve_the_gpus_are_judged_where_settings_or_ranks_name_them(rates):
    named = due(facts(lambda rank: rates(NCCL_IB_HCA=",".join(COMPUTE))))
    assert (named.busbw_GBps, named.judged) == (pytest.approx(380), True)
    assert due(facts(lambda rank: rates(NCCL_IB_HCA="^=mlx5_8,mlx5_9"))) == named
    own = due(facts(lambda rank: rates(NCCL_IB_HCA=f"=mlx5_{rank % GPUS}:1")))
    assert (own.busbw_GBps, own.judged) == (pytest.approx(380), True)


def test_ports_that_may_not_serve_or_are_down_are_not_held_against_a_job(rates):
    slowest = facts(lambda r: rates(NCCL_IB_HCA="mlx5_0" if r // GPUS == 2 else ",".join(COMPUTE)))
    assert slowest.nics == (400.0,), "the node with the slowest NICs counts"
    fewer = due(facts(lambda r: rates(NCCL_IB_HCA=",".join(list(COMPUTE)[r // GPUS == 2 :]))))
    assert fewer.busbw_GBps == pytest.approx(0.95 * 7 * 50)
    storage = due(facts(lambda rank: rates()))
    for found, doubt in ((storage, "10 ports"), (due(slowest), "down?"), (fewer, "down?")):
        assert not found.judged
        assert doubt in found.doubt


def test_where_nccl_takes_sockets_no_rdma_port_counts(rates):
    for settings in (
        {"NCCL_IB_DISABLE": "1"}, {"NCCL_NET": "Socket"}, {"NCCL_IB_HCA": "=ib0"},
        {"NCCL_NET": "socket", "NCCL_IB_HCA": "mlx5"},
    ):  # fmt: skip
        assert rates(**settings) == {}
    over_tcp = due(facts(lambda rank: {"eth0": 100.0}, lambda rank: "tcp"))
    assert (over_tcp.busbw_GBps, over_tcp.judged) == (pytest.approx(10), False)


def test_over_tcp_the_cards_count_that_the_back_end_is_told_to_use(tmp_path):
    eth, ib0, ib1 = {"eth0": 25.0}, {"ib0": 100.0}, {"ib1": 100.0}
    for name, rate in (("eth0", 25), ("ib0", 100), ("ib1", 100), ("lo", 0)):
        (tmp_path / name / ("device" if rate else "statistics")).mkdir(parents=True)
        (tmp_path / name / "speed").write_text(f"{1000 * rate}\n")
    for gloo, nccl, cards in (
        ("eth0", None, eth), ("lo", None, {}), ("eth0", "ib", ib0 | ib1), (None, "=ib1", ib1),
        (None, "^ib", eth), (None, "docker", {}),
    ):  # fmt: skip
        given = {"GLOO_SOCKET_IFNAME": gloo, "NCCL_SOCKET_IFNAME": nccl}
        settings = {name: value for name, value in given.items() if value}
        assert topology.tcp_rates(settings, tmp_path) == cards, settings


def test_ranks_of_a_node_that_use_different_fabrics_are_not_judged():
    known = facts(
        lambda rank: {"mlx5_0:1": 400.0} if rank % GPUS else {"eth0": 100.0},
        lambda rank: "rdma" if rank % GPUS else "tcp",
    )
    assert known.fabric is None
    assert not due(known).judged


def test_where_it_is_not_known_which_ports_serve_nothing_is_judged(golden):
    said = {}
    fewer = (NDR[:4], False), (NDR[:1], False)  # nodes with fewer NICs than GPUs
    for nics, doubted in ((NDR, False), *fewer, (NDR + NDR[:2], True), ((*NDR[:7], 100.0), True)):
        for collective in ("all_reduce", "all_to_all"):
            facts = Facts("NVIDIA H100 80GB HBM3", 8, 4, nics=nics, fabric="rdma")
            row = Measured(busbw_GBps=1.0, collective=collective, n=32)
            due = expected(facts, row)
            assert bool(shortfalls([row], [due], 0.9)) == (not doubted), nics
            if doubted:
                assert due.doubt in due.note
                assert due.doubt in said_of_nothing(facts, [row]).evidence[0].text
                said[f"{nics}"] = due.doubt
    golden(by_name(said))


def test_nics_are_not_expected_of_gpus_that_can_not_feed_them():
    l40s, pairs, h100, a100 = (
        f"NVIDIA {name}" for name in ("L40S", "H100 PCIe", "H100 80GB HBM3", "A100-SXM4-80GB")
    )
    for gpu, links, pcie, nics, judged in (
        (l40s, 0, 4, (200.0,) * 4, False),  # 95 GB/s: four times what PCIe 4 carries
        (l40s, 0, 4, (100.0,), True),
        (l40s, 0, None, (100.0,), False),
        (pairs, 12, 5, (400.0,) * 2, False),  # NVLinks of pairs
        (pairs, 12, 5, (200.0,) * 2, True),
        (h100, 17, 5, NDR, False),
        (h100, 18, 5, NDR, True),
        (h100, None, None, NDR, True),
        (a100, 12, 4, NDR, False),  # 50 GB/s a GPU over PCIe 4
        (a100, 12, 4, (400.0,), False),
        (a100, 12, 4, (200.0,) * 8, True),
    ):
        link = None if links is None else "nvlink" if links else "pcie"
        rest = {"link": link, "links": links, "pcie": pcie, "nics": nics, "fabric": "rdma"}
        facts = Facts(gpu, 8, 4, **rest)
        due = expected(facts, Measured(n=32))
        assert due.judged == judged, (gpu, rest)
        assert ("may be slower than these" in due.note) != judged, (gpu, rest)
        exchanged = expected(facts, Measured(n=32, collective="all_to_all"))
        over_pcie = gpu in (l40s, pairs)  # PCIe's figures are of all_reduce
        assert exchanged.judged == (judged and not over_pcie), (gpu, rest)


def test_gpus_that_differ_and_ranks_over_gloo_have_no_figure():
    nics = {"nics_of": lambda rank: {"eth0": 25.0}}
    assert facts(**nics, gpu_of=lambda rank: "NVIDIA A40" if rank < GPUS else None) is None
    assert facts(**nics, backend="c10d:gloo") is None
    assert facts(**nics) is not None


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
        told = dict(zip(("nvls", "ring"), topology.algorithms(settings, True), strict=True))
        left = {name for name, off in told.items() if off is not False}
        assert left == {"NVLS": {"nvls", "ring"}, "ring": {"ring"}, None: set()}[expects], settings
        found = due(Facts("NVIDIA H200", 8, 1, "2.27.7", **told))
        assert (found and found.note.split(",")[0]) == expects, settings


def test_nvls_is_expected_only_where_every_gpu_has_multicast():
    for last, others in ((True, True), (False, True), (False, False), (None, True), (None, None)):
        told = [{"nvls": one, "ring": None} for one in (*[others] * 7, last)]
        found = due(facts(lambda r: {}, lambda r: None, ranks=8, algorithms_of=told.__getitem__))
        name, reached = ("NVLS", 480) if last and others else ("ring", 370)
        assert found.note.split(",")[0] == name, (last, others)
        assert found.busbw_GBps == pytest.approx(reached, rel=0.03)
