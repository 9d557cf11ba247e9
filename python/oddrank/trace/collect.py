"""Copies a job's records from this host's memory to a folder that outlives the allocation."""

import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from oddrank import _native, job
from oddrank.errors import OddrankError
from oddrank.trace import jobs, processes, ranks, states

_PIECE = 1 << 20
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}


def collect(
    files: Sequence[Path], folder: Path, host: str
) -> tuple[dict[Path, int], dict[Path, str]]:
    """Copies records to `folder`/JOB/`host`/, each whole or not at all, readable by the owner only.

    Beside them, a file of states says what the kernel knows of their processes at this moment.

    Returns the number of records in each of these folders, and a line for each file that is no
    record: a symbolic link, a pipe or device, other bytes. Raises OddrankError if `folder` cannot
    be written (what was copied before stays) or none of the files is a record.
    """
    is_base = any(folder.absolute().is_relative_to(base) for base in jobs.bases())
    if is_base or (folder.is_dir() and jobs.records(folder)):
        raise OddrankError(
            f"{folder} is where records are already: name the folder to copy to, then what to copy:"
            f" oddrank trace collect DIR {folder}"
        )
    copied: dict[Path, int] = {}
    refused: dict[Path, str] = {}
    targets = {file: folder / name / host for file, name in _jobs(files)}
    seen = _states(targets)
    for file, target in targets.items():
        try:
            source = _open(file)
        except OddrankError as error:
            refused[file] = str(error)
            continue
        try:
            _copy(source, target, file.name)
        finally:
            os.close(source)
        copied[target] = copied.get(target, 0) + 1
    if not copied:
        raise OddrankError("; ".join(refused.values()))
    for target in copied:
        if target in seen:
            _write(target, states.NAME, [states.text(seen[target]).encode()], 0)
    return copied, refused


def _jobs(files: Sequence[Path]) -> Iterable[tuple[Path, str]]:
    """Pairs each file with the job that the record names, or else with its folder's name."""
    read, _ = processes.read(files, _native.core().trace_snapshot)
    # file_name(): anybody may have written the record, and its text names a folder.
    named = {file: job.file_name(facts["job"]) for file, facts in read if facts["job"]}
    return [(file, named.get(file, jobs.job_of(file))) for file in files]


def _open(file: Path) -> int:
    """Opens a record to read. Follows no symbolic link, waits for no other process.

    Root may collect from a folder that others write to: all checks use the open file, which nobody
    can exchange. Raises OddrankError if it is no record.
    """
    core = _native.core()
    try:
        source = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        is_link = error.errno == errno.ELOOP
        raise _not_copied(file, "it is a symbolic link" if is_link else error.strerror) from None
    try:
        facts = os.fstat(source)
        if not stat.S_ISREG(facts.st_mode):
            raise _not_copied(file, "it is no record but a folder, pipe or device")
        if facts.st_size > core.TRACE_LARGEST:
            raise _not_copied(file, "it is larger than any record")
        if os.pread(source, len(core.TRACE_MAGIC), 0) != core.TRACE_MAGIC:
            raise _not_copied(file, "it is no record, or its process died before it wrote any")
    except OSError as error:
        os.close(source)
        raise _not_copied(file, error.strerror) from None
    except OddrankError:
        os.close(source)
        raise
    return source


def _not_copied(file: Path, why: str | None) -> OddrankError:
    return OddrankError(f"{file} was not copied: {why}")


def _states(targets: Mapping[Path, Path]) -> dict[Path, list[states.Seen]]:
    """Returns what the kernel says of the processes, for each folder with their copies.

    Of processes that were collected before, what it said then.
    """
    read, _ = ranks.read(list(targets), states.LOOK)
    earlier = {(s.pid, s.started): s for s in _earlier({file.parent for file in targets})}
    now = {(s.pid, s.started): s for s in states.look(read)}
    found: dict[Path, list[states.Seen]] = {}
    for rank in read:
        which = (rank.pid, rank.started)
        if which in earlier or which in now:
            seen = earlier.get(which) or now[which]
            found.setdefault(targets[Path(rank.file)], []).append(seen)
    return found


def _earlier(folders: Iterable[Path]) -> Iterable[states.Seen]:
    for folder in folders:
        with suppress(OSError, ValueError):
            yield from states.parse(json.loads((folder / states.NAME).read_bytes()))


def _copy(source: int, target: Path, name: str) -> None:
    size = os.fstat(source).st_size

    def pieces() -> Iterator[bytes]:
        left = size
        while left > 0 and (piece := os.read(source, min(left, _PIECE))):
            yield piece
            left -= len(piece)

    _write(target, name, pieces(), size)


def _write(target: Path, name: str, pieces: Iterable[bytes], size: int) -> None:
    half = target / f".{name}.{os.getpid()}"
    try:
        target.mkdir(parents=True, exist_ok=True)
        try:
            made = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with open(made, "wb") as copy:
                for piece in pieces:
                    copy.write(piece)
            half.replace(target / name)
        finally:
            half.unlink(missing_ok=True)
    except OSError as error:
        advice = "name another folder"
        if error.errno in _NO_ROOM:
            advice = f"name a folder with room for {size >> 20} MiB"
        elif error.errno in _NOT_ALLOWED:
            advice = "name a folder that you may write to"
        raise OddrankError(f"cannot copy {name} to {target} ({error.strerror}): {advice}") from None
