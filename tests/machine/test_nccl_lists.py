"""What NCCL reads in NCCL_SOCKET_IFNAME."""

import pytest

from oddrank.machine.interfaces import is_allowed
from oddrank.selftest.connections import NCCL, ways
from oddrank.selftest.facts import host

NAMES = ["lo", "eth0", "eth1", "eth10", "ib0", "docker0"]
CASES = [
    ("eth", "eth0 eth1 eth10"), ("eth1", "eth1 eth10"), ("=eth1", "eth1"), ("=eth", ""),
    ("ib,eth0", "eth0 ib0"), ("=ib0,eth0", "eth0 ib0"), ("eth0:5", "eth0"), ("ib, =eth0", "ib0"),
    (" eth0, ib ", ""), (" ^docker, eth", ""), ("^docker, eth", "lo eth0 eth1 eth10 ib0"),
    ("^^eth", "lo eth0 eth1 eth10 ib0 docker0"), ("^ib,,", "lo eth0 eth1 eth10 docker0"),
    (":1,ib", "ib0"), ("^docker,lo", "eth0 eth1 eth10 ib0"),
    ("^=eth1", "lo eth0 eth10 ib0 docker0"), ("=^eth", ""), ("lo", "lo"), ("ib9", ""),
]  # fmt: skip


@pytest.mark.parametrize(("told", "names"), CASES)
def test_nccl_takes_interfaces_by_begin_by_name_or_all_others(told, names):
    assert [name for name in NAMES if is_allowed(name, told)] == names.split()


@pytest.mark.parametrize(
    ("told", "all_of_them"),
    [("", True), ("=", True), (",", True), ("^", False), ("^=", False), ("^,:1", False)],
)
def test_an_empty_list_allows_all_and_excludes_all_after_a_caret(told, all_of_them):
    assert all(is_allowed(name, told) == all_of_them for name in NAMES)


@pytest.mark.parametrize(
    ("told", "ports"),
    [("m", [0, 1, 2]), ("m:1", [1]), ("m:-1", [0, 1, 2]), ("m: 2x", [2]), ("m:x", [0]),
     ("m:", [0, 1, 2]), ("=m:1,m:2", [1, 2]), ("^m:1", [0, 2]), ("m::0:0", [0, 1, 2])],
)  # fmt: skip
def test_an_entry_may_name_one_port(told, ports):
    assert [port for port in range(3) if is_allowed("m", told, port)] == ports


def test_one_character_is_as_if_the_variable_were_not_set(monkeypatch):
    monkeypatch.setenv(NCCL, "e")
    assert host.nccl_interfaces(None) is None


@pytest.mark.parametrize(("told", "names"), CASES)
def test_the_fact_and_the_ways_mean_the_same_interfaces(told, names, monkeypatch):
    monkeypatch.setenv(NCCL, told)
    monkeypatch.setattr(host.socket, "if_nameindex", lambda: [*enumerate(NAMES)])
    assert host.nccl_interfaces(None) == ", ".join(names.split())
    found = ways("", dict.fromkeys(NAMES, "10.0.0.1"), {NCCL: told})
    assert [*found.values()] == names.split()[:4]
