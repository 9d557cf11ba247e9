"""Copies a job's records from this host's memory to a folder that outlives the allocation."""

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from oddrank import _native, job
from oddrank.errors import OddrankError
from oddrank.trace import folders, jobs, processes


def collect(files: Sequence[Path], folder: Path, host: str) -> dict[Path, int]:
    """Copies into `folder`/JOB/`host`/, whole or not at all, file by file.

    Returns how many are in each of these folders. OddrankError where it cannot be written; what was
    copied before stays.
    """
    is_base = any(folder.absolute().is_relative_to(base) for base in folders.bases())
    if is_base or (folder.is_dir() and folders.records(folder)):
        raise OddrankError(
            f"{folder} is where records are already: name the folder to copy to, then what to copy:"
            f" oddrank trace collect DIR {folder}"
        )
    for file in files:
        if not file.is_file():
            raise OddrankError(f"there is no record {file}: name a job's folder")
    targets: dict[Path, list[Path]] = {}
    for file, name in _jobs(files):
        targets.setdefault(folder / name / host, []).append(file)
    for target, own in targets.items():
        _copy(own, target)
    return {target: len(own) for target, own in targets.items()}


def _jobs(files: Sequence[Path]) -> Iterable[tuple[Path, str]]:
    """Each with its job as the record itself names it, or where it can't be read its folder."""
    read, _ = processes.read(files, _native.core().trace_snapshot)
    # A record may be anybody's, and its name is about to be a folder.
    named = {file: job.file_name(facts["job"]) for file, facts in read if facts["job"]}
    return [(file, named.get(file, jobs.job_of(file))) for file in files]


def _copy(files: Sequence[Path], target: Path) -> None:
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
