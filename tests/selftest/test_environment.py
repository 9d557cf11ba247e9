"""Findings from the facts of all ranks: differences from the majority, and odd values."""

import pytest

from oddrank.control.root import RankState
from oddrank.control.stages import RunState
from oddrank.selftest import Options
from oddrank.selftest.stages import environment

FACTS = {
    "hostname": "node0", "python": "3.11.2", "torch": "2.13.0", "oddrank": "0.1.0", "cuda": None,
    "nccl": None, "driver": None, "machine": "x86_64", "kernel": "6.1", "gpus": 0,
    "local_world": 2, "shm_bytes": 1 << 30, "shm_free": 1 << 29, "nofile": "1024/4096",
    "memlock": "unlimited/unlimited", "stack": "8/unlimited", "core": "0/unlimited",
    "cgroup_cpus": None, "governor": None, "settings": {}, "rdma_ports": {}, "gpu_uuid": None,
}  # fmt: skip


def findings(*changes, ranks=4, per_node=2):
    """Returns the judge's findings. changes: (ranks, facts)."""
    facts = {rank: dict(FACTS) for rank in range(ranks)}
    for who, changed in changes:
        for rank in who:
            facts[rank].update(changed)
    states = {
        r: RankState(r, f"node{r // per_node}", r // per_node, r % per_node, contact="ok")
        for r in range(ranks)
    }
    run = RunState(ranks, states, {"environment": facts})
    return environment.stage(Options()).conclude(run)


def judged(*changes, **job):
    """Returns (condition, kind, ranks, cause) of each finding."""
    found = findings(*changes, **job)
    return [(f.condition, f.who.kind, f.who.ranks, f.cause) for f in found]


def test_a_node_whose_ranks_can_not_write_dev_shm_is_suspicious():
    read_only = ([2, 3], {"shm_writable": False})
    assert judged(read_only) == [("suspicious", "node", (2, 3), "shm-not-writable")]
    assert judged(read_only, per_node=1) == []  # one rank per node shares no memory


@pytest.mark.parametrize("node", [(0, 1), (2, 3)])
def test_two_nodes_called_localhost_are_two_nodes(node):
    states = {r: RankState(r, "localhost", r // 2, r % 2, contact="ok") for r in range(4)}
    facts = {r: {**FACTS, "shm_writable": r not in node} for r in range(4)}
    (found,) = environment.stage(Options()).conclude(RunState(4, states, {"environment": facts}))
    assert (found.who.kind, found.who.ranks) == ("node", node)


def test_equal_ranks_have_no_finding():
    assert judged() == []


@pytest.mark.parametrize("name", ["python", "torch", "oddrank", "cuda", "nccl", "driver"])
def test_another_version_is_different(name):
    assert judged(((2,), {name: "9.9"})) == [("different", "rank", (2,), "other-version")]


@pytest.mark.parametrize(
    "name", ["shm_bytes", "nofile", "memlock", "stack", "core", "cgroup_cpus", "governor", "kernel"]
)
def test_another_limit_is_suspicious(name):
    assert judged(((1,), {name: "7"})) == [("suspicious", "rank", (1,), "other-setting")]


@pytest.mark.parametrize("name", ["hostname", "local_world", "visible_gpus", "numa"])
def test_what_may_differ_is_not_judged(name):
    assert judged(((1,), {name: "other"})) == []


def test_sizes_that_differ_by_pages_are_alike():
    assert judged(((0, 1), {"shm_bytes": (1 << 30) - 4096}), ((3,), {"shm_bytes": 1 << 30})) == []
    assert judged(((2,), {"shm_bytes": 64 << 20})) == [
        ("suspicious", "rank", (2,), "other-setting")
    ]


def test_a_whole_node_is_named_as_a_node():
    assert judged(((4, 5), {"torch": "2.11.0"}), ranks=6) == [
        ("different", "node", (4, 5), "other-version")
    ]


@pytest.mark.parametrize("ranks", [2, 4])
def test_without_a_majority_nobody_is_named(ranks):
    half = tuple(range(ranks // 2))
    found = judged((half, {"torch": "2.11.0"}), ranks=ranks)
    assert [(condition, who) for condition, _, who, _ in found] == [("unknown", ())]


def test_each_deviating_value_is_a_finding_of_its_own():
    found = judged(((0,), {"torch": "1"}), ((1,), {"torch": "2"}), ranks=5)
    assert sorted(who for _, _, who, _ in found) == [(0,), (1,)]


def test_a_node_with_another_image_is_one_finding_with_all_in_which_it_differs():
    image = {"torch": "2.11.0", "python": "3.10.1", "kernel": "5.4", "settings": {"NCCL_NET": "x"}}
    (found,) = findings(((6, 7), image), ranks=16)
    assert (found.condition, str(found.who)) == ("different", "node node3 (ranks 6-7)")
    assert [e.source for e in found.evidence] == ["python", "torch", "settings.NCCL_NET", "kernel"]
    assert found.what == (
        "node node3 (ranks 6-7) has python 3.10.1, 7 nodes have 3.11.2;"
        " other facts differ too: torch, settings.NCCL_NET, kernel"
    )


def test_two_nodes_that_differ_are_both_said_and_neither_is_named():
    (found,) = findings(((2, 3), {"torch": "2.11.0", "kernel": "5.4"}), ranks=4)
    assert found.condition == "unknown"
    assert found.what == (
        "ranks differ in torch, kernel, and no majority says which are odd. First:"
        " node0 has 2.13.0; node1 has 2.11.0"
    )

    assert found.next == ("oddrank doctor  (on each of these hosts)",)


def test_a_fact_of_which_no_value_has_a_majority_is_told_with_what_shows_it():
    (found,) = findings(((0, 1), {"network_cards": "1 up (speed not readable)"}),
                        ((2, 3), {"network_cards": None}))  # fmt: skip
    assert found.what == (
        "network cards: node0 has 1 up (speed not readable); node1 has none; no majority says which"
        " is odd"
    )
    assert found.next == ("ip -br link  (on each of these hosts)",)


@pytest.mark.parametrize("nodes", [(0,), (0, 1)])
def test_several_nodes_with_the_same_difference_are_told_by_name(nodes):
    ranks = tuple(rank for node in nodes for rank in (2 * node, 2 * node + 1))
    (found,) = findings((ranks, {"torch": "2"}), ranks=16)
    assert all(f"node{node}" in found.what for node in nodes)


@pytest.mark.parametrize(("nodes", "level"), [(3, "medium"), (4, "high"), (8, "high")])
def test_two_against_one_is_said_with_less_confidence(nodes, level):
    (found,) = findings(((0, 1), {"torch": "2"}), ranks=2 * nodes)
    assert found.confidence.level == level


@pytest.mark.parametrize(
    ("nodes", "per_node", "odd", "why"),
    [
        (7, 2, 2, "5 of 7 nodes agree, which is not much"),
        (3, 2, 1, "2 of 3 nodes agree, which is not much"),
        (1, 3, 1, "2 of 3 ranks agree, which is not much"),
        (8, 2, 2, "nearly all others agree"),
    ],
)
def test_the_confidence_tells_how_many_agree(nodes, per_node, odd, why):
    deviating = range(odd * per_node if nodes > 1 else odd)
    (found,) = findings((deviating, {"torch": "2"}), ranks=nodes * per_node, per_node=per_node)
    assert found.confidence.why == why


def test_a_node_whose_ranks_differ_gives_each_value_its_part_of_the_vote():
    (found,) = findings(((0, 1, 2), {"torch": "2"}), ranks=10)
    assert found.confidence.why == "3.5 of 5 nodes agree, which is not much"


def test_what_could_not_be_read_is_nobodys_fault():
    assert judged(((1,), {"governor": "not readable"}), ((0, 2, 3), {"governor": "x"})) == []


def test_settings_that_all_ranks_must_share_are_different_others_suspicious_some_free():
    assert judged(((1,), {"settings": {"NCCL_ALGO": "Ring"}}))[0][0] == "different"
    assert judged(((1,), {"settings": {"OMP_NUM_THREADS": "1"}}))[0][0] == "suspicious"
    assert judged(((1,), {"settings": {"NCCL_DEBUG": "INFO"}})) == []


def test_a_node_with_a_port_fewer_is_different():
    eight = {"rdma_ports": {f"mlx5_{i}/1": "ACTIVE, 400 Gb/sec (4X NDR)" for i in range(8)}}
    seven = {"rdma_ports": dict(list(eight["rdma_ports"].items())[:7])}
    (found,) = findings((range(16), eight), ((4, 5), seven), ranks=16)
    assert (found.condition, found.who.host) == ("different", "node2")
    assert "rdma_ports.mlx5_7/1 none, 7 nodes have ACTIVE" in found.what


def gpus(*names):
    return [((rank,), {"gpu_uuid": name, "gpus": 1}) for rank, name in enumerate(names)]


def test_two_ranks_of_a_node_on_one_gpu_are_named_together():
    assert judged(*gpus("a", "b", "c", "c")) == [("mismatch", "gpu", (2, 3), "same-gpu")]
    assert judged(*gpus("a", "a", "b", "c")) == [("mismatch", "gpu", (0, 1), "same-gpu")]


@pytest.mark.parametrize("names", ["aaaa", "aabb", "abab", "abcd"])
def test_a_few_ranks_on_machines_with_one_gpu_are_no_fault(names):
    """Equal GPU names on two hosts mean different GPUs."""
    assert judged(*gpus(*names)) == []


def test_a_rank_bound_away_from_its_gpu_is_suspicious():
    near = {"gpu_numa": 0, "gpu_bus": "0000:1b:00.0", "numa": {"0": "used", "1": "not used"}}
    assert judged((range(4), near)) == []
    (found,) = findings((range(4), near), ((3,), {"gpu_numa": 1}))
    assert (found.cause, found.who.ranks) == ("far-from-gpu", (3,))
    assert "NUMA node 1, the rank on 0" in found.evidence[0].text
    assert judged((range(4), {**near, "gpu_numa": None})) == []


def test_next_to_nothing_left_in_shm_is_suspicious_where_ranks_share_a_node():
    assert judged(((2, 3), {"shm_free": 30 << 20})) == [("suspicious", "node", (2, 3), "shm-full")]
    assert judged(((2, 3), {"shm_free": 64 << 20})) == []
    assert judged((range(4), {"shm_free": 1}), per_node=1) == []


@pytest.mark.parametrize(("limit", "causes"), [("1024/4096", []), ("66/66", ["few-open-files"])])
def test_a_store_without_files_for_all_ranks_is_suspicious(limit, causes):
    assert [found.cause for found in findings((range(4), {"nofile": limit}))] == causes


def test_a_name_of_interfaces_that_fits_none_is_suspicious():
    assert judged(((1,), {"nccl_interfaces": "", "gpus": 1}), ((0, 2, 3), {"gpus": 1})) == [
        ("suspicious", "rank", (1,), "no-interface")
    ]
