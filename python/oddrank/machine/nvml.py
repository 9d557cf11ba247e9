"""One GPU's health, settings, error counters and links, read from NVML, the driver's library.

Needs no CUDA. The declarations are copies of nvml.h (CUDA 12.9): NVML never changes a published
layout. ctypes releases the GIL in each call.
"""

import ctypes
from collections.abc import Mapping
from ctypes import byref, c_int, c_longlong, c_uint, c_ulonglong, c_void_p
from typing import Any

from oddrank.errors import OddrankError

LIBRARY = "libnvidia-ml.so.1"
_SUCCESS, _INVALID_ARGUMENT, _NOT_SUPPORTED, _NOT_FOUND = 0, 2, 3, 6  # nvmlReturn_t
_LOST = (15, 16)  # off the bus, or a reset is required
_MOST_LINKS = 64  # NVML_NVLINK_MAX_LINKS is 18 today
_MOST_PROCESSES = 256
_DOUBLE, _UNSIGNED, _SIGNED = 0, 1, 5  # nvmlValueType_t: where a value lies in the union

# Reading -> the function that returns one unsigned number of a GPU, and its argument, if it has
# one: a clock (1 SM, 2 memory) or a sensor (0 the GPU's).
_NUMBERS: dict[str, tuple[Any, ...]] = {
    "persistence": ("nvmlDeviceGetPersistenceMode",),
    "pcie": ("nvmlDeviceGetCurrPcieLinkGeneration",),
    "pcie_max": ("nvmlDeviceGetMaxPcieLinkGeneration",),
    "pcie_width": ("nvmlDeviceGetCurrPcieLinkWidth",),
    "pcie_width_max": ("nvmlDeviceGetMaxPcieLinkWidth",),
    "power_cap_mW": ("nvmlDeviceGetEnforcedPowerLimit",),
    "power_cap_default_mW": ("nvmlDeviceGetPowerManagementDefaultLimit",),
    "power_mW": ("nvmlDeviceGetPowerUsage",),
    # 1 if a profiler (DCGM) streams the GPU's performance counters.
    "profiled": ("nvmlGpmQueryIfStreamingEnabled",),
    "clock_sm_MHz": ("nvmlDeviceGetClockInfo", 1),
    "clock_memory_MHz": ("nvmlDeviceGetClockInfo", 2),
    "max_clock_sm_MHz": ("nvmlDeviceGetMaxClockInfo", 1),
    "max_clock_memory_MHz": ("nvmlDeviceGetMaxClockInfo", 2),
    "temperature_C": ("nvmlDeviceGetTemperature", 0),
}
# Reading -> NVML_FI_DEV_*. The counts of ECC are since the driver was loaded, or since the GPU was
# made.
_FIELDS = {
    "ecc": 1, "ecc_corrected": 3, "ecc_uncorrected": 4, "ecc_uncorrected_ever": 6,
    "retired_pages_corrected": 29, "retired_pages_uncorrected": 30, "retirement_pending": 31,
    "remapped_rows_corrected": 142, "remapped_rows_uncorrected": 143, "remap_pending": 144,
    "remap_failed": 145, "recovery_action": 230,
}  # fmt: skip
_COUNTERS = {
    "ecc_corrected": 3, "ecc_uncorrected": 4, "pcie_replay": 94, "pcie_fatal": 180,
    "power_cap_ns": 74, "software_thermal_ns": 269, "hardware_thermal_ns": 270,
    "power_brake_ns": 271,
}  # fmt: skip
# Of each link before Blackwell, in the order of nvmlNvLinkErrorCounter_t; newer GPUs have the
# fields below instead.
_LINK_ERRORS = ("replay", "recovery", "crc_flit", "crc_data", "ecc_data")
_LINK_FIELDS = {
    "malformed": 206, "buffer_overrun": 207, "receive_errors": 208, "integrity": 211,
    "discarded": 212, "recovery_failed": 214, "link_recovery": 215, "effective_errors": 219,
}  # fmt: skip
_SPEED_OF_NVLINKS = 90  # NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON


class _Value(ctypes.Union):
    _fields_ = (("real", ctypes.c_double), ("number", c_uint), ("large", c_ulonglong))


class _Field(ctypes.Structure):  # nvmlFieldValue_t
    _fields_ = (
        ("id", c_uint), ("scope", c_uint), ("timestamp", c_longlong), ("latency", c_longlong),
        ("type", c_int), ("result", c_int), ("value", _Value),
    )  # fmt: skip


class _Process(ctypes.Structure):  # nvmlProcessInfo_v2_t
    _fields_ = (
        ("pid", c_uint), ("memory", c_ulonglong), ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    )  # fmt: skip


