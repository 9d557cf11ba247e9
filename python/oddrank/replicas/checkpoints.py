"""Digests of saved tensors: safetensors, torch.save, folders of both, DCP folders.

Runs no code of a file: torch.save's pickles are read with weights_only, everything else is checked
before it is used.
"""

import json
import math
import mmap
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oddrank.errors import OddrankError
from oddrank.finding import some
from oddrank.replicas import digests, entries, loading
from oddrank.replicas.loading import ADVICE, NeedsCodeError, load, short

# safetensors' name of a type -> torch's.
_TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "C64": "complex64", "BOOL": "bool",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8",
    "U16": "uint16", "U32": "uint32", "U64": "uint64",
}  # fmt: skip
_MOST_SHARDS = 10_000
_MOST_HEADER = 100 << 20
_MOST_TEXT = 1000
_SHARD = re.compile(r"(.+-)(\d+)(-of-(\d+)\.\w+)")
_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
# Suffixes of state files that are not read.
_OTHERS = (".npz", ".npy", ".pkl", ".h5", ".msgpack", ".gguf")
_ZIP = b"PK\x03\x04"
# Tensors of this many times their file's bytes repeat elements only to exhaust the reader.
_MOST_REPEATED = 1 << 4
# A list may hold another one many times, and that a third one: a few bytes are a lot of values.
_MOST_NODES = 1 << 20


@dataclass(frozen=True)
class Saved:
    """One tensor of a file. load: returns its values."""

    dtype: str
    shape: tuple[int, ...]
    digest: str
    load: Callable[[], Any]


@dataclass
class Checkpoint:
    """The content of `path`. values: numbers and texts beside the tensors, such as the step.

    skipped: files, or parts of them, that were not read -> why.
    """

    path: str
    tensors: dict[str, Saved] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, tensor: Any, load: Callable[[], Any] | None = None) -> None:
        """Digests a tensor. load: returns it again, if it is not kept."""
        (digest,) = digests.of([tensor])
        dtype = str(tensor.dtype).removeprefix("torch.")
        self.tensors[_unlike(name, self.tensors)] = Saved(
            dtype, tuple(tensor.shape), digest.hex(), load or (lambda: tensor)
        )

    def add_tree(self, tree: Any, name: str, file: Path) -> None:
        """Adds the result of torch.load: tensors by their path, numbers and texts as values."""
        import torch

        room = file.stat().st_size * _MOST_REPEATED
        try:
            every = list(_flat(tree, name, iter(range(_MOST_NODES, 0, -1))))
        except RecursionError as error:
            raise OddrankError(f"{file} is nested too deeply, or holds itself") from error
        except OverflowError as error:
            raise OddrankError(f"{file} has more than {_MOST_NODES} values") from error
        for path, value in every:
            if not isinstance(value, torch.Tensor):
                self.values[_unlike(path, self.values)] = _as_value(value)
            elif why := entries.unreadable(value):
                self.skipped[path] = why
            else:
                room -= digests.size_of(value)
                if room < 0:
                    raise OddrankError(f"{file}: tensor {path} claims more than the file can hold")
                self.add(path, value)


def _unlike(name: str, known: Collection[str]) -> str:
    """Returns a name that is new: {"a": {"b.c": 1}} and {"a.b": {"c": 1}} have one path."""
    while name in known:
        name += "'"
    return name


def read(path: str) -> Checkpoint:
    """Reads a file or folder and digests its tensors. OddrankError if it is none of the formats."""
    found = Checkpoint(path)
    try:
        file = Path(path)
        if loading.is_dcp(file):
            _read_dcp(found, file)
        _read_files(found, _files_of(file, is_dcp=loading.is_dcp(file)))
        found.skipped |= _left_out(file)
    except OSError as error:
        why = f"{error.filename or path}: {error.strerror or error}"
        raise OddrankError(f"can't read {why}; give PATHs that you may read") from error
    if not found.tensors:
        skipped = "; ".join(f"{name}: {why}" for name, why in found.skipped.items())
        raise OddrankError(f"{path} has no tensors: {skipped or ADVICE}")
    return found


def _files_of(path: Path, *, is_dcp: bool) -> list[Path]:
    """Returns the files of a path. is_dcp: torch.distributed.checkpoint's may be the only ones."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in _SUFFIXES)
    if not files and not is_dcp:
        raise OddrankError(f"{path} has no file {', '.join(_SUFFIXES)}: {ADVICE}")
    wanted = {*_listed(path).values()}
    for shard in filter(None, (_SHARD.fullmatch(file.name) for file in files)):
        begin, number, end, count = shard.groups()
        if int(count) < _MOST_SHARDS:
            first = 0 if (path / f"{begin}{0:0{len(number)}}{end}").exists() else 1
            numbers = range(first, first + int(count))
            wanted |= {f"{begin}{n:0{len(number)}}{end}" for n in numbers}
    _check_whole(path, [file.name for file in files], wanted)
    return files


def _left_out(path: Path) -> dict[str, str]:
    """Returns a folder's other files of states, which are not read -> why."""
    found = {}
    for one in sorted(path.iterdir() if path.is_dir() else ()):
        within = {file.suffix for file in one.rglob("*")} if one.is_dir() else ()
        if not {*_SUFFIXES, *_OTHERS, ".distcp"}.isdisjoint(within):
            found[f"{one.name}/"] = "a folder: give it by itself"
        elif one.suffix in _OTHERS:
            found[one.name] = "no format that is read"
    return found


