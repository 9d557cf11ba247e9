"""Judges GPU health and settings from made-up reports of NVML and the kernel."""

from types import SimpleNamespace

import pytest

from oddrank import OddrankError, _native
from oddrank.control.root import RankState
from oddrank.control.stages import RunState, Skip
from oddrank.selftest import Options, gpus
from oddrank.selftest.stages import health

READINGS = {
    "ecc": 1, "ecc_corrected": 4, "ecc_uncorrected": 0, "remap_pending": 0, "remap_failed": 0,
    "retirement_pending": 0, "recovery_action": 0, "throttle": 1, "pcie": 5, "pcie_width": 16,
    "power_cap_mW": 700_000, "max_clock_sm_MHz": 1980, "max_clock_memory_MHz": 3201, "mig": 0,
    "temperature_C": 31, "clock_sm_MHz": 345, "profiled": 0,
}  # fmt: skip


def told(rank, **changes):
    readings = {**READINGS, **changes.pop("readings", {})}
    return {
        "gpu": "NVIDIA H200", "slice": False, "lost": "", "unreadable": {}, "pci": "0000:9b:00.0",
        "readings": {name: value for name, value in readings.items() if value is not None},
        "processes": [100 + rank], "mps_clients": [], "pid": 100 + rank, "xid": {}, **changes,
    }  # fmt: skip


def run(world=8, per_node=4, **ranks):
    """Returns a healthy run, except for the changes in `ranks`: r3={...}."""
    states = {
        r: RankState(
            r, host=f"node{r // per_node}", node=r // per_node, local_rank=r % per_node,
            pid=100 + r, contact="ok",
        )
        for r in range(world)
    }  # fmt: skip
    results = {r: told(r, **ranks.get(f"r{r}", {})) for r in range(world)}
    return RunState(world, states, {"health": results}, device="GPU")


def judge(*arguments, **ranks):
    return health.stage(Options()).conclude(run(*arguments, **ranks))


def judged(*arguments, **ranks):
    """Returns (condition, cause, ranks) of each finding."""
    return [(f.condition, f.cause, f.who.ranks) for f in judge(*arguments, **ranks)]


def test_healthy_gpus_have_no_finding():
    assert judged() == []
    assert judged(1) == []


@pytest.mark.parametrize(
    ("reading", "condition", "cause"),
    [
        ("remap_failed", "broken", "remap-failed"),
        ("recovery_action", "broken", "recovery-needed"),
        ("ecc_uncorrected", "suspicious", "uncorrected-ecc"),
        ("remap_pending", "suspicious", "remap-pending"),
        ("retirement_pending", "suspicious", "remap-pending"),
    ],
)
def test_a_fault_of_its_own_is_named_without_any_peer(reading, condition, cause):
    for world in (1, 2, 8):
        assert judged(world, r0={"readings": {reading: 2}}) == [(condition, cause, (0,))]


def test_a_finding_says_what_to_type_for_that_gpu():
    (finding,) = judge(r3={"readings": {"recovery_action": 1}})
    assert finding.who.device == "GPU 3"
    assert "needs a reset of the GPU" in finding.what
    assert finding.next[0] == "nvidia-smi -i 0000:9b:00.0 -q"


def test_a_lost_gpu_is_broken_and_not_compared():
    lost = {"lost": "GPU is lost", "readings": {"pcie_width": 8, "ecc_uncorrected": 5}}
    assert judged(r2=lost) == [("broken", "gpu-lost", (2,))]


def test_rows_that_both_readings_tell_of_are_one_finding():
    both = {"readings": {"remap_pending": 1, "retirement_pending": 1}}
    assert judged(r3=both) == [("suspicious", "remap-pending", (3,))]


@pytest.mark.parametrize(
    ("bits", "cause"),
    [
        (0x20, "throttled"), (0x08, "hardware-slowdown"), (0x40, "hardware-slowdown"),
        (0x80, "hardware-slowdown"), (0x28, "hardware-slowdown"),
    ],
)  # fmt: skip
def test_a_gpu_that_slows_itself_down_with_nothing_to_do_is_suspicious(bits, cause):
    assert judged(r1={"readings": {"throttle": bits}}) == [("suspicious", cause, (1,))]


@pytest.mark.parametrize("bits", [0x1, 0x2, 0x4, 0x10, 0x100])
def test_idling_and_a_power_cap_are_no_fault(bits):
    assert judged(r1={"readings": {"throttle": bits}}) == []


def test_xids_of_hardware_are_named_and_those_of_programs_are_not():
    assert judged(r5={"xid": {"79": 1, "31": 4}}) == [("suspicious", "xid", (5,))]
    assert judged(r5={"xid": {"13": 9, "31": 4, "43": 1, "63": 1, "94": 1}}) == []


def test_a_log_that_is_not_readable_says_nothing():
    why = "not readable: Operation not permitted"
    assert judged(r5={"xid": why, "sxid": why}) == []


