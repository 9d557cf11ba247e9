"""Hardware error counters that grow during the test: read from a fake sysfs, then judged."""

import socket
from types import SimpleNamespace

import pytest

from job import job
from oddrank import OddrankError, _native
from oddrank.control.root import RankState
from oddrank.control.stages import RunState, Skip
from oddrank.selftest import Options
from oddrank.selftest.stages import counters


@pytest.fixture
def sysfs(tmp_path):
    """Makes the sysfs of a host with an InfiniBand device of one port and a GPU."""
    for slot in ("0000:0c:00.0", "0000:9b:00.0"):
        device = tmp_path / "devices/pci0000:00" / slot
        device.mkdir(parents=True)
        for kind in ("COR", "NONFATAL", "FATAL"):
            name = {"COR": "correctable"}.get(kind, kind.lower())
            (device / f"aer_dev_{name}").write_text(f"RxErr 3\nBadTLP 0\nTOTAL_ERR_{kind} 3\n")
        link = tmp_path / "bus/pci/devices" / slot
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(device)
    port = tmp_path / "class/infiniband/mlx5_0/ports/1"
    (port / "counters").mkdir(parents=True)
    (port / "hw_counters").mkdir()
    (port.parents[1] / "device").symlink_to(tmp_path / "devices/pci0000:00/0000:0c:00.0")
    (port / "counters/link_downed").write_text("2\n")
    (port / "counters/symbol_error").write_text("0\n")
    (port / "counters/port_xmit_wait").write_text("N/A (no PMA)\n")
    (port / "hw_counters/out_of_sequence").write_text("17\n")
    return tmp_path


def test_ports_and_their_devices_are_read(sysfs):
    assert counters.of_ports(sysfs) == {
        "mlx5_0/1 link_downed": 2,
        "mlx5_0/1 symbol_error": 0,
        "mlx5_0/1 out_of_sequence": 17,
        "0000:0c:00.0 aer_correctable": 3,
        "0000:0c:00.0 aer_nonfatal": 3,
        "0000:0c:00.0 aer_fatal": 3,
    }


def test_a_gpu_on_pcie_is_read_under_its_own_name(sysfs):
    read = counters.of_pci("0000:9B:00.0", sysfs, "GPU")
    assert read == {"GPU aer_correctable": 3, "GPU aer_nonfatal": 3, "GPU aer_fatal": 3}


def test_what_is_not_there_is_not_read(tmp_path):
    assert counters.of_ports(tmp_path) == {}
    assert counters.of_pci("0000:9b:00.0", tmp_path) == {}


def test_a_file_of_nonsense_is_not_read(sysfs):
    (sysfs / "class/infiniband/mlx5_0/ports/1/counters/link_downed").write_bytes(b"\xff" * 99)
    (sysfs / "bus/pci/devices/0000:9b:00.0/aer_dev_fatal").write_text("TOTAL_ERR_FATAL many\n")
    assert "mlx5_0/1 link_downed" not in counters.of_ports(sysfs)
    assert "GPU aer_fatal" not in counters.of_pci("0000:9b:00.0", sysfs, "GPU")


def test_a_gpus_counters_have_their_links(monkeypatch):
    told = {"gpu": {"pcie_replay": 4}, "links": {3: {"replay": 9}}}
    monkeypatch.setattr(_native, "core", lambda: SimpleNamespace(gpu_counters=lambda uuid: told))
    assert counters.of_gpu("ab") == {"GPU pcie_replay": 4, "NVLink 3 replay": 9}


def test_growth_is_what_is_more_than_before_and_a_cleared_counter_is_none():
    before = {"a x": 5, "b x": 7, "c x": 1}
    assert counters.growth(before, {"a x": 6, "b x": 0, "c x": 1, "d x": 9}) == {"a x": 1}


def test_every_counter_has_a_name_of_its_own():
    assert len(counters.BY_NAME) == len(counters.COUNTERS)


def judge(grown, *, world=8, per_node=4, seconds=30.0):
    """Returns the findings. grown: rank -> counter -> increase."""
    states = {
        r: RankState(r, host=f"node{r // per_node}", node=r // per_node, contact="ok",
                     local_rank=r % per_node)
        for r in range(world)
    }  # fmt: skip
    results = {
        r: {"seconds": seconds, "grown": grown.get(r, {}), "not_readable": ""} for r in range(world)
    }
    run = RunState(world, states, {"counters_recheck": results}, device="GPU")
    return counters.recheck(Options()).conclude(run)


def test_counters_that_stand_still_are_no_finding():
    assert judge({}) == []


