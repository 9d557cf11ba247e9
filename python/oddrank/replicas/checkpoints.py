"""Digests of saved tensors: safetensors, torch.save, folders of them, and earlier dumps.

Runs no code of a file: torch.save's pickles are read with weights_only, everything else is checked
before it is used.
"""

import json
import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oddrank import errors
from oddrank.errors import OddrankError
from oddrank.replicas import digests

# safetensors' name of a type -> torch's.
_TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "C64": "complex64", "BOOL": "bool",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8",
    "U16": "uint16", "U32": "uint32", "U64": "uint64",
}  # fmt: skip
_MOST_HEADER = 100 << 20
_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
_ZIP = b"PK\x03\x04"
_ADVICE = "give safetensors, a file of torch.save, a folder of these, or JSON of replicas dump"


@dataclass(frozen=True)
class Saved:
    """One tensor of a file. tensor: its values, None if only its digest was saved."""

    dtype: str
    shape: tuple[int, ...]
    digest: str
    tensor: Any = None


@dataclass
class Checkpoint:
    """What was saved at `path`. values: numbers and texts beside the tensors, such as the step."""

    path: str
    tensors: dict[str, Saved] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "tensors": {
                name: {"dtype": one.dtype, "shape": list(one.shape), "digest": one.digest}
                for name, one in self.tensors.items()
            },
            "values": self.values,
        }


def read(path: str) -> Checkpoint:
    """Reads a file or folder and digests its tensors. OddrankError if it is none of the formats."""
    found = Checkpoint(path)
    files = _files_of(Path(path))
    for file in files:
        try:
            with file.open("rb") as stream:
                begin = stream.read(16)
            if begin[:1] == b"{":
                _read_dump(found, file)
                continue
            several = f"{file.name}: " if len(files) > 1 and begin[:4] == _ZIP else ""
            tensors = dict(_tensors_of(found, file, begin))
        except OSError as error:
            raise OddrankError(f"can't read {file}: {error.strerror or error}") from error
        every = digests.of(list(tensors.values()))
        for (name, tensor), digest in zip(tensors.items(), every, strict=True):
            dtype = str(tensor.dtype).removeprefix("torch.")
            found.tensors[several + name] = Saved(dtype, tuple(tensor.shape), digest.hex(), tensor)
    if not found.tensors:
        raise OddrankError(f"{path} has no tensors: {_ADVICE}")
    return found


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    if (path / ".metadata").exists():
        raise OddrankError(
            f"{path} is a folder of torch.distributed.checkpoint, whose index is a pickle:"
            " convert it with python -m torch.distributed.checkpoint.format_utils dcp_to_torch"
        )
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    if not files:
        raise OddrankError(f"{path} has no file {', '.join(_SUFFIXES)}: {_ADVICE}")
    return files


def _tensors_of(found: Checkpoint, file: Path, begin: bytes) -> Iterator[tuple[str, Any]]:
    if begin[8:9] == b"{":
        return _safetensors(file)
    return _flat(found, _load(file), "")


def _load(file: Path) -> Any:
    import pickle

    import torch

    try:
        with file.open("rb") as stream:
            is_zip = stream.read(4) == _ZIP
        return torch.load(file, map_location="cpu", weights_only=True, mmap=is_zip or None)
    except pickle.UnpicklingError as error:
        raise OddrankError(
            f"{file} holds more than tensors and plain data, and is not run: save a state_dict, or"
            f" convert it where you trust it ({_short(error)})"
        ) from error
    except (RuntimeError, EOFError, ValueError, KeyError) as error:
        raise OddrankError(f"{file} can't be read ({_short(error)}): {_ADVICE}") from error


def _short(error: Exception) -> str:
    return errors.type_and_text(error)[:160]


def _flat(found: Checkpoint, thing: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yields the tensors of nested mappings and lists by their path; keeps plain values."""
    import torch

    if isinstance(thing, torch.Tensor):
        if thing.layout == torch.strided and not thing.is_quantized:
            yield name, thing
        else:
            found.values[name] = f"not compared: {thing.layout}"
    elif isinstance(thing, Mapping | list | tuple):
        items = thing.items() if isinstance(thing, Mapping) else enumerate(thing)
        for key, value in items:
            yield from _flat(found, value, f"{name}.{key}" if name else str(key))
    elif thing is None or isinstance(thing, str | int | float):
        found.values[name] = str(thing)[:1000]


def _safetensors(file: Path) -> Iterator[tuple[str, Any]]:
    import torch

    size = os.path.getsize(file)
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 0 < length <= min(_MOST_HEADER, size - 8):
            raise OddrankError(f"{file}: its header is cut off or too long: {_ADVICE}")
        try:
            header = json.loads(stream.read(length))
            parts = {name: _part(one) for name, one in header.items() if name != "__metadata__"}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise OddrankError(f"{file}: its header is broken ({_short(error)})") from error
        content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    for name, (kind, shape, begin, end) in parts.items():
        dtype = getattr(torch, kind)
        count = 1
        for one in shape:
            count *= one
        if not 0 <= begin <= end <= size - 8 - length or count * dtype.itemsize != end - begin:
            raise OddrankError(f"{file}: tensor {name} lies outside of the file or is cut off")
        at = 8 + length + begin
        if not count:
            yield name, torch.empty(shape, dtype=dtype)
        elif at % dtype.itemsize:
            yield (
                name,
                torch.frombuffer(bytearray(content[at : at + end - begin]), dtype=dtype).view(
                    shape
                ),
            )
        else:
            yield name, torch.frombuffer(content, dtype=dtype, count=count, offset=at).view(shape)


def _part(one: Mapping[str, Any]) -> tuple[str, tuple[int, ...], int, int]:
    kind = _TYPES[one["dtype"]]
    begin, end = one["data_offsets"]
    shape = tuple(one["shape"])
    if not all(type(number) is int and 0 <= number < 1 << 48 for number in (*shape, begin, end)):
        raise ValueError("sizes are no whole numbers")
    return kind, shape, begin, end


def _read_dump(found: Checkpoint, file: Path) -> None:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))["data"]
        for name, one in data["tensors"].items():
            digest = bytes.fromhex(one["digest"])
            if len(digest) != digests.BYTES:
                raise ValueError("a digest is not 16 bytes long")
            found.tensors[str(name)] = Saved(
                str(one["dtype"]), tuple(int(n) for n in one["shape"]), digest.hex()
            )
        found.values |= {str(name): str(value) for name, value in data["values"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise OddrankError(f"{file} is no JSON of replicas dump ({_short(error)})") from error
