"""Reads pickles of strangers without running code from them."""

import io
import pickle
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

from oddrank import errors
from oddrank.errors import OddrankError

ADVICE = (
    "give safetensors, a file of torch.save, or a folder of these or of"
    " torch.distributed.checkpoint"
)
# Words of torch's reader on a sound file whose objects need code.
_NEEDS_CODE = re.compile(
    r"(?:nsupported (?:global: )?GLOBAL|unrecognized function|allowlisted via `add_safe_globals`,?"
    r" but got) (\S+)"
)


class NeedsCodeError(OddrankError):
    """A file can't be read without running code from it."""


def load(file: Path, source: Any, *, mmap: bool | None = None) -> Any:
    """Returns what torch.save wrote: tensors and plain data. source: the content of `file`."""
    import torch

    _check_archive(file, source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on what it then refuses
            return torch.load(source, map_location="cpu", weights_only=True, mmap=mmap)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        if code := _NEEDS_CODE.search(str(error)):
            raise NeedsCodeError(
                f"{file} holds more than tensors and plain data, and is not run"
                f" ({code.group(1)}): save a state_dict, or convert it where you trust it"
            ) from error
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
        records = []  # torch says what it is
    if not is_path:
        source.seek(0)
    for one in records:
        if one.compress_type != zipfile.ZIP_STORED or one.file_size > size:
            raise OddrankError(
                f"{file}: its record {one.filename[:60]!r} is compressed or cut off, which"
                " torch.save does not do"
            )


class Inert:
    """Stands for an object of any class in a pickle: holds what the pickle gives it."""

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

    Imports nothing and calls nothing that the pickle names. Raises ValueError if it is broken.
    """
    try:
        return _InertUnpickler(io.BytesIO(data)).load()
    except Exception as error:  # a broken pickle may raise anything
        raise ValueError(short(error)) from error


def short(error: Exception) -> str:
    return errors.type_and_text(error)[:160]
