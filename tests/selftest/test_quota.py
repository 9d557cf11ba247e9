"""The CPU quota of a rank, and how often the kernel throttles it."""

import pytest

from oddrank.selftest.probes import host


@pytest.mark.parametrize(("limit", "said"), [("50000 100000", "0.5 cores"), ("max 100000", "none")])
def test_a_quota_is_told_in_cores(tmp_path, limit, said):
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "cpu.max").write_text(limit)
    assert host.quota_text(str(tmp_path / "cgroup"), str(tmp_path)) == said


def test_periods_in_which_a_cgroup_holds_its_processes_back_are_counted(tmp_path):
    proc, group = tmp_path / "cgroup", tmp_path / "root" / "job"
    group.mkdir(parents=True)
    proc.write_text("0::/job\n")
    (group / "cpu.max").write_text("40000 100000\n")

    def periods(ran, stopped):
        (group / "cpu.stat").write_text(f"usage_usec 5\nnr_periods {ran}\nnr_throttled {stopped}\n")
        return host.periods(str(proc), str(tmp_path / "root"))

    first = periods(100, 50)
    assert host.share_held_back(first, periods(110, 59)) == 0.9
    assert host.share_held_back(first, first) == 0.0
    assert host.share_held_back({}, periods(110, 59)) == 0.0
