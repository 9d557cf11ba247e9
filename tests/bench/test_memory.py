"""What a rank may take of its host: as the kernel and the cgroups of any kind say."""

import math

import pytest

from oddrank.bench import memory


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
        return memory.free_in_cgroups(str(proc), str(root))

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
    assert 0 <= memory.free_host_memory() < math.inf
