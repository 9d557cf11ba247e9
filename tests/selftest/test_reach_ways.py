"""The interfaces that are tried, and the message with the addresses of all nodes."""

import socket

from oddrank.selftest.connections import GLOO, NCCL, addresses, matching, pack, unpack, ways

NAMES = ["lo", "eth0", "eth1", "eth10", "ib0", "docker0"]
KNOWN = {name: f"10.0.0.{number}" for number, name in enumerate(NAMES)}


def test_a_variable_means_what_nccl_and_gloo_read_in_it():
    for variable, value, found in (
        (NCCL, "eth1", ["eth1", "eth10"]), (NCCL, "^docker", ["lo", "eth0", "eth1", "eth10"]),
        (GLOO, "eth1", ["eth1"]), (GLOO, "ib0, eth1", ["eth1", "ib0"]), (GLOO, "eth", []),
    ):  # fmt: skip
        assert matching(variable, value, NAMES) == found, (variable, value)


def test_the_rendezvous_comes_first_what_a_node_lacks_is_no_way_nor_are_rails_after_the_fourth():
    found = ways("eth0", KNOWN, {NCCL: "ib,eth1", GLOO: "missing0"})
    assert found == {"rendezvous": "eth0", NCCL: "eth1", f"{NCCL} 2": "eth10", f"{NCCL} 3": "ib0"}
    assert ways("", KNOWN, {}) == {}
    assert len(ways("", {f"ib{number}": "10.0.0.1" for number in range(8)}, {NCCL: "ib"})) == 4


def test_this_host_has_a_loopback_address():
    assert addresses()["lo"] == "127.0.0.1"
    for name, address in addresses().items():
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        assert socket.inet_pton(family, address), name


def test_a_link_local_address_is_none(tmp_path):
    inet6 = tmp_path / "if_inet6"
    inet6.write_text(
        "fe800000000000000000000000000001 02 40 20 80     ib8\n"
        "fd000000000000000000000000000002 03 40 00 80     ib9\n"
    )
    found = addresses(inet6)
    assert found["ib9"] == "fd00::2"
    assert "ib8" not in found


def test_places_come_out_of_a_message_as_they_went_in_and_those_of_many_nodes_fit_into_one():
    places = [[("10.0.0.1", 40001), None, ("10.0.0.3", 65535)], [("fd00::1", 1), ("::1", 2), None]]
    assert unpack(pack(places), 3) == places
    many = [
        (f"10.{n * 7919 % 4}.{n * 7919 % 251}.{n * 31 % 254}", 32768 + n * 7919 % 28000)
        for n in range(10_000)
    ]
    text = pack([many])
    assert len(text) < 60_000
    assert unpack(text, 10_000) == [many]