@pytest.mark.parametrize("key", ["mlx5_0/1 link_downed", "0000:0c:00.0 aer_fatal"])
def test_an_error_of_a_network_device_is_its_nodes(key):
    (finding,) = judge({4: {key: 1}})
    assert finding.condition == "suspicious"
    assert (finding.who.kind, finding.who.host) == ("node", "node1")
    assert finding.who.ranks == (4, 5, 6, 7)
    assert key.split()[0] in finding.what


@pytest.mark.parametrize("key", ["NVLink 3 replay", "GPU ecc_uncorrected", "GPU aer_fatal"])
def test_an_error_of_a_gpu_is_its_ranks(key):
    (finding,) = judge({6: {key: 2}})
    assert (finding.who.ranks, finding.who.device) == ((6,), "GPU 2")
    assert finding.evidence[0].value == 2


def test_the_links_of_a_gpu_are_one_finding():
    (finding,) = judge({6: {"NVLink 3 replay": 2, "NVLink 4 replay": 7}})
    assert "grew by 7" in finding.what
    assert "NVLink 4, NVLink 3" in finding.what
    assert len(finding.evidence) == 2


@pytest.mark.parametrize(
    ("key", "usual", "much"),
    [
        ("mlx5_0/1 symbol_error", 10, 11),
        ("GPU pcie_replay", 8, 9),
        ("NVLink 0 crc_flit", 6000, 6001),
        ("0000:0c:00.0 aer_correctable", 60, 61),
        ("GPU hardware_thermal_ns", 6 * 10**8, 10**9),
    ],
)
def test_what_healthy_hardware_counts_is_no_finding(key, usual, much):
    assert judge({0: {key: usual}}) == []
    assert len(judge({0: {key: much}})) == 1
    assert judge({0: {key: much}}, seconds=600) == []


@pytest.mark.parametrize(
    "key", ["mlx5_0/1 port_xmit_wait", "GPU ecc_corrected", "GPU power_cap_ns", "GPU unheard_of"]
)
def test_what_is_only_shown_is_no_finding(key):
    assert judge({0: {key: 10**12}}) == []


@pytest.mark.parametrize(
    ("key", "own"),
    [
        ("GPU ecc_uncorrected", True), ("GPU pcie_fatal", True), ("GPU aer_fatal", True),
        ("0000:0c:00.0 aer_fatal", True), ("GPU pcie_replay", False), ("NVLink 3 replay", False),
        ("mlx5_0/1 link_downed", False), ("GPU aer_nonfatal", False),
    ],
)  # fmt: skip
def test_only_for_what_is_the_devices_own_its_node_is_left_out(key, own):
    (finding,) = judge({4: {key: 1000}})
    assert finding.cause == ("own-errors-counted" if own else "errors-counted")
    assert finding.drains_node == own
    assert ("the other end" in finding.confidence.why) != own


@pytest.mark.parametrize("key", ["NVLink 3 replay", "GPU ecc_uncorrected"])
def test_what_most_gpus_of_a_node_count_is_the_nodes_and_points_at_none_of_them(key):
    (finding,) = judge({r: {key: 2} for r in (4, 5, 7)})
    assert (finding.condition, finding.cause) == ("suspicious", "errors-everywhere")
    assert (finding.who.kind, finding.who.ranks) == ("node", (4, 5, 6, 7))
    assert "grew on 3 of its GPUs" in finding.what


def test_half_of_a_nodes_gpus_or_only_two_are_named_one_by_one():
    half = {r: {"NVLink 3 replay": 2} for r in range(4)}
    assert [f.who.ranks for f in judge(half, world=16, per_node=8)] == [(0,), (1,), (2,), (3,)]
    two = {r: {"NVLink 3 replay": 2} for r in range(2)}
    assert [f.who.ranks for f in judge(two, world=4, per_node=2)] == [(0,), (1,)]


def test_network_devices_are_no_gpus_of_a_node():
    grown = {r: {"mlx5_0/1 link_downed": 1} for r in (0, 1, 2)}
    assert {f.cause for f in judge(grown)} == {"errors-counted"}


def test_throttling_is_told_in_seconds():
    (finding,) = judge({0: {"GPU power_brake_ns": 3 * 10**9}})
    assert "power brake grew by 3.0 s within 30 s" in finding.what


def test_what_most_nodes_count_points_at_none_of_them():
    grown = {r: {"mlx5_0/1 link_downed": 1} for r in (0, 4, 8)}
    (finding,) = judge(grown, world=16)
    assert (finding.condition, finding.who.ranks) == ("unknown", ())
    assert len(judge({0: {"mlx5_0/1 link_downed": 1}}, world=16)) == 1


def test_without_any_counter_there_is_no_second_look():
    results = {r: {"counters": 0, "not_readable": ""} for r in range(2)}
    plan = counters.recheck(Options()).plan
    assert isinstance(plan(RunState(2, {}, {"counters": results})), Skip)
    assert isinstance(plan(RunState(2, {}, {})), Skip)
    facts = {"gpus": 0, "local_world": 1, "gpu_id": None}
    results[1]["counters"] = 3
    assert plan(RunState(2, {}, {"counters": results, "environment": {0: facts}})) == "CPU"


