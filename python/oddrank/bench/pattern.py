"""Values of which every dtype holds every sum exactly, and that tell their rank and place.

Rank r puts 1 + (17 r + 31 i) mod 7 at place i where it is one of at most 16 contributors of that
place, else 0: sums stay at or below 112, which float32, float16 and bfloat16 hold exactly in any
order of addition. The contributors rotate with i, so that all ranks take part; the pattern repeats
after a prime number of places, so that shifted blocks do not fall on equal ones.
"""

from typing import Any

PERIOD = 1021
_CONTRIBUTORS = 16


def contribution(rank: int, world: int, count: int, dtype: Any, device: Any) -> Any:
    """What `rank` puts in: `count` values as a tensor."""
    import torch

    places = torch.arange(PERIOD)
    takes_part = (_contributors(world) == rank).any(dim=0)
    return _repeat(torch.where(takes_part, _value(rank, places), 0), count, dtype, device)


def total(world: int, count: int, dtype: Any, device: Any) -> Any:
    """The sum of all ranks' contributions."""
    import torch

    values = _value(_contributors(world), torch.arange(PERIOD))
    return _repeat(values.sum(dim=0), count, dtype, device)


def _contributors(world: int) -> Any:
    """The ranks that take part at each place: (contributor, place), no rank twice at one place."""
    import torch

    number = min(world, _CONTRIBUTORS)
    first = torch.arange(PERIOD) * 5
    return (first[None, :] + torch.arange(number)[:, None] * (world // number)) % world


def _value(rank: Any, place: Any) -> Any:
    return 1 + (rank * 17 + place * 31) % 7


def _repeat(values: Any, count: int, dtype: Any, device: Any) -> Any:
    values = values.to(dtype).to(device)
    return values.repeat(-(-count // PERIOD))[:count].contiguous()
