"""Hardware error counters that grow during the test: read from a fake sysfs, then judged."""

import socket
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from made_up import context, run_by_rank
from oddrank import OddrankError, _native
from oddrank.control.stages import RunState, Skip
from oddrank.selftest import Options
from oddrank.selftest.stages import counters
from selftest.said import check
from texts import texts

PORT = "class/infiniband/mlx5_0/ports/1"
SECOND = SimpleNamespace(rank=1, local_rank=1)
SNMP = texts(__file__)["snmp"][1:]


@pytest.fixture
def sysfs(tmp_path):
    """Makes the sysfs of a host with an InfiniBand device of one port and a GPU."""
    texts = {
        f"{PORT}/counters/link_downed": "2\n", f"{PORT}/counters/symbol_error": "0\n",
        f"{PORT}/counters/port_xmit_wait": "N/A (no PMA)\n",
        f"{PORT}/hw_counters/out_of_sequence": "17\n",
    }  # fmt: skip
    for slot in ("0000:0c:00.0", "0000:9b:00.0"):
        for kind, word in (("correctable", "COR"), ("nonfatal", "NONFATAL"), ("fatal", "FATAL")):
            text = f"RxErr 3\nBadTLP 0\nTOTAL_ERR_{word} 3\n"
            texts[f"bus/pci/devices/{slot}/aer_dev_{kind}"] = text
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    device = tmp_path / PORT / "../../device"
    device.symlink_to(tmp_path / "bus/pci/devices/0000:0c:00.0")
    return tmp_path


def test_ports_and_their_devices_are_read(sysfs):
    assert counters.of_ports(sysfs) == {
        "mlx5_0/1 link_downed": 2, "mlx5_0/1 symbol_error": 0, "mlx5_0/1 out_of_sequence": 17,
        **{f"0000:0c:00.0 aer_{kind}": 3 for kind in ("correctable", "nonfatal", "fatal")},
    }  # fmt: skip


def test_a_gpu_on_pcie_is_read_under_its_own_name_and_nonsense_is_not_read(sysfs, tmp_path):
    read = counters.of_pci("0000:9B:00.0", sysfs, "GPU")
    assert read == {"GPU aer_correctable": 3, "GPU aer_nonfatal": 3, "GPU aer_fatal": 3}
    (sysfs / PORT / "counters/link_downed").write_bytes(b"\xff" * 99)
    (sysfs / "bus/pci/devices/0000:9b:00.0/aer_dev_fatal").write_text("TOTAL_ERR_FATAL many\n")
    assert "mlx5_0/1 link_downed" not in counters.of_ports(sysfs)
    assert "GPU aer_fatal" not in counters.of_pci("0000:9b:00.0", sysfs, "GPU")
    assert counters.of_ports(tmp_path / "absent") == {}
    assert counters.of_pci("0000:9b:00.0", tmp_path / "absent") == {}


def test_a_gpus_counters_have_their_links_and_each_counter_a_name_of_its_own(monkeypatch):
    told = {"gpu": {"pcie_replay": 4}, "links": {3: {"replay": 9}}}
    monkeypatch.setattr(counters.nvml, "gpu_counters", lambda uuid: told)
    assert counters.of_gpu("ab") == {"GPU pcie_replay": 4, "NVLink 3 replay": 9}
    assert len(counters.SCOPE_OF) == sum(map(len, counters.TOLERATED.values()))


def judge(grown, *, world=8, per_node=4, seconds=30.0):
    """Returns the findings. grown: rank -> counter -> increase."""
    results = {
        r: {"seconds": seconds, "grown": grown.get(r, {}), "not_readable": ""} for r in range(world)
    }
    run = run_by_rank({"counters_recheck": results}, ranks=world, on_node=per_node)
    run.device = "GPU"
    return counters.recheck(Options()).conclude(run)


def of_all(ranks, key, grown=2, **run):
    return judge({rank: {key: grown} for rank in ranks}, **run)


LINK_DOWN, REPLAY, ECC = "mlx5_0/1 link_downed", "NVLink 3 replay", "GPU ecc_uncorrected"
CARD, BRAKE = "0000:0c:00.0 aer_fatal", "GPU power_brake_ns"
COUNTED, EVERYWHERE = "suspicious errors-counted: ", "suspicious errors-everywhere: "
OWN = "suspicious own-errors-counted: "
TCP = {"TCP segments": 2000, "TCP retransmits": 100}
SAID = {
    f"{COUNTED}node 4-7": {"a port": judge({4: {LINK_DOWN: 1}})},
    f"{OWN}node 4-7": {"a network card": judge({4: {CARD: 1}})},
    f"{OWN}6": {"a GPU's memory": judge({6: {ECC: 2}})},
    f"{COUNTED}6": {"a GPU's links": judge({6: {REPLAY: 2, "NVLink 4 replay": 7}})},
    f"{COUNTED}0": {"throttling": judge({0: {BRAKE: 3 * 10**9}})},
    f"{EVERYWHERE}node 4-7": {
        "most GPUs of a node": of_all((4, 5, 7), REPLAY),
        "memory of most GPUs of a node": of_all((4, 5, 7), ECC),
    },
    "unknown errors-everywhere: nobody": {"most nodes": of_all((0, 4, 8), LINK_DOWN, world=16)},
    "suspicious tcp-retransmits: node 4-7": {"TCP repeats": judge({4: TCP})},
}
OTHERS = {
    "": {"nothing grew": judge({})},
    f"{COUNTED}0, 1, 2, 3": {"half of a node": of_all(range(4), REPLAY, world=16, per_node=8)},
    f"{COUNTED}0, 1": {"both GPUs of a node": of_all((0, 1), REPLAY, world=4, per_node=2)},
    f"{COUNTED}node 0-3, node 0-3, node 0-3": {"a card is no GPU": of_all((0, 1, 2), LINK_DOWN)},
    f"{COUNTED}node 0-3, node 4-7": {
        "half of the nodes": of_all((0, 4), LINK_DOWN, world=16),
        "both nodes": of_all((0, 4), LINK_DOWN),
    },
}