class _Nvml:
    """NVML, initialized within `with`. OddrankError if the library or the driver is missing."""

    def __init__(self, file: str) -> None:
        try:
            self._library = ctypes.CDLL(file)
        except OSError as error:
            raise OddrankError(
                f"NVML, the library of the NVIDIA driver, cannot be loaded: {error}"
            ) from None

    def __enter__(self) -> "_Nvml":
        self.check(self.call("nvmlInit_v2"), "nvmlInit_v2")
        return self

    def __exit__(self, *error: object) -> None:
        self.call("nvmlShutdown")

    def call(self, name: str, *arguments: Any) -> int:
        """Calls a function; arguments are ctypes'. "Not supported" if this library lacks it."""
        function = getattr(self._library, name, None)
        return _NOT_SUPPORTED if function is None else int(function(*arguments))

    def text_of(self, result: int) -> str:
        function = getattr(self._library, "nvmlErrorString", None)
        if function is None:
            return f"error {result}"
        function.restype = ctypes.c_char_p
        return str(function(result).decode(errors="replace"))

    def check(self, result: int, what: str) -> None:
        if result != _SUCCESS:
            raise OddrankError(f"NVML: {what}: {self.text_of(result)}")

    def device_of(self, uuid: str, device: c_void_p) -> int:
        return self.call("nvmlDeviceGetHandleByUUID", uuid.encode(), byref(device))

    def number(self, device: c_void_p, name: str, *kind: int) -> tuple[int, int]:
        """Returns NVML's result and the number that a function returns."""
        found = c_uint()
        return self.call(name, device, *map(c_uint, kind), byref(found)), found.value

    def field(self, device: c_void_p, number: int, link: int = 0) -> tuple[int, int]:
        """Returns NVML's result and a field's value. link: its number, for a link's field."""
        field = _Field(id=number, scope=link)
        told = self.call("nvmlDeviceGetFieldValues", device, 1, byref(field))
        # The result first: a driver sets no type for a value that it could not read.
        if told != _SUCCESS or field.result != _SUCCESS:
            return told or field.result, 0
        if field.type == _DOUBLE:  # no counter is a float
            return _NOT_SUPPORTED, 0
        narrow = field.type in (_UNSIGNED, _SIGNED)
        return _SUCCESS, field.value.number if narrow else field.value.large

    def link(self, device: c_void_p, link: int) -> tuple[int, bool]:
        """Returns NVML's result and whether a link is up. Numbers of links may have gaps."""
        on = c_int()
        told = self.call("nvmlDeviceGetNvLinkState", device, c_uint(link), byref(on))
        return told, told == _SUCCESS and on.value != 0


class _Asked:
    """NVML's readings of a GPU or a MIG slice, which it finds in different ways.

    whole: the GPU of a slice, which has the errors and clocks. lost: NVML's text if it no longer
    answers. unreadable: NVML's reason for each reading that is missing.
    """

    def __init__(self, nvml: _Nvml, uuid: str) -> None:
        self._nvml, self.device, self.is_slice = nvml, c_void_p(), False
        self.lost, self.unreadable = "", dict[str, str]()
        told = nvml.device_of(f"GPU-{uuid}", self.device)
        if told in (_NOT_FOUND, _INVALID_ARGUMENT):
            as_slice = nvml.device_of(f"MIG-{uuid}", self.device)
            self.is_slice = as_slice == _SUCCESS
            told = as_slice if self.is_slice else told
        if told in _LOST:
            self.lost = nvml.text_of(told)
            return
        nvml.check(told, "nvmlDeviceGetHandleByUUID")
        parent, get = c_void_p(), "nvmlDeviceGetDeviceHandleFromMigDeviceHandle"
        of_slice = self.is_slice and nvml.call(get, self.device, byref(parent)) == _SUCCESS
        self.whole = parent if of_slice else self.device

    def note(self, into: dict[str, int], name: str, told: int, value: int) -> None:
        if told == _SUCCESS:
            into[name] = value
            return
        self.unreadable[name] = self._nvml.text_of(told)
        if told in _LOST:
            self.lost = self._nvml.text_of(told)

    def note_fields(self, into: dict[str, int], fields: Mapping[str, int], link: int = 0) -> None:
        for name, number in fields.items():
            self.note(into, name, *self._nvml.field(self.whole, number, link))


