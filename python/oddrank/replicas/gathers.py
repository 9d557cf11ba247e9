"""Exchanges bytes within a process group, by all_gather. Waits as long as torch's timeout."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from oddrank.replicas import digests


def members(group: Any) -> tuple[int, ...]:
    """Returns the ranks of a group, in the order of its gathers."""
    import torch.distributed as dist

    return tuple(dist.get_process_group_ranks(group))


def gather(group: Any, data: bytes) -> list[bytes]:
    """Returns the bytes of each member. All members give equally many, at least one."""
    import torch
    import torch.distributed as dist

    device = _device(group)
    mine = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device)
    every = [torch.empty_like(mine) for _ in members(group)]
    dist.all_gather(every, mine, group=group)
    return [digests.content(one, 0, len(data)) for one in every]


def gather_any(group: Any, data: bytes) -> list[bytes]:
    """Returns the bytes of each member, which may be of any length: two gathers."""
    lengths = [
        int.from_bytes(one, "little") for one in gather(group, len(data).to_bytes(8, "little"))
    ]
    longest = max(lengths)
    if longest == 0:
        return [b"" for _ in lengths]
    padded = gather(group, data.ljust(longest, b"\0"))
    return [one[:length] for one, length in zip(padded, lengths, strict=True)]


def _device(group: Any) -> Any:
    """Returns a device whose tensors the group's backend sends: the CPU where it can."""
    import torch
    import torch.distributed as dist

    backends = str(dist.get_backend_config(group))
    if "cpu:" in backends or "cuda:" not in backends:
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def as_text(ranks: Sequence[int]) -> str:
    """Returns ranks as `first:last:step`, where they have one step; else all, by commas."""
    steps = {b - a for a, b in pairwise(ranks)}
    if len(ranks) > 2 and len(steps) == 1:
        return f"{ranks[0]}:{ranks[-1]}:{steps.pop()}"
    return ",".join(map(str, ranks))


def from_text(text: str) -> tuple[int, ...]:
    """Returns the ranks of `as_text`."""
    if ":" in text:
        first, last, step = map(int, text.split(":"))
        return tuple(range(first, last + (1 if step > 0 else -1), step))
    return tuple(map(int, text.split(",")))
