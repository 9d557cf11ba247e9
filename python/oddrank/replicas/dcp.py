"""Reads folders of torch.distributed.checkpoint: tensors whole, whatever ranks saved parts of them.

The index, .metadata, is a pickle: it is read without any class of it. Each part lies in a .distcp
file, as torch.save wrote it.
"""

import io
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oddrank.errors import OddrankError
from oddrank.replicas.loading import Inert, load, short, unpickle_inert

_INDEX = ".metadata"


@dataclass(frozen=True)
class Stored:
    """A tensor, which load() puts together from its parts, or an object: load() returns plain data.

    file: that the object is in; None for a tensor.
    """

    load: Callable[[], Any]
    file: Path | None = None


@dataclass(frozen=True)
class _Part:
    """Where a part is stored, and its place in the tensor."""

    file: Path
    begin: int
    length: int
    offsets: tuple[int, ...]

    def load(self) -> Any:
        with self.file.open("rb") as stream:
            stream.seek(self.begin)
            return load(self.file, io.BytesIO(stream.read(self.length)))


def is_one(path: Path) -> bool:
    return (path / _INDEX).is_file()


def read(folder: Path) -> dict[str, Stored]:
    """Returns what the folder holds, by name. Reads the index only; OddrankError if broken."""
    try:
        index = unpickle_inert((folder / _INDEX).read_bytes())
        entries, stored = index.state["state_dict_metadata"], index.state["storage_data"]
        parts: dict[str, list[_Part]] = {}
        for key, place in stored.items():
            name = str(key.state["fqn"])
            parts.setdefault(name, []).append(_part(folder, key.state, place.state))
        return {
            str(name): _entry(str(name), entry, parts.get(str(name), []))
            for name, entry in entries.items()
        }
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OSError) as error:
        raise OddrankError(f"{folder / _INDEX} can't be read ({short(error)})") from error


def _part(folder: Path, key: Mapping[str, Any], place: Mapping[str, Any]) -> _Part:
    if place.get("transform_descriptors"):
        raise OddrankError(
            f"{folder} is compressed ({place['transform_descriptors']}): load it with"
            " torch.distributed.checkpoint, and save it as it is"
        )
    name = str(place["relative_path"])
    file = folder / name
    if Path(name).name != name:
        raise ValueError(f"{name} is no file of the folder")
    begin, length = _number(place["offset"]), _number(place["length"])
    if not file.is_file() or begin + length > file.stat().st_size:
        raise OddrankError(f"{file} is missing or cut off: it has to have {begin + length} bytes")
    return _Part(file, begin, length, _size(key.get("offset")))


def _entry(name: str, entry: Inert, parts: list[_Part]) -> Stored:
    if not entry.name.endswith(".TensorStorageMetadata"):
        if len(parts) != 1:
            raise ValueError(f"{name} is stored {len(parts)} times")
        return Stored(parts[0].load, parts[0].file)
    shape = _size(entry.state["size"])
    dtype = entry.state["properties"].state[0].name.removeprefix("torch.")
    return Stored(lambda: _whole(name, dtype, shape, parts))


def _whole(name: str, dtype: str, shape: tuple[int, ...], parts: list[_Part]) -> Any:
    """Puts the parts of a tensor together. Reads one part at a time."""
    import torch

    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise OddrankError(f"tensor {name} has the unknown type {dtype[:40]}")
    count = math.prod(shape)
    if count * kind.itemsize > sum(part.length for part in parts):
        raise OddrankError(f"tensor {name} is not whole: parts of it were not saved")
    whole = torch.zeros(shape, dtype=kind)
    filled = 0
    for part in parts:
        one = part.load()
        fits = (
            isinstance(one, torch.Tensor)
            and one.dtype == kind
            and len(part.offsets) == one.dim() == len(shape)
            and all(map(operator.le, map(operator.add, part.offsets, one.shape), shape))
        )
        if not fits:
            raise OddrankError(f"{part.file}: a part of tensor {name} does not fit the index")
        whole[tuple(map(slice, part.offsets, map(operator.add, part.offsets, one.shape)))] = one
        filled += one.numel()
    if filled != count:
        raise OddrankError(
            f"tensor {name} is not whole: its parts have {filled} of {count} elements"
        )
    return whole


def _size(size: Any) -> tuple[int, ...]:
    """Returns the numbers of a torch.Size, which is an Inert; () for None."""
    if size is None:
        return ()
    numbers = size.args[0] if isinstance(size, Inert) else size
    return tuple(map(_number, numbers))


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 48:
        raise ValueError("sizes are no whole numbers")
    return value
