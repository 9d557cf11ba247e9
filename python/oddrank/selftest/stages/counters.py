"""Error counters of links and devices before all other stages: the later look needs a first one."""

import time
from typing import Any

from oddrank import _native
from oddrank.bench.place import GPU, choose, gpu_index
from oddrank.control.stages import Context, Rounds, Stage
from oddrank.errors import OddrankError
from oddrank.selftest import counters
from oddrank.selftest.choice import Options

# What this stage leaves in its rank.
KEPT = "counters"
_MOST_TEXT = 100


def plan(rounds: Rounds) -> str:
    """What the ranks are tested on, whether or not they have what a test of it needs."""
    return choose(rounds.of("environment").values())


def read(context: Context) -> tuple[counters.Read, str]:
    """What this rank reads, and why not of its GPU. The node's are read by one rank of it."""
    sysfs = counters.SYSFS
    found: counters.Read = {}
    why = ""
    if context.parameters == GPU and _native.cuda_part().module:
        context.step("read the error counters of the GPU")
        try:
            gpu = _native.cuda().devices()[gpu_index(context.launch)]
            found |= counters.of_gpu(gpu["uuid"].partition("-")[2])
            found |= counters.of_pci(gpu["pci_bus_id"], sysfs, "GPU")
        except OddrankError as error:
            why = str(error)[:_MOST_TEXT]
    if context.launch.local_rank == 0:
        context.step("read the error counters of the network devices")
        found |= counters.of_ports(sysfs)
    return found, why


def _measure(context: Context) -> dict[str, Any]:
    found, why = read(context)
    context.kept[KEPT] = (time.monotonic(), found)
    return {"counters": len(found), "not_readable": why}


def stage(options: Options) -> Stage:
    return Stage("counters", 60, _measure, plan=plan)
