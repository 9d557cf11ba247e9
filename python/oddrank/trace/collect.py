"""Copies a job's records from this host's memory to a folder that outlives the allocation."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from oddrank.errors import OddrankError


def collect(files: Sequence[Path], folder: Path, host: str) -> Path:
    """Copies into `folder`/`host`/, whole or not at all, file by file; returns that folder.

    OddrankError where it cannot be written; what was copied before stays.
    """
    for file in files:
        if not file.is_file():
            raise OddrankError(f"there is no record {file}: name a job's folder")
    target = folder / host
    try:
        target.mkdir(parents=True, exist_ok=True)
        for file in files:
            half = target / f".{file.name}.{os.getpid()}"
            try:
                shutil.copyfile(file, half)
                half.replace(target / file.name)
            finally:
                half.unlink(missing_ok=True)
    except OSError as error:
        raise OddrankError(
            f"cannot copy records to {target} ({error.strerror}): name a folder with room for"
            f" {sum(file.stat().st_size for file in files if file.exists()) >> 20} MiB"
        ) from None
    return target
