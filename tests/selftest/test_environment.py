"""Findings from the facts of all ranks: differences from the majority, and odd values."""

from hypothesis import given
from hypothesis import strategies as st

from made_up import run_by_rank
from oddrank.selftest import Options
from oddrank.selftest.facts import Fact, compare, group
from oddrank.selftest.stages import environment
from selftest.said import check

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
    run = run_by_rank({"environment": facts}, ranks=ranks, on_node=per_node)
    return environment.stage(Options()).conclude(run)


def torch_on(who, **job):
    """Returns the findings if these ranks have another torch."""
    return findings((who, {"torch": "2.11.0"}), **job)


IMAGE = {"torch": "2.11.0", "python": "3.10.1", "kernel": "5.4", "settings": {"NCCL_NET": "x"}}
EIGHT_PORTS, SEVEN_PORTS = (
    {"rdma_ports": {f"mlx5_{i}/1": "ACTIVE, 400 Gb/sec (4X NDR)" for i in range(ports)}}
    for ports in (8, 7)
)
TORCHES = ([0], {"torch": "1"}), ([1], {"torch": "2"})
NEAR = {"gpu_numa": 0, "gpu_bus": "0000:1b:00.0", "numa": {"0": "used", "1": "not used"}}
GPUS = (range(4), {"gpus": 1})
A_NODE = [2, 3]


def gpus(*names):
    return findings(*(((rank,), {"gpu_uuid": name, "gpus": 1}) for rank, name in enumerate(names)))


VERSION, SETTING = "different other-version: ", "suspicious other-setting: "
NOBODY = "unknown no-majority: nobody"
CARDS = ([0, 1], {"network_cards": "1 up (speed not readable)"}), (A_NODE, {"network_cards": None})
SAID = {
    f"{VERSION}2": {"a rank": torch_on([2])},
    f"{VERSION}0": {"a rank of three": torch_on([0], ranks=3, per_node=3)},
    f"{VERSION}node 4-5": {
        "a node of three": torch_on([4, 5], ranks=6),
        "a port fewer": findings((range(16), EIGHT_PORTS), ([4, 5], SEVEN_PORTS), ranks=16),
    },
    f"{VERSION}node 0-1": {"a node of four": torch_on([0, 1], ranks=8)},
    f"{VERSION}0-3": {
        "two nodes of eight": torch_on(range(4), ranks=16),
        "two nodes of seven": torch_on(range(4), ranks=14),
    },
    f"{VERSION}0-2": {"ranks of two nodes": torch_on([0, 1, 2], ranks=10)},
    f"{VERSION}node 6-7": {"an image": findings(([6, 7], IMAGE), ranks=16)},
    NOBODY: {
        "half of the ranks": torch_on([0], ranks=2),
        "two ranks of five": torch_on([3, 4], ranks=5, per_node=5),
        "one of two nodes": findings((A_NODE, {"torch": "2.11.0", "kernel": "5.4"})),
        "two values of network cards": findings(*CARDS),
    },
    f"{VERSION}0, 1": {"two values": findings(*TORCHES, ranks=5)},
    f"{SETTING}1": {"a limit": findings(([1], {"nofile": "7"}))},
    f"{SETTING}2": {"a smaller /dev/shm": findings(([2], {"shm_bytes": 870 << 20}))},
    f"{VERSION}1": {
        "a setting that all must share": findings(([1], {"settings": {"NCCL_ALGO": "Ring"}}))
    },
    "suspicious shm-not-writable: node 2-3": {
        "read-only /dev/shm": findings((A_NODE, {"shm_writable": False}))
    },
    "suspicious shm-full: node 2-3": {"full /dev/shm": findings((A_NODE, {"shm_free": 30 << 20}))},
    "mismatch same-gpu: gpu 2-3": {"two ranks on a GPU": gpus("a", "b", "c", "c")},
    "mismatch same-gpu: gpu 0-1": {"two ranks on the first GPU": gpus("a", "a", "b", "c")},
    "suspicious far-from-gpu: 3": {
        "bound away from its GPU": findings((range(4), NEAR), ([3], {"gpu_numa": 1}))
    },
    "suspicious few-open-files: 0": {"few open files": findings((range(4), {"nofile": "66/66"}))},
    "suspicious no-interface: 1": {
        "no such interface": findings(GPUS, ([1], {"nccl_interfaces": ""}), per_node=4)
    },
    "": {
        "no such interface on one of two nodes": findings(GPUS, ([1], {"nccl_interfaces": ""})),
        "equal ranks": findings(),
        "sizes that differ by pages": findings(([0, 1], {"shm_bytes": (1 << 30) - 4096})),
        "not read": findings(([1], {"governor": "not readable"}), ([0, 2, 3], {"governor": "x"})),
        "a setting for logs": findings(([1], {"settings": {"NCCL_DEBUG": "INFO"}})),
        "read-only, one rank a node": findings((A_NODE, {"shm_writable": False}), per_node=1),
        "enough of /dev/shm": findings((A_NODE, {"shm_free": 64 << 20})),
        "full, one rank a node": findings((range(4), {"shm_free": 1}), per_node=1),
        "files for all": findings((range(4), {"nofile": "1024/4096"})),
        "bound near its GPU": findings((range(4), NEAR)),
        "NUMA node of a GPU not known": findings((range(4), {**NEAR, "gpu_numa": None})),
        # Equal GPU names on two hosts mean different GPUs.
        **{names: gpus(*names) for names in ("aaaa", "aabb", "abab", "abcd")},
    },
}


def test_a_rank_or_node_that_differs_from_most_is_named(golden):
    check(SAID, golden)


def test_each_fact_is_compared_as_its_row_says():
    for said, names in {
        f"{VERSION}1": "python oddrank cuda nccl driver",
        f"{SETTING}1": "memlock stack core cgroup_cpus governor kernel",
        "": "hostname local_world visible_gpus numa",
    }.items():
        check({said: {name: findings(([1], {name: "9"})) for name in names.split()}})


# The majority of a fact: one vote per node; without two thirds no node is named.
def compared(values, sizes):
    """Returns the only difference. values: of each rank; sizes: number of ranks on each node."""
    nodes, first = [], 0
    for size in sizes:
        nodes.append(tuple(range(first, first + size)))
        first += size
    facts = {rank: {"version": value} for rank, value in enumerate(values)}
    found = compare([Fact("version", lambda here: None, "breaks")], facts, nodes)
    return found[0] if found else None


@given(st.lists(st.integers(1, 8), min_size=2, max_size=12), st.data())
def test_a_third_of_the_nodes_at_most_is_named_however_many_ranks_they_have(sizes, data):
    odd = data.draw(st.sets(st.sampled_from(range(len(sizes)))))
    node_of = [node for node, size in enumerate(sizes) for _ in range(size)]
    found = compared([node in odd for node in node_of], sizes)
    few = min(odd, set(range(len(sizes))) - odd, key=len)
    if not few:
        assert found is None
    elif 3 * len(few) > len(sizes):
        assert found.common is None
    else:
        named = tuple(rank for rank, node in enumerate(node_of) if node in few)
        assert (found.common, found.groups[1][1]) == (found.groups[0], named)


def test_values_are_grouped_with_their_ranks_whatever_they_are():
    assert group({0: {"a": 1, "b": 2}, 1: [2], 2: {"b": 2, "a": 1}}) == [
        ({"a": 1, "b": 2}, (0, 2)),
        ([2], (1,)),
    ]