def context(local_rank=0, parameters="CPU", scratch=None, master=""):
    steps = []
    launch = SimpleNamespace(rank=local_rank, local_rank=local_rank)
    return SimpleNamespace(
        launch=launch,
        master=master,
        parameters=parameters,
        step=steps.append,
        scratch={} if scratch is None else scratch,
    )


def test_what_has_grown_between_the_two_looks_is_published(sysfs, monkeypatch):
    monkeypatch.setattr(counters, "SYSFS", sysfs)
    here = context()
    before = counters.stage(Options()).measure(here)
    assert before == {"counters": 6, "not_readable": ""}
    (sysfs / "class/infiniband/mlx5_0/ports/1/counters/link_downed").write_text("5\n")
    after = counters.recheck(Options()).measure(here)
    assert after["grown"] == {"mlx5_0/1 link_downed": 3}
    assert after["seconds"] >= 0


SNMP = """Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm RtoMax MaxConn InSegs OutSegs RetransSegs
Tcp: 1 120000 -1 {sent} {sent} {repeated}
"""


def test_what_tcp_repeats_between_nodes_is_read(sysfs, tmp_path, monkeypatch):
    snmp = tmp_path / "snmp"
    snmp.write_text(SNMP.format(sent=1000, repeated=3))
    monkeypatch.setattr(counters.of_tcp, "__defaults__", (snmp,))
    monkeypatch.setattr(counters, "SYSFS", sysfs)
    here = context(master="10.0.0.1")
    counters.stage(Options()).measure(here)
    snmp.write_text(SNMP.format(sent=3000, repeated=103))
    after = counters.recheck(Options()).measure(here)
    assert after["grown"] == {"TCP segments": 2000, "TCP retransmits": 100}
    assert counters.stage(Options()).measure(context())["counters"] == 6  # without TCP's
    for odd in ("many", "--5", "\u00b2"):
        snmp.write_text(f"Tcp: OutSegs\nTcp: {odd}\n")
        assert counters.of_tcp(snmp) == {}


def test_tcp_of_this_host_has_sent_something():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
    assert counters.of_tcp()["TCP segments"] > 0


@pytest.mark.parametrize(
    ("sent", "repeated", "is_odd"),
    [(2000, 100, True), (100, 21, True), (100, 20, False), (100_000, 900, False)],
)
def test_a_node_whose_tcp_repeats_much_is_suspicious(sent, repeated, is_odd):
    found = judge({4: {"TCP segments": sent, "TCP retransmits": repeated}})
    assert [(one.cause, one.who.kind, one.who.host) for one in found] == (
        [("tcp-retransmits", "node", "node1")] * is_odd
    )


def test_one_rank_of_a_node_reads_what_is_the_nodes(sysfs, monkeypatch):
    monkeypatch.setattr(counters, "SYSFS", sysfs)
    assert counters.stage(Options()).measure(context(local_rank=1))["counters"] == 0


def test_a_gpu_that_nvml_does_not_tell_of_is_not_readable(sysfs, monkeypatch):
    monkeypatch.setattr(counters, "SYSFS", sysfs)

    def fails(uuid):
        raise OddrankError("no NVML")

    gpu = {
        "name": "NVIDIA H200", "uuid": "GPU-ab", "pci_bus_id": "0000:9B:00.0",
        "compute_capability": (9, 0), "multicast": True,
    }  # fmt: skip
    monkeypatch.setattr(_native, "core", lambda: SimpleNamespace(gpu_counters=fails))
    monkeypatch.setattr(_native, "cuda", lambda: SimpleNamespace(devices=lambda: [gpu]))
    monkeypatch.setattr(_native, "cuda_part", lambda: SimpleNamespace(module=True))
    monkeypatch.setattr(counters.placement, "gpu_index", lambda launch: 0)
    found = counters.stage(Options()).measure(context(local_rank=1, parameters="GPU"))
    assert found == {"counters": 0, "not_readable": "no NVML"}


@pytest.mark.needs("torch")
def test_a_port_that_goes_down_meanwhile_is_its_nodes_in_a_real_job():
    inject = (
        "set:rank=2,stage=counters,name=counters,value=1;"
        'set:rank=2,stage=counters_recheck,name=grown,value={"mlx5_0/1 link_downed": 2}'
    )
    verdict = job(4, 2, inject=inject, command=("selftest", "--only", "counters"), deadline=60)
    assert verdict.names(rank=(2, 3), stage="counters_recheck"), str(verdict)
    assert verdict.causes == {"errors-counted"}
    assert verdict.gone()