def test_fatal_errors_of_a_switch_are_its_nodes_and_told_once():
    logged = {"sxid": {"0000:c3:00.0": {"24007": 2}}}
    (finding,) = judge(8, 4, **{f"r{r}": logged for r in range(4, 8)})
    assert (finding.condition, finding.cause) == ("suspicious", "sxid")
    assert (finding.who.kind, finding.who.ranks) == ("node", (4, 5, 6, 7))
    assert "of its NVSwitches: 0000:c3:00.0: SXid 24007 x2" in finding.what


@pytest.mark.parametrize(
    "changed",
    [
        {"pcie_width": 8}, {"pcie": 4}, {"power_cap_mW": 500_000}, {"max_clock_sm_MHz": 1500},
        {"max_clock_memory_MHz": 2619}, {"ecc": 0}, {"mig": 1},
    ],
)  # fmt: skip
def test_a_gpu_unlike_its_peers_is_suspicious(changed):
    assert judged(r6={"readings": changed}) == [("suspicious", "other-gpu-setting", (6,))]


def test_a_link_is_told_whole_with_that_of_its_peers():
    (finding,) = judge(r6={"readings": {"pcie": 4, "pcie_width": 8}})
    assert "PCIe gen4 x8, 7 others of NVIDIA H200 have gen5 x16" in finding.what
    assert finding.confidence.level == "high"


@pytest.mark.parametrize("changed", [{"clock_sm_MHz": 1980}, {"temperature_C": 70}])
def test_what_changes_with_work_is_not_compared(changed):
    assert judged(r6={"readings": changed}) == []


def test_gpus_of_other_kinds_are_no_peers():
    other = {"gpu": "NVIDIA A100", "readings": {"pcie": 4, "power_cap_mW": 400_000}}
    assert judged(8, 4, r4=other, r5=other, r6=other, r7=other) == []


def test_what_a_gpu_does_not_tell_is_no_difference():
    assert judged(r6={"readings": {"ecc": None, "power_cap_mW": None}}) == []


def test_two_gpus_that_differ_name_nobody():
    (finding,) = judge(2, r1={"readings": {"pcie_width": 8}})
    assert (finding.condition, finding.who.ranks) == ("unknown", ())
    assert finding.confidence.level == "low"


def test_a_link_that_was_not_seen_under_load_is_no_difference():
    assert judged(r6={"readings": {"pcie": None}}) == []


def test_several_ranks_are_suspicious_and_a_node_is():
    changed = {"readings": {"power_cap_mW": 500_000}}
    (finding,) = judge(12, 4, r0=changed, r1=changed, r2=changed)
    assert "ranks 0-2 (node0) are suspicious: " in finding.what
    (finding,) = judge(12, 4, **{f"r{r}": changed for r in range(4)})
    assert "node node0 (ranks 0-3) is suspicious: " in finding.what
    (finding,) = judge(12, 4, r5=changed)
    assert "rank 5 (node1, GPU 1) is suspicious: " in finding.what


def test_half_of_the_gpus_are_no_majority():
    four = {f"r{r}": {"readings": {"ecc": 0}} for r in range(4)}
    assert judged(**four) == [("unknown", "no-gpu-majority", ())]
    two = {f"r{r}": {"readings": {"ecc": 0}} for r in range(2)}
    assert judged(4, 4, **two) == [("unknown", "no-gpu-majority", ())]


def test_a_big_node_does_not_outvote_a_small_one():
    small = {f"r{r}": {"readings": {"power_cap_mW": 500_000}} for r in (8, 9, 10)}
    assert judged(11, 8, **small) == [("unknown", "no-gpu-majority", ())]


def test_of_three_nodes_the_one_that_differs_is_named_as_a_node():
    last = {f"r{r}": {"readings": {"power_cap_mW": 500_000}} for r in range(8, 12)}
    (finding,) = judge(12, 4, **last)
    assert (finding.who.kind, finding.who.ranks) == ("node", (8, 9, 10, 11))


def test_each_value_is_a_finding_of_its_own():
    found = judged(r1={"readings": {"pcie_width": 8}}, r2={"readings": {"pcie_width": 4}})
    assert sorted(ranks for _, _, ranks in found) == [(1,), (2,)]


def test_nvml_that_is_not_there_blames_nobody_and_is_no_health():
    missing = {"unknown": "no NVML, the NVIDIA driver's library: none"}
    state = run(4)
    for rank in (0, 1, 3):
        state.results["health"][rank] = missing
    (finding,) = health.stage(Options()).conclude(state)
    assert (finding.condition, finding.cause) == ("unknown", "health-not-readable")
    assert finding.who.ranks == ()
    assert "ranks 0-1, 3" in finding.what


def test_a_gpu_with_strangers_on_it_is_shared():
    assert judged(r2={"processes": [102, 9999]}) == [("suspicious", "gpu-shared", (2,))]
    (finding,) = judge(r2={"processes": [102, 9998, 9999]})
    assert "(2 other processes)" in finding.what


def test_contexts_of_the_jobs_own_ranks_are_no_strangers():
    assert judged(r2={"processes": [102, 100, 101, 103]}) == []
    assert judged(r2={"processes": [102, 104]}) == [("suspicious", "gpu-shared", (2,))]