def gpu_health(uuid: str, library: str = LIBRARY) -> dict[str, Any]:
    """Returns a GPU's health and settings. OddrankError if library, driver or GPU is missing.

    uuid: CUDA's, without "GPU-" or "MIG-". gpu: its name; a MIG slice's has its profile. lost: as
    NVML says it; all else is empty then. processes, mps_clients: process ids outside containers;
    None if not readable.
    """
    with _Nvml(library) as nvml:
        asked, readings = _Asked(nvml, uuid), dict[str, int]()
        found = {
            "gpu": "", "slice": asked.is_slice, "lost": asked.lost, "readings": readings,
            "unreadable": asked.unreadable, "processes": None, "mps_clients": None,
        }  # fmt: skip
        if asked.lost:
            return found
        name = ctypes.create_string_buffer(128)  # NVML_DEVICE_NAME_V2_BUFFER_SIZE is 96
        if nvml.call("nvmlDeviceGetName", asked.device, name, c_uint(127)) == _SUCCESS:
            found["gpu"] = name.value.decode(errors="replace")
        for key, (function, *kind) in _NUMBERS.items():
            asked.note(readings, key, *nvml.number(asked.whole, function, *kind))
        asked.note(readings, "throttle", *_throttle(nvml, asked.whole))
        mig, pending = c_uint(), c_uint()
        told = nvml.call("nvmlDeviceGetMigMode", asked.whole, byref(mig), byref(pending))
        asked.note(readings, "mig", told, mig.value)
        asked.note_fields(readings, _FIELDS)
        for key, which in (("processes", "Compute"), ("mps_clients", "MPSCompute")):
            found[key] = _processes(nvml, asked.device, f"nvmlDeviceGet{which}RunningProcesses")
        return {**found, "lost": asked.lost}


def _throttle(nvml: _Nvml, device: c_void_p) -> tuple[int, int]:
    reasons, told = c_ulonglong(), _NOT_SUPPORTED
    for word in ("Event", "Throttle"):  # its name before driver 535
        if told == _NOT_SUPPORTED:
            told = nvml.call(f"nvmlDeviceGetCurrentClocks{word}Reasons", device, byref(reasons))
    return told, reasons.value


def _processes(nvml: _Nvml, device: c_void_p, function: str) -> list[int] | None:
    listed = (_Process * _MOST_PROCESSES)()
    for version in ("_v3", "_v2"):  # _v2 before driver 510
        count = c_uint(_MOST_PROCESSES)
        told = nvml.call(function + version, device, byref(count), listed)
        if told != _NOT_SUPPORTED:
            return [one.pid for one in listed[: count.value]] if told == _SUCCESS else None
    return None


def gpu_counters(uuid: str, library: str = LIBRARY) -> dict[str, Any]:
    """Returns counters that only grow: of the GPU, and of each NVLink that is up, by its number.

    uuid and errors: as gpu_health's. Both are empty for a lost GPU.
    """
    with _Nvml(library) as nvml:
        asked, gpu, links = _Asked(nvml, uuid), dict[str, int](), dict[int, dict[str, int]]()
        if not asked.lost:
            asked.note_fields(gpu, _COUNTERS)
        for link in () if asked.lost else range(_MOST_LINKS):
            if not nvml.link(asked.whole, link)[1]:
                continue
            of_link = links[link] = dict[str, int]()
            for which, name in enumerate(_LINK_ERRORS):
                count, get = c_ulonglong(), "nvmlDeviceGetNvLinkErrorCounter"
                told = nvml.call(get, asked.whole, c_uint(link), c_uint(which), byref(count))
                asked.note(of_link, name, told, count.value)
            asked.note_fields(of_link, _LINK_FIELDS, link)
        return {"gpu": gpu, "links": links}


def gpu_links(uuid: str, library: str = LIBRARY) -> dict[str, Any]:
    """Returns the links of the GPU "GPU-..." to other GPUs and to the host; a MIG slice is no GPU.

    nvlinks: active ones; nvlink_MBps: of each, one way; pcie: the newest generation that GPU and
    host share; pcie_width: lanes in use. 0 if there is none, or the driver does not report it.
    Errors: as gpu_health's.
    """
    with _Nvml(library) as nvml:
        device = c_void_p()
        nvml.check(nvml.device_of(uuid, device), "nvmlDeviceGetHandleByUUID")
        active = 0
        for link in range(_MOST_LINKS):
            told, is_up = nvml.link(device, link)
            if told not in (_NOT_SUPPORTED, _INVALID_ARGUMENT):  # absent
                nvml.check(told, "nvmlDeviceGetNvLinkState")
            active += is_up
        # The current generation falls while a GPU idles; lanes that are missing stay so.
        known = {
            "nvlink_MBps": nvml.field(device, _SPEED_OF_NVLINKS) if active else (_SUCCESS, 0),
            "pcie": nvml.number(device, "nvmlDeviceGetMaxPcieLinkGeneration"),
            "pcie_width": nvml.number(device, "nvmlDeviceGetCurrPcieLinkWidth"),
        }
        numbers = {name: value if told == _SUCCESS else 0 for name, (told, value) in known.items()}
        return {"nvlinks": active, **numbers}
