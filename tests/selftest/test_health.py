"""Judges GPU health and settings from made-up reports of NVML and the kernel."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

from made_up import run_by_rank
from oddrank import OddrankError, _native
from oddrank.control.stages import RunState, Skip
from oddrank.selftest import Options
from oddrank.selftest.stages import health
from selftest.said import check, takes_one_pass

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


def run(world=8, per_node=4, changed=(), like=None):
    """Returns a healthy run, but for the ranks `changed`: like `like`, or each by its own."""
    own = changed if isinstance(changed, dict) else dict.fromkeys(changed, like)
    results = {rank: told(rank, **own.get(rank, {})) for rank in range(world)}
    made = run_by_rank({"health": results}, ranks=world, on_node=per_node)
    made.device = "GPU"
    for rank, state in made.states.items():
        made.states[rank] = replace(state, pid=100 + rank)
    return made


def judge(*arguments, **more):
    return health.stage(Options()).conclude(run(*arguments, **more))


def on(rank, world=8, **changes):
    """Returns the findings if one rank's GPU tells something else."""
    return judge(world, changed={rank: changes})


def reads(rank, world=8, **readings):
    return on(rank, world, readings=readings)


def read_by(ranks, world=8, per_node=4, **readings):
    return judge(world, per_node, ranks, {"readings": readings})


def unreadable():
    state = run(4)
    for rank in (0, 1, 3):
        state.results["health"][rank] = {"unknown": "no NVML, the NVIDIA driver's library: none"}
    return health.stage(Options()).conclude(state)


SWITCH = {"sxid": {"0000:c3:00.0": {"24007": 2}}}
SHARED, MPS = {"processes": [8, 9]}, {"mps_clients": [7]}
LOW_POWER = {"power_cap_mW": 500_000}
OTHER, IN_USE = "suspicious other-setting: ", "suspicious gpu-shared: "
NO_MAJORITY, PENDING = "unknown no-majority: nobody", "suspicious remap-pending: "
SAID = {
    "broken remap-failed: 0": {"remap failed": reads(0, remap_failed=2)},
    "broken recovery-needed: 3": {"recovery": reads(3, recovery_action=1)},
    "suspicious uncorrected-ecc: 0": {"uncorrected": reads(0, ecc_uncorrected=2)},
    f"{PENDING}0": {
        "remap pending": reads(0, remap_pending=2),
        "retirement pending": reads(0, retirement_pending=2),
    },
    f"{PENDING}3": {"both of these": reads(3, remap_pending=1, retirement_pending=1)},
    "broken gpu-lost: 2": {
        "lost": on(2, lost="GPU is lost", readings={"pcie_width": 8, "ecc_uncorrected": 5})
    },
    "suspicious throttled: 1": {"throttled": reads(1, throttle=0x20)},
    "suspicious hardware-slowdown: 1": {"slowed down": reads(1, throttle=0x28)},
    "suspicious xid: 5": {"Xid": on(5, xid={"79": 1, "31": 4})},
    "suspicious sxid: node 4-7": {"SXid": judge(changed=range(4, 8), like=SWITCH)},
    f"{OTHER}6": {"link": reads(6, pcie=4, pcie_width=8)},
    NO_MAJORITY: {"of two": reads(1, 2, pcie_width=8), "half": read_by(range(4), ecc=0)},
    f"{OTHER}0-2": {"power cap of several": read_by(range(3), 12, **LOW_POWER)},
    f"{OTHER}node 0-3": {"power cap of a node": read_by(range(4), 12, **LOW_POWER)},
    "unknown health-not-readable: nobody": {"no NVML": unreadable()},
    f"{IN_USE}2": {"strangers": on(2, processes=[102, 9998, 9999])},
    "unknown gpu-shared: nobody": {
        "strangers on most": judge(changed={**dict.fromkeys(range(4), SHARED), 6: MPS})
    },
    f"{IN_USE}1": {"MPS": on(1, **MPS)},
}
WIDTHS = {1: {"readings": {"pcie_width": 8}}, 2: {"readings": {"pcie_width": 4}}}
ALONE = {
    "broken remap-failed: 0": "remap_failed", "broken recovery-needed: 0": "recovery_action",
    "suspicious uncorrected-ecc: 0": "ecc_uncorrected", f"{PENDING}0": "remap_pending",
}  # fmt: skip
UNUSUAL = {
    "pcie_width": 8, "pcie": 4, "power_cap_mW": 500_000, "max_clock_sm_MHz": 1500,
    "max_clock_memory_MHz": 2619, "ecc": 0, "mig": 1,
}  # fmt: skip
OTHER_GPU = {"gpu": "NVIDIA A100", "readings": {"pcie": 4, "power_cap_mW": 400_000}}
NOT_READABLE = "not readable: Operation not permitted"
OTHERS = {
    **{said: {f"alone, {name}": reads(0, 1, **{name: 2})} for said, name in ALONE.items()},
    "suspicious hardware-slowdown: 1": {
        f"throttle {bits:#x}": reads(1, throttle=bits) for bits in (0x08, 0x40, 0x80)
    },
    f"{OTHER}6": {name: reads(6, **{name: value}) for name, value in UNUSUAL.items()},
    f"{OTHER}5": {"another rank's power cap": read_by((5,), 12, **LOW_POWER)},
    NO_MAJORITY: {
        "half of four": read_by((0, 1), 4, ecc=0),
        # A big node does not outvote a small one.
        "small node": read_by((8, 9, 10), 11, 8, **LOW_POWER),
    },
    f"{OTHER}node 8-11": {"last of three nodes": read_by(range(8, 12), 12, **LOW_POWER)},
    f"{OTHER}1, 2": {"two values": judge(changed=WIDTHS)},
    f"{IN_USE}2": {
        "a stranger": on(2, processes=[102, 9999]),
        "another node's rank": on(2, processes=[102, 104]),
        # In a container the rank itself is one of the processes that it does not know.
        "two in a container": on(2, processes=[77001, 77002]),
    },
    f"{IN_USE}0, 1, 2, 3": {"MPS on half": judge(changed=range(4), like=MPS)},
    f"{IN_USE}0": {"MPS on the only one": on(0, 1, **MPS)},
    "": {
        "eight": judge(), "one": judge(1), "clock": reads(6, clock_sm_MHz=1980),
        **{f"throttle of {b:#x}": reads(1, throttle=b) for b in (0x1, 0x2, 0x4, 0x10, 0x100)},
        "Xids of programs": on(5, xid={"13": 9, "31": 4, "43": 1, "63": 1, "94": 1}),
        "no kernel log": on(5, xid=NOT_READABLE, sxid=NOT_READABLE),
        "temperature": reads(6, temperature_C=70), "link not under load": reads(6, pcie=None),
        "another kind of GPU": judge(changed=range(4, 8), like=OTHER_GPU),
        "it does not tell": reads(6, ecc=None, power_cap_mW=None),
        "contexts of the node's ranks": on(2, processes=[102, 100, 101, 103]),
        "one in a container": on(2, processes=[77001]), "no process": on(2, processes=[]),
        "processes not told": on(2, processes=None), "profiled": read_by(range(8), profiled=1),
    },
}  # fmt: skip


