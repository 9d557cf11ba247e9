"""Real ranks measure their speed: the slow, throttled or wrong rank is named."""

import subprocess
import sys

import pytest

from job import job

pytestmark = [pytest.mark.needs("torch"), pytest.mark.timeout(240)]


def selftest(only, **more):
    return job(4, command=("selftest", "--only", only), deadline=100, **more)


def test_healthy_ranks_are_healthy_in_all_stages_and_all_figures_are_there():
    verdict = job(4, deadline=200)
    assert verdict.healthy(), str(verdict)
    assert verdict.gone()
    compared = {row["metric"]: row for row in verdict.report["data"]["compared"]}
    seen = [row["visible"] for row in compared.values() if row["visible"] < 1]
    told = [f"smallest slowdown this run could detect: {max(seen):.0%} (host)"] if seen else []
    # A host whose speed changes while it is measured shows no slowdown: the report says so.
    told += ["too much to compare"] if len(seen) < len(compared) else []
    assert told
    assert all(part in verdict.report["summary"] for part in told), verdict
    assert {row["ranks"] for row in compared.values()} == {4}
    assert compared["host_copy"]["median"] > 0


def test_a_slow_rank_is_measured_again_and_named_and_other_bits_are_told_with_it():
    # A host that other programs or its hypervisor slow down varies by half and more.
    slow = "scale:rank=2,stage={},name=host_copy,by=0.1"
    flipped = "set:rank=1,stage=fingerprint,name=host.hashes.fp64,value=0123456789abcdef"
    inject = ";".join((slow.format("speed"), slow.format("speed_recheck"), flipped))
    verdict = selftest("speed,fingerprint", inject=inject)
    assert verdict.causes == {"slow-cores", "wrong-arithmetic"}, verdict
    named = {finding["cause"]: finding["who"]["ranks"] for finding in verdict.report["findings"]}
    assert named == {"slow-cores": [2], "wrong-arithmetic": [1]}
    assert "speed_recheck" in [stage["name"] for stage in verdict.report["data"]["stages"]]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_beside_a_process_that_takes_a_core_ranks_are_healthy_every_time(repeats):
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            for _ in range(repeats):
                verdict = selftest("speed,fingerprint")
                assert verdict.healthy(), str(verdict)
        finally:
            busy.kill()
