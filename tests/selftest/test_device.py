"""How much memory a rank takes for its test: what host, cgroup and neighbours allow."""

import math
from types import SimpleNamespace

import pytest

from oddrank import _native
from oddrank.control.root import RankState
from oddrank.control.stages import Rounds
from oddrank.selftest import device
from oddrank.selftest.stages import device as stage

MIB = 1 << 20


@pytest.mark.parametrize(
    ("free", "ranks", "expected"),
    [(8192, 1, 64), (1024, 1, 64), (1024, 8, 32), (100, 2, 12), (8, 64, 1), (0, 4, 1)],
)
def test_a_quarter_of_what_is_free_is_shared_by_the_ranks_of_the_host(
    monkeypatch, free, ranks, expected
):
    monkeypatch.setattr(device, "free_host_memory", lambda: free * MIB)
    here = SimpleNamespace(local_world=ranks)
    assert device.memory_to_verify(device.CPU, here) == expected * MIB


@pytest.fixture
def cgroup(tmp_path):
    """Writes /proc/self/cgroup and files below /sys/fs/cgroup; gives what is free by them."""

    def free(lines, files):
        proc, root = tmp_path / "cgroup", tmp_path / "sys"
        proc.write_text(lines)
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return device.free_in_cgroups(str(proc), str(root))

    return free


def test_cgroup_v2_limits_at_any_level_count(cgroup):
    files = {
        "a/memory.current": "300\n", "a/memory.max": "1000\n",
        "a/b/memory.current": "100\n", "a/b/memory.max": "max\n",
    }  # fmt: skip
    assert cgroup("0::/a/b\n", files) == 700


def test_cgroup_v1_limits_count(cgroup):
    files = {
        "memory/job/memory.usage_in_bytes": "10\n",
        "memory/job/memory.limit_in_bytes": "64\n",
    }
    assert cgroup("5:cpu,cpuacct:/x\n4:memory:/job\n0::/\n", files) == 54


def test_in_a_container_the_limit_stands_at_the_root(cgroup):
    files = {"memory.current": "40\n", "memory.max": "50\n"}
    assert cgroup("0::/../host/path\n", files) == 10


@pytest.mark.parametrize("files", [{}, {"a/memory.current": "1", "a/memory.max": "max"}])
def test_no_limit_is_no_limit(cgroup, files):
    assert math.isinf(cgroup("0::/a\n", files))


def test_nothing_of_this_hosts_files_is_taken_for_endless():
    assert 0 <= device.free_host_memory() < math.inf


def test_a_word_that_came_back_wrong_is_a_finding_against_its_rank():
    wrong = _native.core().verify_host_memory(MIB, 7, damage=1000)["mismatches"]
    states = {r: RankState(r, host="node0", node=0, local_rank=r, contact="ok") for r in (0, 1)}
    result = {"device": "CPU", "bytes": MIB, "wrong": None}
    results = {0: result, 1: {**result, "wrong": wrong}}
    (finding,) = stage.STAGE.judge(Rounds(2, states, {"device": results}))
    assert (finding.condition, finding.cause) == ("broken", "bad-memory")
    assert finding.who.ranks == (1,)
    assert "at 1000" in finding.evidence[0].text


@pytest.mark.parametrize(
    ("gpus", "local_world", "expected"),
    [([0, 0], 2, "gloo"), ([2, 2], 2, "nccl"), ([1, 1], 2, "gloo"), ([2, 0], 2, "gloo")],
)
def test_gpus_are_used_where_every_rank_has_its_own(gpus, local_world, expected):
    facts = {r: {"gpus": n, "local_world": local_world} for r, n in enumerate(gpus)}
    assert device.backend(Rounds(2, {}, {"environment": facts})) == expected