def _listed(folder: Path) -> dict[str, str]:
    """Returns tensor -> file, from the folder's indexes of which any file is there."""
    found: dict[str, str] = {}
    for index in sorted(folder.glob("*.index.json")):
        try:
            listed = json.loads(index.read_bytes())["weight_map"]
            if any((folder / str(file)).exists() for file in listed.values()):
                found |= {str(name): str(file) for name, file in listed.items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise OddrankError(f"{index} is no index of a checkpoint ({short(error)})") from error
    return found


def _check_whole(folder: Path, there: Collection[str], wanted: Collection[str]) -> None:
    absent = sorted({*wanted} - {*there})
    if absent:
        raise OddrankError(
            f"{folder} is not whole: it lacks {some(absent, 1)}. Copy the whole checkpoint, or give"
            " single files"
        )


def _read_files(found: Checkpoint, files: list[Path]) -> None:
    is_alone = len(files) == 1 and not found.tensors
    for file in files:
        try:
            _read_file(found, file, "" if is_alone else f"{file.name}: ")
        except NeedsCodeError as error:
            if is_alone:
                raise
            found.skipped[file.name] = error.why
    folder = Path(found.path)
    skipped = {name.rpartition(": ")[2] for name in found.skipped}
    wanted = [name for name, file in _listed(folder).items() if not {name, file} & skipped]
    # Two files of a folder may have tensors of one name, which have the file's before it.
    _check_whole(folder, [name.rpartition(": ")[2] for name in found.tensors], wanted)


def _read_dcp(found: Checkpoint, folder: Path) -> None:
    for name, part in loading.read_dcp(folder).items():
        if part.file is None:
            found.add(name, part.load(), part.load)
            continue
        try:
            found.add_tree(part.load(), name, part.file)
        except NeedsCodeError as error:
            found.skipped[name] = error.why


def _read_file(found: Checkpoint, file: Path, prefix: str) -> None:
    """Adds a file's tensors. prefix: for names that two files of a folder may have."""
    if file.exists() and not file.is_file():  # opening a pipe waits for a writer
        raise OddrankError(f"{file} is no regular file: {ADVICE}")
    with file.open("rb") as stream:
        begin = stream.read(16)
    if begin[8:9] == b"{":
        # Shards of one state have names of their own, with any number of shards.
        for name, tensor in _safetensors(file):
            known = f"{prefix}{name}" if name in found.tensors else name
            found.add(known, tensor)
    elif not begin.startswith((_ZIP, b"\x80")):  # \x80: a pickle
        raise OddrankError(f"{file} is no checkpoint of a known format: {ADVICE}")
    else:
        use_mmap = begin[:4] == _ZIP
        found.add_tree(load(file, file, mmap=use_mmap or None), prefix.removesuffix(" "), file)


_PLAIN = (str, int, float, complex, bytes, type(None))


def _flat(thing: Any, name: str, left: Iterator[int]) -> Iterator[tuple[str, Any]]:
    """Yields the leaves of nested mappings and lists by their path. A list of numbers is a leaf.

    left: has an item for each thing that may still be read; OverflowError after the last one.
    """
    if not next(left, 0):
        raise OverflowError
    items: Any = ()
    if isinstance(thing, Mapping):
        items = thing.items()
    elif isinstance(thing, list | tuple) and not all(isinstance(one, _PLAIN) for one in thing):
        items = enumerate(thing)
    else:
        yield name, thing
    for key, value in items:
        between = "" if not name else " " if name.endswith(":") else "."
        yield from _flat(value, f"{name}{between}{key}", left)


def _as_value(thing: Any) -> str:
    """Returns a text to compare: as it is, or begin and digest if it is long."""
    text = str(thing)
    if len(text) <= _MOST_TEXT:
        return text
    return f"{text[:60]}... (digest {digests.of_bytes(text.encode('utf-8', 'replace')).hex()})"


def _safetensors(file: Path) -> Iterator[tuple[str, Any]]:
    import torch

    size = os.path.getsize(file)
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 0 < length <= min(_MOST_HEADER, size - 8):
            raise OddrankError(f"{file}: its header is cut off or too long: {ADVICE}")
        try:
            header = json.loads(stream.read(length))
            parts = {name: _part(one) for name, one in header.items() if name != "__metadata__"}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise OddrankError(f"{file}: its header is broken ({short(error)})") from error
        content: Any = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    for name, (kind, shape, begin, end) in parts.items():
        dtype = getattr(torch, kind)
        count = math.prod(shape)
        if not 0 <= begin <= end <= size - 8 - length or count * dtype.itemsize != end - begin:
            raise OddrankError(f"{file}: tensor {name} lies outside of the file or is cut off")
        at = 8 + length + begin
        if not count:
            yield name, torch.empty(shape, dtype=dtype)
            continue
        data, offset = content, at
        if at % dtype.itemsize:
            data, offset = bytearray(content[at : at + end - begin]), 0
        yield name, torch.frombuffer(data, dtype=dtype, count=count, offset=offset).view(shape)


def _part(one: Mapping[str, Any]) -> tuple[str, tuple[int, ...], int, int]:
    kind = _TYPES[one["dtype"]]
    begin, end = one["data_offsets"]
    shape = tuple(one["shape"])
    if not all(type(number) is int and 0 <= number < 1 << 48 for number in (*shape, begin, end)):
        raise ValueError("sizes are no whole numbers")
    return kind, shape, begin, end
