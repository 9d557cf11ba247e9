"""Allocate memory on every rank's device, write a pattern, read it back."""

from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, TypedDict

from oddrank import _native
from oddrank.control.stages import Context, RunState, Skip, Stage
from oddrank.errors import OddrankError
from oddrank.finding import Evidence, Finding, Row, Who, fold, size_text
from oddrank.launch import Launch
from oddrank.machine.device import BACKENDS, CPU, GPU, choose, free_bytes, gpu_index
from oddrank.selftest import Depth, Options, facts, gpus
from oddrank.selftest.probes import gpu, host

_NAME = "device"
_CPU_BYTES = 64 << 20
_CPU_BYTES_FULL = 512 << 20
_GPU_BYTES = 1 << 30  # on a GPU in a quick test, or if other processes use the GPU, too
_SHARE = 0.25  # share of a rank's free memory that it takes
# The same of a GPU's. Not all: the driver needs some, and other programs may be about to end.
_GPU_SHARE = 0.9
_SMALLEST = 1 << 20
# A GPU's patterns take half a second. After so many seconds no further one begins.
_ENOUGH: dict[Depth, float] = {"quick": 5.0, "normal": 20.0, "full": 200.0}
_PATIENCE = 30.0  # a pattern that has begun must end within this time more


class Result(TypedDict):
    """Result of the memory test. patterns: their number. wrong: None if the memory kept every word,
    else count, bits, and index, expected, got, pass of the first wrong one.

    total: bytes of the GPU's memory; None on the CPU.
    """

    device: str
    bytes: int
    total: int | None
    patterns: int
    wrong: dict[str, Any] | None


class Plan(TypedDict):
    """shared: the ranks that other processes share their GPU with: these need memory, too."""

    device: str
    shared: list[int]


def _plan(run: RunState) -> Plan | Skip:
    here = make_plan(run)
    if isinstance(here, Skip):
        return here
    return {"device": here, "shared": sorted(gpus.others(run))}


def _measure(context: Context[Plan], depth: Depth) -> Result:
    """Verifies memory: with all patterns if full, or on a GPU unless quick (half a second)."""
    here, launch = context.parameters["device"], context.launch
    size = memory_to_verify(
        here, launch, depth, alone=launch.rank not in context.parameters["shared"]
    )
    context.step(f"verify {size_text(size)} of {here} memory")
    thorough = depth == "full" or (here == GPU and depth != "quick")
    result = verify(here, launch, size, thorough=thorough, enough=_ENOUGH[depth])
    context.step("verified")
    return result


def _judge(run: RunState, results: Mapping[int, Result]) -> list[Finding]:
    found = []
    for rank, result in results.items():
        if (wrong := result["wrong"]) is not None:
            bits = fold(bit for bit in range(64) if wrong["bits"] >> bit & 1)
            size, here = size_text(result["bytes"]), result["device"]
            text = f"{wrong['count']} wrong words in {size}, the first at {wrong['index']}:"
            text += f" wrote {wrong['expected']:#018x}, read {wrong['got']:#018x} (pattern"
            text += f" {wrong['pass']}); wrong bits in all of them: {bits}"
            look = "nvidia-smi -q -d ECC,ROW_REMAPPER" if here == GPU else "dmesg -T | grep -i edac"
            seen = Evidence(text, "memory pattern")
            found.append(BAD_MEMORY.found(run.who([rank]), seen, device=here, look=look))
    return found


def tested(run: RunState) -> str:
    """Returns GPU if every rank has one to itself, else CPU."""
    return choose(facts.results(run).values())


def without_part(run: RunState) -> dict[int, str]:
    """Returns rank -> why it lacks the part _cuda, which tests its GPU."""
    every = facts.results(run)
    lacking = {rank: why for rank, one in every.items() if (why := one.get("cuda_part"))}
    return lacking if lacking and tested(run) == GPU else {}


def probes_of(device: str) -> dict[str, ModuleType]:
    """Returns scope -> its probes, for ranks that are tested on `device`."""
    return {"host": host, "gpu": gpu} if device == GPU else {"host": host}


def make_plan(run: RunState) -> str | Skip:
    """Returns the tested device; a Skip if a rank can't test its GPU."""
    lacking = without_part(run)
    return Skip(f"{Who('rank', tuple(lacking))} without the part _cuda") if lacking else tested(run)


def backend(run: RunState) -> str:
    return BACKENDS[tested(run)]


def memory_to_verify(
    device: str, launch: Launch, depth: Depth = "normal", *, alone: bool = True
) -> int:
    """Returns the bytes to verify, which do not endanger the host; whole MiB.

    Most of the free memory of a GPU that this rank has alone, unless quick; a full test takes more
    of the host's, too.
    """
    share = _SHARE
    left = free_bytes(device, launch)
    if device == CPU:
        wanted = _CPU_BYTES_FULL if depth == "full" else _CPU_BYTES
    elif depth != "quick" and alone:
        wanted, share = int(left), _GPU_SHARE
    else:
        wanted = _GPU_BYTES
    return max(_SMALLEST, min(wanted, int(left * share)) >> 20 << 20)


def verify(
    device: str, launch: Launch, size: int, *, thorough: bool = False, enough: float = _PATIENCE
) -> Result:
    """Writes and reads patterns (thorough: all of them, as far as `enough` seconds allow)."""
    total = None
    if device == GPU:
        cuda, index = _native.cuda(), gpu_index(launch)
        cuda.set_rank(launch.rank)
        total = cuda.memory_info(index)[1]
        options = {"thorough": thorough, "enough": enough, "seconds": enough + _PATIENCE}
        result = _as_much_as_there_is(
            lambda most: cuda.verify_memory(index, most, launch.rank, **options), size
        )
    else:
        result = _native.core().verify_host_memory(size, launch.rank, thorough=thorough)
    wrong: dict[str, Any] = result["mismatches"]
    return {
        "device": device,
        "bytes": result["bytes"],
        "total": total,
        "patterns": result["passes"],
        "wrong": wrong if wrong["count"] else None,
    }


def _as_much_as_there_is(test: Callable[[int], dict[str, Any]], size: int) -> dict[str, Any]:
    """Tests less than `size` bytes if others have taken a part of them: nothing reserves memory."""
    while True:
        try:
            return test(size)
        except OddrankError as error:
            if "cudaErrorMemoryAllocation" not in str(error) or size <= _GPU_BYTES:
                raise
            size = size * 3 // 4 >> 20 << 20


def covered(run: RunState) -> str:
    """Returns the part of the summary that says how much of the GPUs' memory was tested."""
    results: Mapping[int, Result] = run.of(_NAME)
    known = [
        (one["bytes"] / total, one["patterns"])
        for one in results.values()
        if (total := one.get("total"))
    ]
    if not known:
        return ""
    share, patterns = min(share for share, _ in known), min(count for _, count in known)
    least = "at least " if len(set(known)) > 1 else ""
    return f"; GPU memory tested: {least}{share:.0%}, {patterns} patterns"


BAD_MEMORY = Row(
    "bad-memory", "broken", "{who} is broken: its {device} memory does not keep what is written to"
    " it", ("high", "written and read by this rank alone"), ("{look}",), drains_node=True,
)  # fmt: skip


def stage(options: Options) -> Stage[Plan, Result, list[Finding]]:
    seconds = 300 if options.depth == "full" else 60
    return Stage(_NAME, seconds, partial(_measure, depth=options.depth), _judge, _plan)
