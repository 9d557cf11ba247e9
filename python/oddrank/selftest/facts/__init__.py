"""The facts that ranks are compared by: how one is read, and what a difference in it means."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from oddrank.control.stages import RunState
from oddrank.launch import Launch
from oddrank.machine.device import GpuFacts

# Neither healthy nor a fault: shown, never compared.
NOT_READABLE = "not readable"
_MOST_TEXT = 200
_MOST_ENTRIES = 128


@dataclass(frozen=True)
class Here:
    """The sources of facts, besides the kernel's files.

    master: rank 0's address, "" if all ranks share a host. gpus: this rank's machine.device.facts.
    """

    launch: Launch
    torch: Any
    master: str
    gpus: GpuFacts


class Facts(GpuFacts, total=False):
    """A rank's facts that code reads by name, beside all others of the table.

    Each may also be NOT_READABLE.
    """

    visible_gpus: str | None
    gpu_uuid: str | None
    gpu_bus: str | None
    gpu_numa: int | str | None
    numa: dict[str, str] | str
    nofile: str
    shm_free: int | str
    shm_writable: bool | str
    nccl_interfaces: str | None


@dataclass(frozen=True)
class Fact:
    """A row of the table.

    read: returns a text, a number, None (there is none) or a flat mapping of these, whose entries
    are compared one by one. differs: what a difference means: it breaks jobs, is odd, or is fine
    and only shown. near: numbers within this share of the median are alike. breaking, free: a
    mapping's entries that break jobs, and those that are only shown.
    """

    name: str
    read: Callable[[Here], Any]
    differs: Literal["breaks", "odd", "fine"]
    near: float = 0.0
    breaking: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()

    def value(self, here: Here) -> Any:
        """Reads the fact. An error must not cost the rank its other facts."""
        try:
            return _cut(self.read(here))
        except FileNotFoundError:
            return None
        except Exception:
            return NOT_READABLE

    def breaks(self, entry: str = "") -> bool:
        return self.differs == "breaks" or entry in self.breaking


def _cut(value: Any) -> Any:
    """Limits the lengths of texts and mappings: strangers may have written them."""
    if isinstance(value, str):
        return value[:_MOST_TEXT]
    if isinstance(value, Mapping):
        return {str(key): _cut(value[key]) for key in sorted(value)[:_MOST_ENTRIES]}
    return value


def results(run: RunState) -> Mapping[int, Facts]:
    """Returns the results of stage environment."""
    return run.of("environment")
