"""This user's jobs on this host: what lies in their folders, and which of them is the newest."""

import os
import re
import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from oddrank import _native, job
from oddrank.errors import OddrankError
from oddrank.trace import processes

SUFFIX = ".trace"
NAME = re.compile(r"(rank|child)(-?\d+)-(\d+)-(\d+)\.trace")
"""Kind, rank, pid and start time of a record's process."""
_MOST = 5  # jobs in a line


@dataclass(frozen=True)
class Job:
    """A folder with its records."""

    folder: Path
    files: Sequence[Path]

    @property
    def ranks(self) -> set[int]:
        return {int(name[2]) for file in self.files if (name := NAME.fullmatch(file.name))}

    def of_rank(self, number: int) -> list[Path]:
        """Its records: its children's and earlier runs' too."""
        names = ((file, NAME.fullmatch(file.name)) for file in self.files)
        return [file for file, name in names if name and int(name[2]) == number]

    @property
    def age(self) -> tuple[int, float]:
        """Greater is newer: one that still runs, then the one that began last."""
        living = max(map(started, self.files)) if any(map(_lives, self.files)) else 0
        return (living, max(map(_made, self.files)))

    def __str__(self) -> str:
        """`NAME (3 ranks, last event at 11:19)`."""
        read, _ = processes.read(self.files, _native.core().trace_snapshot)
        last = max((facts["last_ns"] or 0 for _, facts in read), default=0)
        count = len(self.ranks)
        at = f", last event at {_clock(last / 1e9)}" if last else ""
        return f"{self.folder.name} ({count} rank{'' if count == 1 else 's'}{at})"


def here() -> list[Job]:
    """The newest first. OddrankError, which says where it has looked, where there is none."""
    found = []
    for folder in (folder for base in bases() for folder in below(base)):
        with suppress(OddrankError):  # removed while we look
            found.append(Job(folder, records(folder)))
    found = [each for each in found if each.files]
    if not found:
        raise OddrankError(
            f"no record of yours in {looked_at()}: call oddrank.arm() in the script, start it with"
            " `-m oddrank trace run`, or name the folder"
        )
    return sorted(found, key=lambda each: each.age, reverse=True)


def also_here(others: Sequence[Job]) -> str:
    """What else could have been asked for, those of the most ranks first; "" for none."""
    if not others:
        return ""
    others = sorted(others, key=lambda each: -len(each.ranks))
    names = ", ".join(map(str, others[:_MOST]))
    more = f" and {len(others) - _MOST} more" if len(others) > _MOST else ""
    return f"also here: {names}{more}: oddrank trace where {shlex.quote(str(others[0].folder))}"


def bases() -> tuple[Path, ...]:
    """Who sets ODDRANK_DIR means that folder, and no other."""
    folders = job.base_folders()
    return folders[:1] if os.environ.get("ODDRANK_DIR") else folders


def looked_at() -> str:
    return ", ".join(map(os.fspath, bases()))


def below(path: Path) -> list[Path]:
    """Folders; none where it can't be looked into."""
    with suppress(OSError):
        return sorted(entry for entry in path.iterdir() if entry.is_dir())
    return []


def records(folder: Path) -> list[Path]:
    try:
        return [file for file in folder.iterdir() if NAME.fullmatch(file.name)]
    except OSError as error:
        raise OddrankError(
            f"cannot look into {folder} ({error.strerror}): run as the job's user or as root"
        ) from None


def is_own(file: Path) -> bool:
    """Whether it is a rank's and no child's."""
    return file.name.startswith("rank")


def started(file: Path) -> int:
    """Ticks since boot."""
    name = NAME.fullmatch(file.name)
    return int(name[4]) if name else 0


def _lives(file: Path) -> bool:
    name = NAME.fullmatch(file.name)
    return name is not None and job.start_time(int(name[3])) == int(name[4])


def _made(file: Path) -> float:
    """When its process wrote last, or on a file system in memory began."""
    try:
        return file.stat().st_mtime
    except OSError:  # removed since
        return 0.0


def _clock(seconds: float) -> str:
    then, now = time.localtime(seconds), time.localtime()
    return time.strftime("%H:%M" if then[:3] == now[:3] else "%Y-%m-%d %H:%M", then)
