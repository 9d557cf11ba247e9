"""How many cores a rank may have, as the cgroups of any kind say."""

import pytest

from oddrank.selftest.probes import quota


@pytest.fixture
def text(tmp_path):
    """Writes /proc/self/cgroup and files below /sys/fs/cgroup; gives the quota by them."""

    def read(lines, files):
        proc, root = tmp_path / "cgroup", tmp_path / "sys"
        proc.write_text(lines)
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return quota.text(str(proc), str(root))

    return read


def test_the_strictest_of_all_levels_counts(text):
    files = {
        "cpu.max": "max 100000\n",
        "a/cpu.max": "400000 100000\n",
        "a/b/cpu.max": "50000 100000",
    }
    assert text("0::/a/b\n", files) == "0.5 cores"


def test_cgroup_v1_quotas_count(text):
    files = {"cpu/job/cpu.cfs_quota_us": "150000\n", "cpu/job/cpu.cfs_period_us": "100000\n"}
    assert text("5:cpu,cpuacct:/job\n0::/\n", files) == "1.5 cores"


@pytest.mark.parametrize(
    "files",
    [{}, {"a/cpu.max": "max 100000"}, {"a/cpu.max": "what is this"},
     {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "1"}],
)  # fmt: skip
def test_no_quota_is_none(text, files):
    assert text("1:cpu:/a\n0::/a\n", files) == "none"


def test_periods_in_which_a_cgroup_holds_its_processes_back_are_counted(tmp_path):
    proc, group = tmp_path / "cgroup", tmp_path / "root" / "job"
    group.mkdir(parents=True)
    proc.write_text("0::/job\n")
    (group / "cpu.max").write_text("40000 100000\n")

    def periods(ran, stopped):
        (group / "cpu.stat").write_text(f"usage_usec 5\nnr_periods {ran}\nnr_throttled {stopped}\n")
        return quota.periods(str(proc), str(tmp_path / "root"))

    first = periods(100, 50)
    assert quota.held_back(first, periods(110, 59)) == 0.9
    assert quota.held_back(first, first) == 0.0
    assert quota.held_back({}, periods(110, 59)) == 0.0
