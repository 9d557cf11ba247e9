"""What NVML tells of a GPU's health and errors: by a library that says what the test wants."""

import pytest

from nvml import fake_nvml
from oddrank.machine import nvml

pytestmark = pytest.mark.xdist_group("nvml")  # the fakes are built once

# Field numbers of nvml.h.
ECC_ON, CORRECTED, UNCORRECTED, REMAP_PENDING, REMAP_FAILED, ACTION = 1, 3, 4, 144, 145, 230


def health(library, uuid="fake", **fake):
    return fake_nvml.ask("gpu_health", library, uuid, **fake)


def counters(library, **fake):
    return fake_nvml.ask("gpu_counters", library, "fake", **fake)


def fields(**by_name):
    return {f"field_{globals()[name.upper()]}": value for name, value in by_name.items()}


def test_what_can_be_read_is_a_number_and_what_cannot_has_a_reason(fakes):
    told = health(
        fakes["new"],
        **fields(ecc_on=1, corrected=12, uncorrected=0, remap_pending=1, remap_failed=0),
        nvmlDeviceGetEnforcedPowerLimit=700000, nvmlDeviceGetMaxClockInfo_1=1980,
        nvmlDeviceGetCurrPcieLinkGeneration=5, nvmlDeviceGetPersistenceMode="e4",
    )  # fmt: skip
    assert told["gpu"] == "NVIDIA H200"
    assert not told["slice"]
    expected = {
        "ecc": 1, "ecc_corrected": 12, "ecc_uncorrected": 0, "remap_pending": 1, "remap_failed": 0,
        "power_cap_mW": 700000, "max_clock_sm_MHz": 1980, "pcie": 5, "pcie_max": 5,
        "pcie_width": 16,
    }  # fmt: skip
    assert told["readings"] == expected
    assert told["unreadable"]["persistence"] == "a fake error"
    assert "recovery_action" in told["unreadable"]
    assert told["lost"] == ""


def test_what_drivers_say_in_several_ways_is_one_reading(fakes):
    assert health(fakes["new"], **fields(corrected=1 << 40))["readings"]["ecc_corrected"] == 1 << 40
    # Throttle reasons and processes have other names in old drivers.
    for library in fakes.values():
        told = health(library, throttle=0x48, processes="77 1234")
        assert (told["readings"]["throttle"], told["processes"]) == (0x48, [77, 1234])
    # Processes that may not be seen are not none at all.
    assert health(fakes["new"])["processes"] is None
    told = health(fakes["new"], processes="")
    assert (told["processes"], told["mps_clients"]) == ([], None)  # no such function
    # A slice has its profile in its name, and the health of its GPU.
    told = health(fakes["new"], SLICED=1, **fields(uncorrected=3), nvmlDeviceGetMigMode=1)
    assert (told["gpu"], told["slice"]) == ("NVIDIA H200 MIG 1g.18gb", True)
    assert (told["readings"]["ecc_uncorrected"], told["readings"]["mig"]) == (3, 1)


def test_a_gpu_that_is_gone_is_lost_and_what_can_not_be_read_keeps_its_error(fakes, golden):
    for how in ({"HANDLE": 15}, {"HANDLE": 16}, {"field_4": "e15"}):
        assert health(fakes["new"], **how)["lost"] == "a fake error", how
    told = health(fakes["new"], **fields(corrected="e999", uncorrected=0))
    assert told["unreadable"]["ecc_corrected"] == "Unknown Error"
    assert (told["readings"]["ecc_uncorrected"], told["lost"]) == (0, "")
    said = [health("libnothing.so").partition(": libnothing")[0], health(fakes["new"], INIT=9)]
    golden("\n".join([*said, health(fakes["new"], uuid="other")]))


def test_counters_are_the_gpus_and_those_of_each_link_that_is_up(fakes):
    told = counters(
        fakes["new"], LINKS=3, GAP=1, field_94=5, field_270=10**12, link_0_0=7, link_0_1=1,
        link_2_2=900, field_214_2=4,
    )  # fmt: skip
    assert told["gpu"] == {"pcie_replay": 5, "hardware_thermal_ns": 10**12}
    assert told["links"] == {
        "0": {"replay": 7, "recovery": 1}, "2": {"crc_flit": 900, "recovery_failed": 4},
    }  # fmt: skip
    told = counters(fakes["new"], LINKS=2, DOWN=1, link_0_0=0, link_1_0=0)
    assert list(told["links"]) == ["0"]


def at_odds(told):
    """Returns the readings of a real GPU that can't be true. Unreadable ones are no reading: in a
    virtual machine that may be most of them."""
    wrong = {"lost": told["lost"]} if told["lost"] else {}
    one_of = (1, 2, 4, 8, 16, 32)
    readings = told["readings"]
    possible = {
        "pcie": lambda value: 1 <= value <= readings.get("pcie_max", value),
        "pcie_width": lambda value: value in one_of,
        "power_cap_mW": lambda value: 10_000 < value < 10_000_000,
        "clock_sm_MHz": lambda value: 0 < value <= readings.get("max_clock_sm_MHz", value),
        "temperature_C": lambda value: 0 < value < 110,
        "throttle": lambda value: value >= 0,
    }
    for name, fits in possible.items():
        if name in readings:
            wrong |= {} if fits(readings[name]) else {name: readings[name]}
        elif not told["unreadable"].get(name):
            wrong[name] = "neither read nor unreadable"
    return wrong


def test_what_a_virtual_machine_hides_is_not_at_odds_but_what_cannot_be_is(fakes):
    hidden = {name: "e4" for name in ("nvmlDeviceGetCurrPcieLinkGeneration", "throttle")}
    told = health(fakes["new"], **hidden)
    assert {"pcie", "throttle"} <= set(told["unreadable"])
    assert at_odds(told) == {}
    assert at_odds(health(fakes["new"], nvmlDeviceGetEnforcedPowerLimit=1)) == {"power_cap_mW": 1}
    assert at_odds(health(fakes["new"], HANDLE=15))["lost"] == "a fake error"


@pytest.mark.gpu
def test_a_real_driver_tells_the_health_of_every_gpu():
    torch = pytest.importorskip("torch")
    for device in range(torch.cuda.device_count()):
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        told = nvml.gpu_health(uuid)
        assert told["gpu"]
        assert at_odds(told) == {}
        again = nvml.gpu_counters(uuid)
        assert all(count >= 0 for count in again["gpu"].values())