def test_a_gpu_that_is_not_well_or_unlike_its_peers_is_named(golden):
    check(SAID, golden)
    check(OTHERS)


def test_ten_thousand_gpus_are_judged_in_ten_times_the_steps_of_a_thousand():
    def judged(ranks):
        (found,) = judge(ranks, 8, {77: {"readings": {"pcie_width": 8}}})
        assert found.who.ranks == (77,)

    takes_one_pass(judged)


def test_ranks_on_the_cpu_have_no_gpu_to_ask():
    facts = {"gpus": 0, "local_world": 1, "gpu_id": None, "cuda_part": ""}
    plan = health.stage(Options()).plan(RunState(1, {}, {"environment": {0: facts}}))
    assert plan == Skip("the ranks are tested on the CPU")


def measured(monkeypatch, answers, transfers=lambda *_, seconds: None):
    """Returns what a rank tells if NVML gives these answers, one after each transfer."""
    said, steps = iter(answers), []

    def gpu_health(uuid):
        assert uuid == "ab-12"
        answer = next(said)
        if isinstance(answer, Exception):
            raise answer
        return {
            "gpu": "NVIDIA H200", "slice": False, "lost": "", "unreadable": {"mig": "x" * 1000},
            "processes": None, "mps_clients": None, "readings": dict(answer),
        }  # fmt: skip

    gpu = SimpleNamespace(index=0, uuid="GPU-ab-12", pci="0000:9b:00.0", name="NVIDIA H200")
    cuda = SimpleNamespace(set_rank=int, time_transfers=transfers)
    monkeypatch.setattr(_native, "cuda", lambda: cuda)
    monkeypatch.setattr(health.nvml, "gpu_health", gpu_health)
    monkeypatch.setattr(health.placement, "of_rank", lambda launch: gpu)
    monkeypatch.setattr(health.gpus, "xids", lambda pci: {})
    monkeypatch.setattr(health.gpus, "sxids", lambda: {})
    context = SimpleNamespace(launch=SimpleNamespace(rank=3), step=steps.append, parameters="GPU")
    result = health.stage(Options()).measure(context)
    assert steps, "it says what it does before it can hang"
    return result


def test_the_link_is_read_under_load_and_a_slowdown_must_last(monkeypatch):
    transfers = []
    answers = [{"pcie": 1, "throttle": 8}, {"pcie": 5, "throttle": 9}, {"pcie": 4, "throttle": 1}]
    result = measured(monkeypatch, answers, lambda *given, seconds: transfers.append(given))
    assert result["readings"] == {"pcie": 5, "throttle": 0}
    assert (len(transfers), len(result["unreadable"]["mig"])) == (3, 100)


def test_a_gpu_that_cuda_or_nvml_can_not_ask_says_what_it_can(monkeypatch):
    fails = Mock(side_effect=OddrankError("no such device"))
    answers = [{"pcie": 1, "pcie_width": 16, "throttle": 8}] * 3
    result = measured(monkeypatch, answers, fails)
    assert result["readings"] == {"pcie_width": 16, "throttle": 8}  # no link of an idle GPU
    result = measured(monkeypatch, [OddrankError("no NVML: nothing there")])
    assert result == {"unknown": "no NVML: nothing there", "pci": "0000:9b:00.0"}
