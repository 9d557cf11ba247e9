"""The memory of a rank's device: which one, how much of it may be taken, and its verification."""

from typing import TYPE_CHECKING, Any

from oddrank import _native
from oddrank.bench.memory import free_host_memory
from oddrank.bench.place import BACKENDS, GPU, choose, gpu_index
from oddrank.control.stages import Rounds
from oddrank.errors import MissingPartError

if TYPE_CHECKING:
    from oddrank.launch import Launch

_CPU_BYTES = 64 << 20
_GPU_BYTES = 1 << 30
_CPU_BYTES_FULL = 512 << 20
# What all ranks of a host may take of what is left there.
_SHARE = 0.25
# Of a GPU's, which has one rank, in a full test: others' work may still be about to end.
_SHARE_FULL = 0.9
_SMALLEST = 1 << 20


def plan(rounds: Rounds) -> str:
    """GPU where every rank has one to itself, else CPU. MissingPartError where it lacks _cuda."""
    ranks = rounds.of("environment")
    chosen = choose(ranks.values())
    for rank, facts in ranks.items():
        if chosen == GPU and facts["cuda_part"]:
            raise MissingPartError(f"rank {rank} has a GPU to test, and no {facts['cuda_part']}")
    return chosen


def backend(rounds: Rounds) -> str:
    """The backend of torch.distributed that fits the device."""
    return BACKENDS[plan(rounds)]


def memory_to_verify(device: str, launch: "Launch", *, full: bool = False) -> int:
    """Bytes that this rank may take without endangering its host; whole MiB.

    full: most of a GPU's memory that is free, and more of the host's.
    """
    share = _SHARE
    if device == GPU:
        import torch

        wanted, left = _GPU_BYTES, float(torch.cuda.mem_get_info(gpu_index(launch))[0])
        if full:
            wanted, share = int(left), _SHARE_FULL
    else:
        wanted = _CPU_BYTES_FULL if full else _CPU_BYTES
        left = free_host_memory() / launch.local_world
    return max(_SMALLEST, min(wanted, int(left * share)) >> 20 << 20)


def verify(
    device: str, launch: "Launch", size: int, *, thorough: bool = False
) -> dict[str, Any] | None:
    """Writes and reads patterns (thorough: all); the words that came back wrong, or None."""
    if device == GPU:
        cuda = _native.cuda()
        cuda.set_rank(launch.rank)
        result = cuda.verify_memory(gpu_index(launch), size, launch.rank, thorough=thorough)
    else:
        result = _native.core().verify_host_memory(size, launch.rank, thorough=thorough)
    mismatches: dict[str, Any] = result["mismatches"]
    return mismatches if mismatches["count"] else None