def test_a_counter_that_grows_is_its_devices_or_its_nodes(golden):
    check(SAID, golden)
    check(OTHERS)


def test_what_healthy_hardware_counts_is_no_finding():
    for key, usual, much in (
        ("mlx5_0/1 symbol_error", 10, 11), ("GPU pcie_replay", 8, 9),
        ("NVLink 0 crc_flit", 6000, 6001), ("0000:0c:00.0 aer_correctable", 60, 61),
        ("GPU hardware_thermal_ns", 6 * 10**8, 10**9),
    ):  # fmt: skip
        assert judge({0: {key: usual}}) == [], key
        assert len(judge({0: {key: much}})) == 1, key
        assert judge({0: {key: much}}, seconds=600) == [], key
    for sent, repeated, causes in (
        (100, 21, ["tcp-retransmits"]), (100, 20, []), (100_000, 900, []),
    ):  # fmt: skip
        found = judge({4: {"TCP segments": sent, "TCP retransmits": repeated}})
        assert [one.cause for one in found] == causes, (sent, repeated)
    for key in ("mlx5_0/1 port_xmit_wait", "GPU ecc_corrected", "GPU power_cap_ns", "GPU unheard"):
        assert judge({0: {key: 10**12}}) == [], key  # it is only shown


def test_only_for_what_is_the_devices_own_its_node_is_left_out():
    for key, own in {
        "GPU ecc_uncorrected": True, "GPU pcie_fatal": True, "GPU aer_fatal": True,
        "0000:0c:00.0 aer_fatal": True, "GPU pcie_replay": False, REPLAY: False, LINK_DOWN: False,
        "GPU aer_nonfatal": False,
    }.items():  # fmt: skip
        (finding,) = judge({4: {key: 1000}})
        assert (finding.cause, finding.drains_node) == ("own-" * own + "errors-counted", own), key
        assert ("the other end" in finding.confidence.why) != own, key


def test_without_any_counter_they_are_not_read_again():
    plan = counters.recheck(Options()).plan
    facts = {"gpus": 0, "local_world": 1, "gpu_id": None}
    for counts, planned in (([], Skip), ([0, 0], Skip), ([0, 3], str)):
        read = {rank: {"counters": count, "not_readable": ""} for rank, count in enumerate(counts)}
        run = RunState(2, {}, {"counters": read, "environment": {0: facts}})
        assert isinstance(plan(run), planned), counts
    assert plan(run) == "CPU"


def test_one_rank_of_a_node_says_what_has_grown_meanwhile_and_cleared_counters_have_not(
    sysfs, tmp_path, monkeypatch
):
    monkeypatch.setattr(counters, "SYSFS", sysfs)
    measure, again = counters.stage(Options()).measure, counters.recheck(Options()).measure
    assert measure(context("CPU", launch=SECOND))["counters"] == 0
    without_tcp = measure(context("CPU", master=""))
    assert without_tcp == {"counters": 6, "not_readable": ""}
    snmp = tmp_path / "snmp"
    snmp.write_text(SNMP.format(sent=1000, repeated=3))
    monkeypatch.setattr(counters.of_tcp, "__defaults__", (snmp,))
    here = context("CPU", master="10.0.0.1")
    measure(here)
    (sysfs / PORT / "counters/link_downed").write_text("5\n")
    (sysfs / PORT / "hw_counters/out_of_sequence").write_text("0\n")
    snmp.write_text(SNMP.format(sent=3000, repeated=103))
    after = again(here)
    assert after.pop("seconds") >= 0
    grown = {"mlx5_0/1 link_downed": 3, "TCP segments": 2000, "TCP retransmits": 100}
    assert after == {"grown": grown, "not_readable": ""}
    for odd in ("many", "--5", "\u00b2"):
        snmp.write_text(f"Tcp: OutSegs\nTcp: {odd}\n")
        assert counters.of_tcp(snmp) == {}, odd


def test_tcp_of_this_host_has_sent_something():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
    assert counters.of_tcp()["TCP segments"] > 0


def test_a_gpu_that_nvml_does_not_tell_of_is_not_readable(sysfs, monkeypatch):
    fails = Mock(side_effect=OddrankError("no NVML"))
    gpu = SimpleNamespace(uuid="GPU-ab", pci="0000:9B:00.0")
    monkeypatch.setattr(counters, "SYSFS", sysfs)
    monkeypatch.setattr(counters.nvml, "gpu_counters", fails)
    monkeypatch.setattr(_native, "cuda_part", lambda: SimpleNamespace(module=True))
    monkeypatch.setattr(counters.placement, "of_rank", lambda launch: gpu)
    found = counters.stage(Options()).measure(context("GPU", launch=SECOND))
    assert found == {"counters": 0, "not_readable": "no NVML"}
