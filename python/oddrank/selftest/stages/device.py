"""Allocate memory on every rank's device, write a pattern, read it back."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, TypedDict

from oddrank import _native
from oddrank.control.stages import Context, RunState, Skip, Stage
from oddrank.finding import Confidence, Evidence, Finding, Who, fold
from oddrank.machine.device import BACKENDS, CPU, GPU, choose, free_bytes, gpu_index
from oddrank.selftest import Depth, Options, facts

if TYPE_CHECKING:
    from oddrank.launch import Launch

_CPU_BYTES = 64 << 20
_GPU_BYTES = 1 << 30
_CPU_BYTES_FULL = 512 << 20
# Share of a rank's free memory that it takes.
_SHARE = 0.25
# The same on a GPU in a full test. Not all: other programs may still be about to end.
_SHARE_FULL = 0.9
_SMALLEST = 1 << 20


WrongWords = TypedDict(
    "WrongWords",
    {"count": int, "index": int, "expected": int, "got": int, "pass": int, "bits": int},
)


class Result(TypedDict):
    """A rank's result. wrong: None if its memory kept every word."""

    device: str
    bytes: int
    wrong: WrongWords | None


def _measure(context: Context[str], depth: Depth) -> Result:
    """Verifies memory: with all patterns if full, or on a GPU unless quick (milliseconds)."""
    here, full = context.parameters, depth == "full"
    size = memory_to_verify(here, context.launch, full=full)
    context.step(f"verify {size >> 20} MiB of {here} memory")
    thorough = full or (here == GPU and depth != "quick")
    wrong = verify(here, context.launch, size, thorough=thorough)
    context.step("verified")
    return {"device": here, "bytes": size, "wrong": wrong}


def _judge(run: RunState, results: Mapping[int, Result]) -> list[Finding]:
    return [
        bad_memory(run, rank, result["device"], result["bytes"], wrong)
        for rank, result in results.items()
        if (wrong := result["wrong"]) is not None
    ]


def tested(run: RunState) -> str:
    """Returns GPU if every rank has one to itself, else CPU."""
    return choose(facts.results(run).values())


def without_part(run: RunState) -> dict[int, str]:
    """Returns rank -> why it lacks the part _cuda, which tests its GPU."""
    every = facts.results(run)
    lacking = {rank: why for rank, one in every.items() if (why := one.get("cuda_part"))}
    return lacking if lacking and tested(run) == GPU else {}


def plan(run: RunState) -> str | Skip:
    """Returns the tested device; a Skip if a rank can't test its GPU."""
    lacking = without_part(run)
    return Skip(f"{Who('rank', tuple(lacking))} without the part _cuda") if lacking else tested(run)


def backend(run: RunState) -> str:
    """Returns the backend of torch.distributed that fits the tested device."""
    return BACKENDS[tested(run)]


def memory_to_verify(device: str, launch: "Launch", *, full: bool = False) -> int:
    """Returns the bytes to verify, which do not endanger the host; whole MiB.

    full: most of a GPU's memory that is free, and more of the host's.
    """
    share = _SHARE
    left = free_bytes(device, launch)
    if device == CPU:
        wanted = _CPU_BYTES_FULL if full else _CPU_BYTES
    elif full:
        wanted, share = int(left), _SHARE_FULL
    else:
        wanted = _GPU_BYTES
    return max(_SMALLEST, min(wanted, int(left * share)) >> 20 << 20)


def verify(
    device: str, launch: "Launch", size: int, *, thorough: bool = False
) -> WrongWords | None:
    """Writes and reads patterns (thorough: all of them). Returns the wrong words, or None."""
    if device == GPU:
        cuda = _native.cuda()
        cuda.set_rank(launch.rank)
        result = cuda.verify_memory(gpu_index(launch), size, launch.rank, thorough=thorough)
    else:
        result = _native.core().verify_host_memory(size, launch.rank, thorough=thorough)
    mismatches: WrongWords = result["mismatches"]
    return mismatches if mismatches["count"] else None


def bad_memory(run: RunState, rank: int, device: str, size: int, wrong: WrongWords) -> Finding:
    """Memory gave back other words than were written."""
    who = run.who([rank])
    return Finding(
        condition="broken",
        who=who,
        cause="bad-memory",
        drains_node=True,
        what=f"{who} is broken: its {device} memory does not keep what is written to it",
        stage="device",
        evidence=(
            Evidence(
                f"{wrong['count']} wrong words in {size >> 20} MiB, the first at {wrong['index']}:"
                f" wrote {wrong['expected']:#018x}, read {wrong['got']:#018x} (pattern"
                f" {wrong['pass']}); wrong bits in all of them: {_bits(wrong['bits'])}",
                "memory pattern",
            ),
        ),
        confidence=Confidence("high", "written and read by this rank alone"),
        next=("nvidia-smi -q -d ECC,ROW_REMAPPER",)
        if device == "GPU"
        else ("dmesg -T | grep -i edac",),
    )


def _bits(mask: int) -> str:
    """Returns the numbers of the set bits, as ranges."""
    return fold(bit for bit in range(64) if mask >> bit & 1)


def stage(options: Options) -> Stage[str, Result, list[Finding]]:
    seconds = 300 if options.depth == "full" else 60
    return Stage("device", seconds, partial(_measure, depth=options.depth), _judge, plan)
