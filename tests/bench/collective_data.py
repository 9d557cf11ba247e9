"""Inputs and results of collectives, made by torch and the native fill."""

import random
from dataclasses import dataclass, replace
from typing import Any

import torch

from oddrank import _native
from oddrank.bench import case

DTYPES = {name: getattr(torch, name) for name in case.DTYPES}
RIGHT = (0, -1, 0.0, 0.0)


@dataclass(frozen=True)
class Segment:
    """Elements first..first+count of a collective's data, from rank `source`."""

    dtype: str
    op: str
    world: int
    first: int = 0
    count: int = 200
    turn: int = 0
    source: int = 0

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Returns the arguments after the address of the native functions."""
        place = (self.first, self.count, self.turn)
        return (self.dtype, self.op, self.source, self.world, *place)

    def at(self, address: int) -> tuple[Any, ...]:
        """Returns the arguments after the device of the native functions for GPUs."""
        place = (address, self.source, self.first, self.count)
        return (self.dtype, self.op, self.world, self.turn, [place])

    def empty(self, device: str = "cpu"):
        return torch.empty(self.count, dtype=DTYPES[self.dtype], device=device)

    def of(self, source: int) -> "Segment":
        return replace(self, source=source)

    def filled(self):
        data = self.empty()
        _native.core().bench_fill(data.data_ptr(), *self.arguments)
        return data

    def check(self, data: Any):
        """Returns (number wrong, index of the first or -1, expected, got)."""
        assert data.is_contiguous()
        assert (data.numel(), data.dtype) == (self.count, DTYPES[self.dtype])
        return _native.core().bench_check(data.data_ptr(), *self.arguments)

    def contributions(self):
        """Returns all contributions, of shape (world, count)."""
        rows = torch.empty((self.world, self.count), dtype=DTYPES[self.dtype])
        fill, first = _native.core().bench_fill, rows.data_ptr()
        of_world, place = (self.dtype, self.op), self.arguments[3:]
        for rank in range(self.world):
            fill(first + rank * self.count * rows.element_size(), *of_world, rank, *place)
        return rows


def combine(op: str, a, b):
    """Does one step of a reduction; rounds the result to the tensors' dtype."""
    dtype = a.dtype
    # torch has no arithmetic on these.
    if dtype.itemsize == 1 and dtype.is_floating_point:
        a, b = a.float(), b.float()
    elif dtype in (torch.uint32, torch.uint64):
        a, b = a.long(), b.long()
    function = {"min": torch.minimum, "max": torch.maximum, "prod": torch.mul}.get(op, torch.add)
    return function(a, b).to(dtype)


def reduce_by_tree(rows: Any, op: str, dice: random.Random):
    """Reduces in pairs, drawn anew in each round. rows: (rank, element)."""
    while len(rows) > 1:
        order = torch.tensor(dice.sample(range(len(rows)), len(rows)))
        rows = as_integers(rows)[order].view(rows.dtype)
        half = len(rows) // 2
        pairs = combine(op, rows[:half], rows[half : 2 * half])
        rows = torch.cat([as_integers(pairs), as_integers(rows[2 * half :])]).view(pairs.dtype)
    return rows[0].clone()


def reduce_in_a_row(rows: Any, op: str, dice: random.Random):
    """Reduces one rank after the other, as a ring does, from any rank on; above 128 in rings."""
    if len(rows) > 1000:
        rows = reduce_in_a_row(rows.view(len(rows) // 128, 128, -1), op, dice)
    start = dice.randrange(len(rows))
    total = rows[start]
    for step in range(1, len(rows)):
        total = combine(op, total, rows[(start + step) % len(rows)])
    return total.clone()


def divide(total: Any, world: int):
    """Does avg's last step, if the sum comes first."""
    if not total.dtype.is_floating_point:
        return torch.div(total.long(), world, rounding_mode="trunc").to(total.dtype)
    return (total.double() / world).to(total.dtype)


def prescale(rows: Any, world: int):
    """Does avg's first step, if scaling comes first: times 1/world, rounded to the dtype."""
    share = torch.tensor(1.0 / world, dtype=torch.float64).to(rows.dtype)
    return (rows.double() * share.double()).to(rows.dtype)


def as_integers(data: Any):
    """Views the data as a dtype of the same size that torch can index and concatenate."""
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return data.view(kinds[data.dtype.itemsize])
