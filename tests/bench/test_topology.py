"""The NICs that carry a job's traffic between nodes, and the expected bandwidth."""

import pytest

from measured_rows import Measured, said_of_nothing
from oddrank.bench import topology
from oddrank.bench.case import Case
from oddrank.bench.expected import expected, shortfalls
from oddrank.bench.topology import Facts
from oddrank.control.root import RankState
from oddrank.control.stages import RunState

NODES, GPUS = 4, 8
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
    nics_of,
    fabric_of=lambda rank: "rdma",
    gpu_of=lambda rank: "NVIDIA H100 80GB HBM3",
    backend="nccl",
):
    """Returns the facts of four nodes of eight H100, from their ranks' facts."""
    ranks = range(NODES * GPUS)
    states = {r: RankState(r, host=f"n{r // GPUS}", node=r // GPUS) for r in ranks}
    rest = {"nccl": "2.27.7", "nvls": None, "ring": None, "links": None}
    results = {
        "devices": {rank: {"gpu": gpu_of(rank)} for rank in ranks},
        "connect": {
            rank: {"nics": nics_of(rank), "fabric": fabric_of(rank), **rest} for rank in ranks
        },
    }
    return topology.facts(RunState(len(ranks), states, results), backend)


def due(known):
    return expected(known, Case("all_reduce", "float32", 8 << 30))


def test_with_storage_nics_a_healthy_job_is_not_held_against_all_of_them(rates):
    all_of_them = due(facts(lambda rank: rates()))
    assert not all_of_them.judged
    assert "which of 10 ports serve 8 GPUs" in all_of_them.doubt


def test_named_in_nccl_ib_hca_the_ports_that_serve_are_judged(rates):
    named = due(facts(lambda rank: rates(NCCL_IB_HCA=",".join(COMPUTE))))
    assert (named.busbw_GBps, named.judged) == (pytest.approx(380), True)
    excluded = due(facts(lambda rank: rates(NCCL_IB_HCA="^=mlx5_8,mlx5_9")))
    assert excluded == named


def test_ranks_of_a_node_with_a_port_each_have_all_of_them_together(rates):
    own = due(facts(lambda rank: rates(NCCL_IB_HCA=f"=mlx5_{rank % GPUS}:1")))
    assert (own.busbw_GBps, own.judged) == (pytest.approx(380), True)


def test_the_node_with_the_slowest_nics_counts(rates):
    def nics(rank):
        return rates(NCCL_IB_HCA="mlx5_0" if rank // GPUS == 2 else ",".join(COMPUTE))

    found = facts(nics)
    assert found.nics == (400.0,)
    assert not due(found).judged


def test_a_port_that_is_down_on_one_node_does_not_lower_what_is_held_to_be_well(rates):
    def nics(rank):
        return rates(NCCL_IB_HCA=",".join(list(COMPUTE)[rank // GPUS == 2 :]))

    found = due(facts(nics))
    assert found.busbw_GBps == pytest.approx(0.95 * 7 * 50)
    assert not found.judged
    assert "is one down?" in found.doubt


@pytest.mark.parametrize(
    "settings",
    [
        {"NCCL_IB_DISABLE": "1"},
        {"NCCL_NET": "Socket"},
        {"NCCL_NET": "socket", "NCCL_IB_HCA": "mlx5"},
        {"NCCL_IB_HCA": "=ib0"},
    ],
)
def test_where_nccl_takes_sockets_no_rdma_port_counts(settings, rates):
    assert rates(**settings) == {}
    over_tcp = due(facts(lambda rank: {"eth0": 100.0}, lambda rank: "tcp"))
    assert (over_tcp.busbw_GBps, over_tcp.judged) == (pytest.approx(10), False)


@pytest.mark.parametrize(
    ("backend", "settings", "cards"),
    [
        ("gloo", {"GLOO_SOCKET_IFNAME": "eth0"}, {"eth0": 25.0}),
        ("gloo", {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "ib"}, {"eth0": 25.0}),
        ("gloo", {"GLOO_SOCKET_IFNAME": "lo"}, {}),
        ("nccl", {"GLOO_SOCKET_IFNAME": "eth0"}, {"eth0": 25.0}),
        (
            "nccl",
            {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "ib"},
            {"ib0": 100.0, "ib1": 100.0},
        ),
        ("nccl", {"NCCL_SOCKET_IFNAME": "=ib1"}, {"ib1": 100.0}),
        ("nccl", {"NCCL_SOCKET_IFNAME": "^ib"}, {"eth0": 25.0}),
        ("nccl", {"NCCL_SOCKET_IFNAME": "docker"}, {}),
    ],
)
def test_over_tcp_the_cards_count_that_the_back_end_is_told_to_use(
    backend, settings, cards, tmp_path
):
    for name, rate in (("eth0", 25), ("ib0", 100), ("ib1", 100), ("lo", 0)):
        (tmp_path / name / ("device" if rate else "statistics")).mkdir(parents=True)
        (tmp_path / name / "speed").write_text(f"{1000 * rate}\n")
    assert topology.tcp_rates(backend, settings, tmp_path) == cards


def test_ranks_of_a_node_that_use_different_fabrics_are_not_judged():
    known = facts(
        lambda rank: {"mlx5_0:1": 400.0} if rank % GPUS else {"eth0": 100.0},
        lambda rank: "rdma" if rank % GPUS else "tcp",
    )
    assert known.fabric is None
    assert not due(known).judged


NDR = (400.0,) * 8


@pytest.mark.parametrize(
    ("nics", "why"),
    [
        (NDR, ""),
        (NDR[:4], ""),  # nodes with fewer NICs than GPUs
        (NDR[:1], ""),
        (NDR + NDR[:2], "which of 10 ports serve 8 GPUs of a node is not known"),
        ((*NDR[:7], 100.0), "different rates"),
    ],
)
@pytest.mark.parametrize("collective", ["all_reduce", "all_to_all"])
def test_where_it_is_not_known_which_ports_serve_nothing_is_judged(nics, why, collective):
    facts = Facts("NVIDIA H100 80GB HBM3", 8, 4, "nccl", nics=nics, fabric="rdma")
    row = Measured(busbw_GBps=1.0, collective=collective, n=32)
    due = expected(facts, row)
    assert bool(shortfalls([row], [due], 0.9)) == (not why)
    if why:
        (told,) = said_of_nothing(facts, [row]).evidence
        assert why in told.text
        assert "NCCL_IB_HCA" in told.text
        assert why in due.note


@pytest.mark.parametrize(
    ("gpu", "links", "pcie", "nics", "judged"),
    [
        ("NVIDIA L40S", 0, 4, (200.0,) * 4, False),  # 95 GB/s: four times what PCIe 4 carries
        ("NVIDIA L40S", 0, 4, (100.0,), True),
        ("NVIDIA L40S", 0, None, (100.0,), False),
        ("NVIDIA H100 PCIe", 12, 5, (400.0,) * 2, False),  # NVLinks of pairs
        ("NVIDIA H100 PCIe", 12, 5, (200.0,) * 2, True),
        ("NVIDIA H100 80GB HBM3", 17, 5, NDR, False),
        ("NVIDIA H100 80GB HBM3", 18, 5, NDR, True),
        ("NVIDIA H100 80GB HBM3", None, None, NDR, True),
        ("NVIDIA A100-SXM4-80GB", 12, 4, NDR, False),  # 50 GB/s a GPU over PCIe 4
        ("NVIDIA A100-SXM4-80GB", 12, 4, (400.0,), False),
        ("NVIDIA A100-SXM4-80GB", 12, 4, (200.0,) * 8, True),
    ],
)
def test_nics_are_not_expected_of_gpus_that_can_not_feed_them(gpu, links, pcie, nics, judged):
    link = None if links is None else "nvlink" if links else "pcie"
    rest = {"link": link, "links": links, "pcie": pcie}
    facts = Facts(gpu, 8, 4, "nccl", nics=nics, fabric="rdma", **rest)
    due = expected(facts, Measured(n=32))
    assert due.judged == judged
    assert ("may be slower than these" in due.note) != judged
    exchanged = expected(facts, Measured(n=32, collective="all_to_all"))
    assert exchanged.judged == (
        judged and "PCIe" not in gpu and "L40S" not in gpu
    )  # PCIe's figures are of all_reduce


def test_gpus_that_differ_count_where_they_are_used():
    def told(backend):
        return facts(
            lambda rank: {"eth0": 25.0},
            lambda rank: "tcp",
            lambda rank: "NVIDIA A40" if rank < GPUS else None,
            backend,
        )

    assert told("nccl") is None
    assert due(told("c10d:gloo")).busbw_GBps == pytest.approx(25 / 8)


BOTH, NO_NVLS, NEITHER = ("nvls", "ring"), ("ring",), ()


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({}, BOTH),
        ({"NCCL_NVLS_ENABLE": "0"}, NO_NVLS),
        ({"NCCL_NVLS_ENABLE": "2", "NCCL_ALGO": ""}, BOTH),
        ({"NCCL_ALGO": "Ring"}, NO_NVLS),
        ({"NCCL_ALGO": "RING,Tree"}, NO_NVLS),
        ({"NCCL_ALGO": "Tree"}, NEITHER),
        ({"NCCL_ALGO": "^NVLS"}, NO_NVLS),
        ({"NCCL_ALGO": "^Tree,NVLSTree"}, BOTH),
        ({"NCCL_ALGO": "ring;allreduce:nvls,ring;broadcast:tree"}, BOTH),
        ({"NCCL_ALGO": "allreduce:^nvls"}, NO_NVLS),
        ({"NCCL_ALGO": "broadcast:ring"}, BOTH),
        ({"NCCL_ALGO": "NVLS", "NCCL_NVLS_ENABLE": "0"}, NEITHER),
    ],
)
def test_an_algorithm_that_nccl_may_not_use_is_not_expected_of_it(settings, left):
    told = topology.algorithms(settings, True)
    assert tuple(name for name, off in told.items() if off is not False) == left
    node = Facts("NVIDIA H200", 8, 1, "nccl", "2.27.7", **told)
    found = due(node)
    assert (found and found.note.split(",")[0]) == {
        BOTH: "NVLS",
        NO_NVLS: "ring",
        NEITHER: None,
    }[left]


@pytest.mark.parametrize(
    ("multicast", "algorithm"),
    [([True] * 8, "NVLS"), ([True] * 7 + [False], "ring"), ([False] * 8, "ring"),
     ([True] * 7 + [None], "ring"), ([None] * 8, "ring")],
)  # fmt: skip
def test_nvls_is_expected_only_where_every_gpu_has_multicast(multicast, algorithm):
    states = {r: RankState(r, host="n0", node=0) for r in range(8)}
    rest = {"nics": {}, "fabric": None, "nccl": "2.27.7", "links": None}
    results = {
        "devices": {r: {"gpu": "NVIDIA H100 80GB HBM3"} for r in range(8)},
        "connect": {r: {**rest, **topology.algorithms({}, one)} for r, one in enumerate(multicast)},
    }
    found = due(topology.facts(RunState(8, states, results), "nccl"))
    assert found.note.split(",")[0] == algorithm
    reached = {"NVLS": 480, "ring": 370}
    assert found.busbw_GBps == pytest.approx(reached[algorithm], rel=0.03)
