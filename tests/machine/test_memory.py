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


V2 = {"a/memory.current": "63", "a/memory.max": "64"}
V1 = {"memory/job/memory.usage_in_bytes": "63\n", "memory/job/memory.limit_in_bytes": "64\n"}
BELOW = {  # at every level its own cache: what is below is in there
    **V2, "a/memory.stat": "anon 1\nfile 62\nworkingset_restore_file 9\ninactive_file 61\n",
    "a/b/memory.current": "50\n", "a/b/memory.max": "60\n",
    "a/b/memory.stat": "inactive_file 45\n",
}  # fmt: skip
# With that of the cgroups below, as the usage has it.
CACHE = {"memory/job/memory.stat": "inactive_file 0\ntotal_inactive_file 61\n"}
FREE = {  # /proc/self/cgroup, files, free bytes
    "a limit at any level of version 2":
        ("0::/a/b\n", {"a/memory.current": "300\n", "a/memory.max": "1000\n",
                       "a/b/memory.current": "100\n", "a/b/memory.max": "max\n"}, 700),
    "a limit of version 1": ("5:cpu,cpuacct:/x\n4:memory:/job\n0::/\n", V1, 1),
    "page cache in version 2": ("0::/a/b\n", BELOW, 60 - 5),
    "page cache of the level above": ("0::/a/b\n", BELOW | {"a/b/memory.max": "max"}, 64 - 2),
    "page cache in version 1": ("4:memory:/job\n", V1 | CACHE, 62),
    # No more is free than the statistics say, and the limit allows.
    **{f"statistics of {stat!r}": ("0::/a\n", V2 | {"a/memory.stat": stat}, left)
       for stat, left in (("", 1), ("anon 63", 1), ("inactive_file x", 1), ("inactive_file 30", 31),
                          ("inactive_file 99", 64))},
    "in a container the limit stands at the root":
        ("0::/../host/path\n", {"memory.current": "40\n", "memory.max": "50\n"}, 10),
    "no files": ("0::/a\n", {}, math.inf),
    "no limit": ("0::/a\n", {"a/memory.current": "1", "a/memory.max": "max"}, math.inf),
}  # fmt: skip
# /proc/self/cgroup, files, (memory, processors) that cgroups leave.
LIMITS = (
    ("0::/a/b\n", {"a/memory.max": "1000", "a/b/memory.max": "max"}, (1000, None)),
    ("0::/a/b\n", {"a/cpu.max": "250000 100000", "a/b/cpu.max": "max 100000"}, (None, 2.5)),
    ("4:memory:/job\n", {"memory/job/memory.limit_in_bytes": "64"}, (64, None)),
    ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712"}, (None, None)),
    ("5:cpu,cpuacct:/x\n", {"cpu/x/cpu.cfs_quota_us": "50000",
                            "cpu/x/cpu.cfs_period_us": "100000"}, (None, 0.5)),
    ("5:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "1"}, (None, None)),
    ("", {}, (None, None)),
)  # fmt: skip


def test_what_is_free_and_the_limits_are_those_of_any_level_and_version_of_cgroups(tmp_path):
    for number, (name, (lines, files, free)) in enumerate(FREE.items()):
        (tmp_path / str(number)).mkdir()
        assert device.free_in_cgroups(*written(tmp_path / str(number), lines, files)) == free, name
    for number, (lines, files, limits) in enumerate(LIMITS):
        (tmp_path / f"of {number}").mkdir()
        given = written(tmp_path / f"of {number}", lines, files)
        assert (device.cgroup_memory(*given), device.cgroup_cpus(*given)) == limits, lines


def test_nothing_of_this_hosts_files_is_taken_for_endless():
    assert 0 <= device.free_host_memory() < math.inf


@pytest.mark.parametrize(("ranks", "free", "usable"), [(1, 800.0, 200.0), (8, 100.0, 25.0)])
def test_the_ranks_of_a_host_share_its_free_memory_and_buffers_take_a_quarter(
    monkeypatch, ranks, free, usable
):
    monkeypatch.setattr(device, "free_host_memory", lambda: 800.0)
    here = SimpleNamespace(local_world=ranks)
    assert device.free_bytes(CPU, here) == free
    assert device.usable_bytes(CPU, here) == usable
