"""What NCCL reads in NCCL_SOCKET_IFNAME."""

import pytest

from oddrank.selftest.facts import network
from oddrank.selftest.nccl_interfaces import allowed
from oddrank.selftest.reach.ways import NCCL, ways

NAMES = ["lo", "eth0", "eth1", "eth10", "ib0", "docker0"]
CASES = [
    ("eth", "eth0 eth1 eth10"),
    ("eth1", "eth1 eth10"),
    ("=eth1", "eth1"),
    ("=eth", ""),
    ("ib,eth0", "eth0 ib0"),
    ("=ib0,eth0", "eth0 ib0"),
    ("eth0:5", "eth0"),
    (" ib , =eth0", "ib0"),
    (" eth0, ib ", "eth0 ib0"),
    (" ^docker, eth", "lo ib0"),
    ("^docker,lo", "eth0 eth1 eth10 ib0"),
    ("^=eth1", "lo eth0 eth10 ib0 docker0"),
    ("=^eth", ""),
    ("lo", "lo"),
    ("ib9", ""),
]


@pytest.mark.parametrize(("told", "names"), CASES)
def test_nccl_takes_interfaces_by_begin_by_name_or_all_others(told, names):
    assert allowed(told, NAMES) == names.split()


@pytest.mark.parametrize(("told", "names"), CASES)
def test_the_fact_and_the_ways_mean_the_same_interfaces(told, names, monkeypatch):
    monkeypatch.setenv(NCCL, told)
    monkeypatch.setattr(network.socket, "if_nameindex", lambda: [*enumerate(NAMES)])
    assert network.nccl_interfaces(None) == ", ".join(names.split())
    found = ways("", dict.fromkeys(NAMES, "10.0.0.1"), {NCCL: told})
    assert [*found.values()] == names.split()[:4]