def test_in_a_container_the_rank_itself_is_one_of_the_processes_it_does_not_know():
    assert judged(r2={"processes": [77001]}) == []
    assert judged(r2={"processes": [77001, 77002]}) == [("suspicious", "gpu-shared", (2,))]
    assert judged(r2={"processes": []}) == []
    assert judged(r2={"processes": None}) == []


def test_what_is_on_most_gpus_is_told_once_and_of_nobody():
    strangers, mps = {"processes": [8, 9]}, {"mps_clients": [7]}
    (finding,) = judge(**{f"r{r}": strangers for r in range(4)}, r6=mps)
    assert (finding.condition, finding.cause, finding.who.ranks) == ("unknown", "gpu-shared", ())
    assert "of ranks 0-3, 6 are shared (1 other process, MPS shares it)" in finding.what
    assert [one.text for one in finding.evidence] == [
        "1 other process: ranks 0-3",
        "MPS shares it: rank 6",
    ]


def test_half_of_the_gpus_or_the_only_one_are_named_with_who_shares_them():
    mps = {"mps_clients": [7]}
    found = judged(**{f"r{r}": mps for r in range(4)})
    assert found == [("suspicious", "gpu-shared", (r,)) for r in range(4)]
    assert judged(1, r0=mps) == [("suspicious", "gpu-shared", (0,))]


def test_mps_shares_a_gpu_as_well():
    assert gpus.others(run(r1={"mps_clients": [101]})) == {1: "MPS shares it"}


def test_a_profiler_is_known_but_shares_no_gpu():
    profiled = {"readings": {"profiled": 1}}
    assert gpus.others(run(r1=profiled)) == {}
    assert gpus.profiled(run(r1=profiled)) == {1}
    assert judged(**{f"r{r}": profiled for r in range(8)}) == []


def test_ten_thousand_gpus_are_judged_in_no_time():
    import time

    state = run(10_000, 8, r77={"readings": {"pcie_width": 8}})
    begin = time.process_time()
    found = health.stage(Options()).conclude(state)
    assert [finding.who.ranks for finding in found] == [(77,)]
    assert time.process_time() - begin < 5


def test_ranks_on_the_cpu_have_no_gpu_to_ask():
    facts = {"gpus": 0, "local_world": 1, "gpu_id": None, "cuda_part": ""}
    plan = health.stage(Options()).plan(RunState(1, {}, {"environment": {0: facts}}))
    assert plan == Skip("the ranks are tested on the CPU")


class FakeCuda:
    """A GPU whose PCIe link speeds up under load."""

    def __init__(self, fails=False):
        self.fails, self.transfers = fails, 0

    def set_rank(self, rank):
        pass

    def devices(self):
        return [
            {"name": "NVIDIA H200", "uuid": "GPU-ab-12", "pci_bus_id": "0000:9B:00.0",
             "compute_capability": (9, 0), "multicast": True}
        ]  # fmt: skip

    def time_transfers(self, *arguments, **options):
        self.transfers += 1
        if self.fails:
            raise OddrankError("no such device")


def measured(monkeypatch, cuda, answers):
    said = iter(answers)

    def gpu_health(uuid):
        assert uuid == "ab-12"
        answer = next(said)
        if isinstance(answer, Exception):
            raise answer
        return {
            "gpu": "NVIDIA H200", "slice": False, "lost": "", "unreadable": {"mig": "x" * 1000},
            "processes": None, "mps_clients": None, "readings": dict(answer),
        }  # fmt: skip

    monkeypatch.setattr(_native, "cuda", lambda: cuda)
    monkeypatch.setattr(_native, "core", lambda: SimpleNamespace(gpu_health=gpu_health))
    monkeypatch.setattr(health.placement, "gpu_index", lambda launch: 0)
    monkeypatch.setattr(health.gpus, "xids", lambda pci: {})
    monkeypatch.setattr(health.gpus, "sxids", lambda: {})
    steps = []
    context = SimpleNamespace(launch=SimpleNamespace(rank=3), step=steps.append, parameters="GPU")
    result = health.stage(Options()).measure(context)
    assert steps, "it says what it does before it can hang"
    return result


def test_the_link_is_read_under_load_and_a_slowdown_must_last(monkeypatch):
    cuda = FakeCuda()
    answers = [{"pcie": 1, "throttle": 8}, {"pcie": 5, "throttle": 9}, {"pcie": 4, "throttle": 1}]
    result = measured(monkeypatch, cuda, answers)
    assert result["readings"] == {"pcie": 5, "throttle": 0}
    assert cuda.transfers == 3
    assert len(result["unreadable"]["mig"]) == 100


def test_a_gpu_that_cuda_cannot_use_is_asked_but_not_for_the_link_of_an_idle_gpu(monkeypatch):
    answers = [{"pcie": 1, "pcie_width": 16, "throttle": 8}] * 3
    result = measured(monkeypatch, FakeCuda(fails=True), answers)
    assert result["readings"] == {"pcie_width": 16, "throttle": 8}


def test_without_nvml_the_measurement_says_why(monkeypatch):
    result = measured(monkeypatch, FakeCuda(), [OddrankError("no NVML: nothing there")])
    assert result == {"unknown": "no NVML: nothing there", "pci": "0000:9b:00.0"}
