"""Which record files a command is about: a path that was typed, a pid, or the newest job."""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from oddrank import job
from oddrank.errors import OddrankError

SUFFIX = ".trace"
_NAME = re.compile(r"(?:rank|child)(-?\d+)-(\d+)-(\d+)\.trace")


def files(paths: Iterable[str] = (), pid: int | None = None) -> list[Path]:
    """Record files, in the order of their ranks.

    paths: record files, folders of a job or of several, what `trace collect` has made (a folder a
    job, a folder a host below), or numbers of ranks of the newest job. pid: the record of that
    process. Neither: all of this user's newest job on this host. OddrankError, which says where it
    has looked, where there is none.
    """
    typed = list(paths)
    if typed:
        named = [_of_rank(int(each)) if is_rank(each) else _below(Path(each)) for each in typed]
        found = list(dict.fromkeys(file for files in named for file in files))
    elif pid is not None:
        found = _of_pid(pid)
    else:
        found = _newest_job()
    return sorted(found, key=_rank_and_pid)


def file_of(name: str) -> Path:
    """One record: a file, a folder that holds one, or a rank's number in this user's newest job."""
    below = files([name])
    if is_rank(name):
        own = [file for file in below if file.name.startswith("rank")] or below
        return max(own, key=_started)  # of the last run, where a job was started again as it was
    if len(below) > 1:
        raise OddrankError(f"{name} has {len(below)} records: name one, such as {below[0]}")
    return below[0]


def is_rank(name: str) -> bool:
    """Whether it is the number of a rank, and no file or folder."""
    return name.isdecimal() and not Path(name).exists()


def job_of(file: Path) -> str:
    """The job that a record belongs to: its folder's name."""
    return file.parent.name


def _below(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]  # what it is says the reader
    found = _records(path)
    folders = [] if found else _folders(path)
    for folder in folders:
        found += _records(folder)
        found += [file for below in _folders(folder) for file in _records(below)]
    if not found:
        raise OddrankError(f"no record in {path}: name a job's folder or a file rank*{SUFFIX}")
    return found


def _folders(path: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(entry for entry in path.iterdir() if entry.is_dir())
    return []


def _of_rank(number: int) -> list[Path]:
    """Its records in this user's newest job: its children's and earlier runs' too."""
    names = ((file, _NAME.fullmatch(file.name)) for file in _newest_job())
    found = [file for file, name in names if name and int(name[1]) == number]
    if not found:
        raise OddrankError(f"the newest job has no record here of rank {number}: name a file")
    return found


def _of_pid(pid: int) -> list[Path]:
    started = job.start_time(pid)
    for folder in _job_folders():
        for file in _records(folder):
            name = _NAME.fullmatch(file.name)
            if name and int(name[2]) == pid and started in (0, int(name[3])):
                return [file]
    raise OddrankError(f"process {pid} has no record in {_looked_at()}: was oddrank.arm() called?")


def _newest_job() -> list[Path]:
    """A job that still runs comes before one that has ended, then the one that began last."""
    candidates = []
    for folder in _job_folders():
        with suppress(OddrankError):  # removed while we look
            candidates.append((folder, _records(folder)))
    candidates = [(folder, records) for folder, records in candidates if records]
    if not candidates:
        raise OddrankError(
            f"no record of yours in {_looked_at()}: call oddrank.arm() in the script, start it with"
            " `-m oddrank trace run`, or name the folder"
        )
    return max(candidates, key=lambda one: (_living_since(one[1]), _made(one[1])))[1]


def _job_folders() -> list[Path]:
    return [folder for base in job.base_folders() for folder in _folders(base)]


def _records(folder: Path) -> list[Path]:
    try:
        return [file for file in folder.iterdir() if _NAME.fullmatch(file.name)]
    except OSError as error:
        raise OddrankError(
            f"cannot look into {folder} ({error.strerror}): run as the job's user or as root"
        ) from None


def _lives(file: Path) -> bool:
    name = _NAME.fullmatch(file.name)
    return name is not None and job.start_time(int(name[2])) == int(name[3])


def _living_since(records: list[Path]) -> int:
    """When the last process began, in ticks since boot, where one still lives; else 0."""
    return max(_started(file) for file in records) if any(map(_lives, records)) else 0


def _started(file: Path) -> int:
    name = _NAME.fullmatch(file.name)
    return int(name[3]) if name else 0


def _made(records: list[Path]) -> float:
    """When the job's last process wrote, or on a file system in memory began."""
    times = [0.0]
    for file in records:
        try:
            times.append(file.stat().st_mtime)
        except OSError:  # removed since
            continue
    return max(times)


def _rank_and_pid(file: Path) -> tuple[str, int, int]:
    name = _NAME.fullmatch(file.name)
    return ("", int(name[1]), int(name[2])) if name else (file.name, 0, 0)


def _looked_at() -> str:
    return ", ".join(os.fspath(folder) for folder in job.base_folders())
