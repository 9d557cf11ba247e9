"""`bench run` under torchrun on two nodes. tests/selftest has the self-test's faults there."""

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
            kill=1,
            at="devices",
            deadline=100,
        )
    assert verdict.names(rank=1, stage="devices"), str(verdict)
    (finding,) = verdict.report["findings"]
    assert finding["who"]["host"] == "node1"
    assert verdict.gone(), str(verdict)


def test_ranks_meet_where_the_first_hosts_own_name_means_loopback_there(tmp_path):
    own, others = tmp_path / "own", tmp_path / "others"
    own.write_text("127.0.0.1 localhost\n127.0.1.1 node0\n")  # as Debian writes it
    with two_hosts() as (first, second):
        others.write_text(f"127.0.0.1 localhost\n{first.address} node0\n")
        verdict = job(
            2,
            nodes=2,
            hosts=(first.knowing(own), second.knowing(others)),
            master="node0",
            launcher="env",
            command=("bench", "run", "--sizes", "8", "--budget", "3", "--precision", "20%"),
            deadline=60,
        )
    assert verdict.healthy(), str(verdict)
    assert verdict.gone(), str(verdict)
