"""What a rank may take of its host: as the kernel and the cgroups of any kind say."""

import math
from types import SimpleNamespace

import pytest

from oddrank.machine import device
from oddrank.machine.device import CPU


def written(folder, lines, files):
    """What stands for /proc/self/cgroup and for /sys/fs/cgroup."""
    proc, root = folder / "cgroup", folder / "sys"
    proc.write_text(lines)
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(proc), str(root)


@pytest.fixture
def cgroup(tmp_path):
    """What is free by the files of cgroups."""

    def free(lines, files):
        return device.free_in_cgroups(*written(tmp_path, lines, files))

    return free


def test_cgroup_v2_limits_at_any_level_count(cgroup):
    files = {
        "a/memory.current": "300\n", "a/memory.max": "1000\n",
        "a/b/memory.current": "100\n", "a/b/memory.max": "max\n",
    }  # fmt: skip
    assert cgroup("0::/a/b\n", files) == 700


def test_cgroup_v1_limits_count(cgroup):
    files = {"memory/job/memory.usage_in_bytes": "10\n", "memory/job/memory.limit_in_bytes": "64\n"}
    assert cgroup("5:cpu,cpuacct:/x\n4:memory:/job\n0::/\n", files) == 54


def test_page_cache_of_a_data_set_is_free_in_version_2(cgroup):
    """At every level its own: what is below is in there."""
    files = {
        "a/memory.current": "63\n", "a/memory.max": "64\n",
        "a/memory.stat": "anon 1\nfile 62\nworkingset_restore_file 9\ninactive_file 61\n",
        "a/b/memory.current": "50\n", "a/b/memory.max": "60\n",
        "a/b/memory.stat": "inactive_file 45\n",
    }  # fmt: skip
    assert cgroup("0::/a/b\n", files) == 60 - 5
    assert cgroup("0::/a/b\n", files | {"a/b/memory.max": "max"}) == 64 - 2


def test_page_cache_of_a_data_set_is_free_in_version_1(cgroup):
    """With that of the cgroups below, as the usage has it."""
    files = {
        "memory/job/memory.usage_in_bytes": "63\n",
        "memory/job/memory.limit_in_bytes": "64\n",
        "memory/job/memory.stat": "inactive_file 0\ntotal_inactive_file 61\n",
    }
    assert cgroup("4:memory:/job\n", files) == 62


@pytest.mark.parametrize(
    ("stat", "left"),
    [
        ("", 1), ("anon 63", 1), ("inactive_file x", 1), ("inactive_file 30", 31),
        ("inactive_file 99", 64),
    ],
)  # fmt: skip
def test_no_more_is_free_than_the_statistics_say_and_the_limit_allows(stat, left, cgroup):
    files = {"a/memory.current": "63", "a/memory.max": "64", "a/memory.stat": stat}
    assert cgroup("0::/a\n", files) == left


def test_in_a_container_the_limit_stands_at_the_root(cgroup):
    files = {"memory.current": "40\n", "memory.max": "50\n"}
    assert cgroup("0::/../host/path\n", files) == 10


@pytest.mark.parametrize("files", [{}, {"a/memory.current": "1", "a/memory.max": "max"}])
def test_no_limit_is_no_limit(cgroup, files):
    assert math.isinf(cgroup("0::/a\n", files))


def test_nothing_of_this_hosts_files_is_taken_for_endless():
    assert 0 <= device.free_host_memory() < math.inf


@pytest.fixture
def limits(tmp_path):
    """(memory, processors) that cgroups leave, by /proc/self/cgroup and files below the root."""

    def read(lines, files):
        given = written(tmp_path, lines, files)
        return device.cgroup_memory(*given), device.cgroup_cpus(*given)

    return read


@pytest.mark.parametrize(
    ("lines", "files", "expected"),
    [
        ("0::/a/b\n", {"a/memory.max": "1000", "a/b/memory.max": "max"}, (1000, None)),
        ("0::/a/b\n", {"a/cpu.max": "250000 100000", "a/b/cpu.max": "max 100000"}, (None, 2.5)),
        ("4:memory:/job\n", {"memory/job/memory.limit_in_bytes": "64"}, (64, None)),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712"}, (None, None)),
        ("5:cpu,cpuacct:/x\n", {"cpu/x/cpu.cfs_quota_us": "50000",
                                "cpu/x/cpu.cfs_period_us": "100000"}, (None, 0.5)),
        ("5:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "1"}, (None, None)),
        ("", {}, (None, None)),
    ],
)  # fmt: skip
def test_limits_of_memory_and_processors_are_those_of_any_level_and_version(
    limits, lines, files, expected
):
    assert limits(lines, files) == expected


@pytest.mark.parametrize(("ranks", "free", "usable"), [(1, 800.0, 200.0), (8, 100.0, 25.0)])
def test_the_ranks_of_a_host_share_its_free_memory_and_buffers_take_a_quarter(
    monkeypatch, ranks, free, usable
):
    monkeypatch.setattr(device, "free_host_memory", lambda: 800.0)
    here = SimpleNamespace(local_world=ranks)
    assert device.free_bytes(CPU, here) == free
    assert device.usable_bytes(CPU, here) == usable
