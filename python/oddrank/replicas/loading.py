"""Reads pickles of strangers without running code from them, and folders of DCP.

Such a folder, of torch.distributed.checkpoint, has an index, .metadata, a pickle that is read
without its classes. Each part of a tensor lies in a .distcp file, as torch.save wrote it.
"""

import io
import math
import operator
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oddrank import errors
from oddrank.errors import OddrankError

ADVICE = (
    "give safetensors, a file of torch.save, or a folder of these or of"
    " torch.distributed.checkpoint"
)
# Errors of torch's reader on a sound file whose objects need code.
_NEEDS_CODE = re.compile(
    r"(?:nsupported (?:global: )?GLOBAL|unrecognized function|allowlisted via `add_safe_globals`,?"
    r" but got) (\S+)"
)


class NeedsCodeError(OddrankError):
    """A file can't be read without running code from it: that of a class or function."""

    def __init__(self, file: Path, code: str) -> None:
        self.why = f"it needs the code of {code}, which is not run"
        super().__init__(
            f"{file} holds more than tensors and plain data, and is not run ({code}): save a"
            " state_dict, or convert it where you trust it"
        )


def load(file: Path, source: Any, *, mmap: bool | None = None) -> Any:
    """Reads a torch.save file: tensors and plain data. source: the content of `file`."""
    import torch

    _check_archive(file, source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on objects that it then refuses
            return torch.load(source, map_location="cpu", weights_only=True, mmap=mmap)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        if code := _NEEDS_CODE.search(str(error)):
            raise NeedsCodeError(file, code.group(1)) from error
        # torch puts advice around the reason.
        _, words, reason = str(error).rpartition("WeightsUnpickler error: ")
        reason = reason.strip().partition("\n")[0][:160] if words else short(error)
        raise OddrankError(f"{file} can't be read ({reason}): {ADVICE}") from error


def _check_archive(file: Path, source: Any) -> None:
    """Refuses a zip whose records would need more memory than the file has bytes."""
    is_path = isinstance(source, Path)
    size = source.stat().st_size if is_path else len(source.getbuffer())
    try:
        with zipfile.ZipFile(source) as archive:
            records = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        records = []  # left to torch's reader
    if not is_path:
        source.seek(0)
    for one in records:
        if one.compress_type != zipfile.ZIP_STORED or one.file_size > size:
            raise OddrankError(
                f"{file}: its record {one.filename[:60]!r} is compressed or cut off, which"
                " torch.save does not do"
            )


class Inert:
    """Stands for an object of any class in a pickle: holds its state."""

    name = ""  # module and name of the class
    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> "Inert":
        made = super().__new__(cls)
        made.args, made.state = args, {}
        return made

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        """Drops an item of a mapping."""

    def append(self, value: Any) -> None:
        """Drops an item of a list."""

    def extend(self, values: Any) -> None:
        """Drops items of a list."""


class _InertUnpickler(pickle._Unpickler):
    """Python's own unpickler: the one in C takes 64 GiB for a memo that a pickle numbers high."""

    def find_class(self, module: str, name: str) -> type[Inert]:
        return type("InertClass", (Inert,), {"name": f"{module}.{name}"})


def unpickle_inert(data: bytes) -> Any:
    """Returns a pickle's content with an Inert for each object that is no plain data.
    Imports nothing and calls nothing that the pickle names. Raises ValueError if it is broken."""
    try:
        return _InertUnpickler(io.BytesIO(data)).load()
    except Exception as error:  # a broken pickle may raise anything
        raise ValueError(short(error)) from error


def short(error: Exception) -> str:
    return errors.type_and_text(error)[:160]


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


def is_dcp(path: Path) -> bool:
    return (path / _INDEX).is_file()


def read_dcp(folder: Path) -> dict[str, Stored]:
    """Returns the content of a DCP folder, by name. Reads its index; OddrankError if broken."""
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
