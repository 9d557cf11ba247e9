"""`bench run` under torchrun on two nodes; the self-test's faults there: tests/selftest."""

import pytest

from job import job
from netns import two_hosts

pytestmark = pytest.mark.needs("torch", "netns")


def test_a_rank_that_is_killed_in_a_sweep_is_named_with_its_node():
    with two_hosts() as hosts:
        verdict = job(
            2,
            nodes=2,
            hosts=hosts,
            command=("bench", "run", "--sizes", "8:64K:x8", "--budget", "3"),
            inject="kill:rank=1,stage=devices",
            deadline=100,
        )
    assert verdict.names(rank=1, stage="devices"), str(verdict)
    (finding,) = verdict.report["findings"]
    assert finding["who"]["host"] == "node1"
    assert verdict.gone(), str(verdict)
