"""What NCCL reads in NCCL_SOCKET_IFNAME."""

from oddrank.machine import is_allowed
from oddrank.selftest import facts
from oddrank.selftest.connections import NCCL, ways

NAMES = ["lo", "eth0", "eth1", "eth10", "ib0", "docker0"]
CASES = [
    ("eth", "eth0 eth1 eth10"), ("eth1", "eth1 eth10"), ("=eth1", "eth1"), ("=eth", ""),
    ("ib,eth0", "eth0 ib0"), ("=ib0,eth0", "eth0 ib0"), ("eth0:5", "eth0"), ("ib, =eth0", "ib0"),
    (" eth0, ib ", ""), (" ^docker, eth", ""), ("^docker, eth", "lo eth0 eth1 eth10 ib0"),
    ("^^eth", "lo eth0 eth1 eth10 ib0 docker0"), ("^ib,,", "lo eth0 eth1 eth10 docker0"),
    (":1,ib", "ib0"), ("^docker,lo", "eth0 eth1 eth10 ib0"),
    ("^=eth1", "lo eth0 eth10 ib0 docker0"), ("=^eth", ""), ("lo", "lo"), ("ib9", ""),
]  # fmt: skip


# An empty list allows all, and excludes all after a caret.
EMPTY = {"": True, "=": True, ",": True, "^": False, "^=": False, "^,:1": False}


def test_nccl_takes_interfaces_by_begin_by_name_or_all_others():
    for told, names in (*CASES, *((told, " ".join(NAMES * all_)) for told, all_ in EMPTY.items())):
        assert [name for name in NAMES if is_allowed(name, told)] == names.split(), told


def test_one_character_is_as_if_the_variable_were_not_set(monkeypatch):
    monkeypatch.setenv(NCCL, "e")
    assert ways("", dict.fromkeys(NAMES, "10.0.0.1")) == {}
    assert facts.nccl_interfaces(None) is None


def test_the_self_test_means_and_goes_the_same_ways(monkeypatch):
    monkeypatch.setattr(facts.socket, "if_nameindex", lambda: [*enumerate(NAMES)])
    for told, names in CASES:
        monkeypatch.setenv(NCCL, told)
        assert facts.nccl_interfaces(None) == ", ".join(names.split()), told
        found = ways("", dict.fromkeys(NAMES, "10.0.0.1"), {NCCL: told})
        assert [*found.values()] == names.split()[:4], told
