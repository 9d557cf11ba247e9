"""How many cores a rank may have, and how often the kernel holds it back for that."""

import pytest

from oddrank.selftest.probes import quota


@pytest.mark.parametrize(("limit", "said"), [("50000 100000", "0.5 cores"), ("max 100000", "none")])
def test_a_quota_is_told_in_cores(tmp_path, limit, said):
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "cpu.max").write_text(limit)
    assert quota.text(str(tmp_path / "cgroup"), str(tmp_path)) == said


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
