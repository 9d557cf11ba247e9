"""Finds the records for a command: named by path, job or rank, or of the newest job."""

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from oddrank import job
from oddrank.errors import OddrankError
from oddrank.finding import ranks_text, some
from oddrank.trace.ranks import STATES_FILE

SUFFIX = ".trace"
NAME = re.compile(r"(rank|child)(-?\d+)-(\d+)-(\d+)\.trace")
"""Kind, rank, pid and start time of a record's process."""
_MOST_NAMES = 5  # of jobs in a line
_MOST_DIGITS = 9  # in the number of a rank
_LEVELS = 3  # of folders: `oddrank run -o` leaves START/JOB/HOST, collect JOB/HOST


@dataclass(frozen=True)
class Job:
    """A folder of records."""

    folder: Path
    files: Sequence[Path]

    @property
    def ranks(self) -> set[int]:
        return {_rank_and_pid(file)[1] for file in self.files}

    def of_rank(self, number: int) -> list[Path]:
        """Returns all records of a rank: of its children and earlier runs too."""
        return [file for file in self.files if _rank_and_pid(file)[1] == number]

    @property
    def evidence(self) -> list[str]:
        """The records, and how ranks ended, as `oddrank run` left it."""
        return [*map(str, [*self.files, *self.folder.glob(STATES_FILE)])]

    @property
    def lives(self) -> bool:
        return any(job.start_time(_rank_and_pid(file)[2]) == started(file) for file in self.files)

    @property
    def age(self) -> tuple[int, float]:
        """Sorts jobs: running ones are newer than others, later ones newer than earlier ones."""
        living = max(map(started, self.files)) if self.lives else 0
        return (living, max(map(_changed, self.files)))


@dataclass(frozen=True)
class Found:
    """The records for a command."""

    files: Sequence[Path]  # in the order of their ranks; never empty
    lacking: Sequence[str] = ()  # a line for each name that was typed and has no record
    closed: str = ""  # a line about folders, below those typed, that this user may not look into
    also: str = ""  # a line about another job that the user may have meant; empty if there is none
    is_part: bool = False  # the user named ranks, not whole jobs


def find(paths: Iterable[str] = ()) -> Found:
    """Finds the records that `paths` name; by default, those of this user's newest job here.

    paths: record files, folders of one or more jobs, folders from `oddrank run -o` or `collect`,
    names of jobs on this host or their beginnings, or numbers of ranks: of the records named before
    them, else of the newest job.
    Raises OddrankError if there is no record.
    """
    names = list(paths)
    if not names:
        newest = here()
        return Found(sorted(newest[0].files, key=_rank_and_pid), also=_also_here(newest))
    files: list[Path] = []
    lacking: list[str] = []
    closed: list[Path] = []
    present: list[Job] = []
    # The records that names have, and the ranks whose numbers follow these names.
    groups: list[tuple[list[Path], set[int]]] = []
    is_part = False
    for name in names:
        is_path = os.path.exists(name)
        try:
            with suppress(OddrankError):
                present = present or ([] if is_path else here())
            number = int(name) if name.isdecimal() and len(name) <= _MOST_DIGITS else None
            ranks = present[0].ranks if present else set()
            if groups:
                ranks = {_rank_and_pid(file)[1] for file in groups[-1][0]}
            is_job = number not in ranks and any(each.folder.name == name for each in present)
            if is_path or is_job or number is None:
                if not groups or groups[-1][1]:
                    groups.append(([], set()))
                found = [] if is_path else _of_jobs(name, present)
                groups[-1][0].extend(found or _below(Path(name), closed))
            elif groups:
                groups[-1][1].add(number)
            else:
                files += _of_rank(number, present or here(), lacking)
                is_part = True
        except OddrankError as error:
            lacking.append(str(error))
    for own, ranks in groups:
        files += [file for file in own if not ranks or _rank_and_pid(file)[1] in ranks]
        if absent := ranks.difference(_rank_and_pid(file)[1] for file in own):
            lacking.append(f"no record of {ranks_text(absent)} in what is named before")
    if not files:
        raise OddrankError("; ".join(lacking))
    in_order = sorted(dict.fromkeys(files), key=_rank_and_pid)
    also = _also_here(present) if is_part else ""
    return Found(in_order, lacking, _closed(closed), also, is_part or any(r for _, r in groups))


def find_one(names: Sequence[str]) -> Found:
    """As find(), but one record. OddrankError if there are several."""
    found = find(names)
    if found.is_part:
        own = [file for file in found.files if is_own(file)] or found.files
        # Takes the last run if the job was started again under its name.
        return replace(found, files=[max(own, key=started)])
    if len(found.files) > 1:
        raise OddrankError(
            f"{' '.join(names)} has {len(found.files)} records: name one, such as {found.files[0]}"
        )
    return found


def here() -> list[Job]:
    """Returns this user's jobs on this host, the newest first. OddrankError if there is none."""
    found = []
    for folder in (folder for base in bases() for folder in below(base)):
        with suppress(OddrankError):  # removed since
            if files := records(folder):
                found.append(Job(folder, files))
    if not found:
        raise OddrankError(
            f"no record of yours in {', '.join(map(str, bases()))}: call oddrank.arm() in the"
            " script, start it with `-m oddrank run`, or name the folder"
        )
    return sorted(found, key=lambda each: each.age, reverse=True)


def bases() -> tuple[Path, ...]:
    """Returns the folders that hold jobs; only ODDRANK_DIR if it is set."""
    folders = job.base_folders()
    return folders[:1] if os.environ.get("ODDRANK_DIR") else folders


def below(path: Path) -> list[Path]:
    """Returns the folders in `path`; none if it is not readable."""
    with suppress(OSError):
        return sorted(entry for entry in path.iterdir() if entry.is_dir())
    return []


def records(folder: Path) -> list[Path]:
    """Returns the files in `folder` with a record's name."""
    try:
        return [file for file in folder.iterdir() if NAME.fullmatch(file.name)]
    except OSError as error:
        raise OddrankError(_closed([folder], f" ({error.strerror})")) from None


def _closed(folders: Sequence[Path], why: str = "") -> str:
    """Returns a line about folders that may not be looked into; "" if there is none."""
    if not folders:
        return ""
    return f"cannot look into {some(folders, _MOST_NAMES)}{why}: run as the job's user or as root"


def is_own(file: Path) -> bool:
    """Returns whether it is a rank's record, not a child's."""
    return file.name.startswith("rank")


def started(file: Path) -> int:
    """Returns the start of a record's process, in ticks since boot."""
    name = NAME.fullmatch(file.name)
    return int(name[4]) if name else 0


def _of_jobs(name: str, present: Sequence[Job]) -> list[Path]:
    """Returns the records of the job called `name`, or else of the only one that begins so.
    Empty if there is none. Raises OddrankError if several jobs begin with `name`."""
    names = (name, job.file_name(name))  # as a launcher has it, too: 10.0.0.1:29500
    found = [each for each in present if each.folder.name in names]
    found = found or [each for each in present if name and each.folder.name.startswith(names)]
    called = sorted({each.folder.name for each in found})
    if len(called) > 1:
        shown = some(called, _MOST_NAMES)
        raise OddrankError(f"{len(called)} jobs begin with {name} ({shown}): type more of the name")
    return [file for each in found for file in each.files]


def _below(path: Path, closed: list[Path]) -> list[Path]:
    """Returns the records that a path names; adds folders that may not be looked into."""
    try:
        path.stat()
    except PermissionError as error:
        raise OddrankError(_closed([path], f" ({error.strerror})")) from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no path"
        raise OddrankError(
            f"there is no record {path} ({why}), and no job of that name here: give a record file,"
            " a folder, a job or the number of a rank"
        ) from None
    if not path.is_dir():
        return [path]  # the reader will say whether it is a record
    found, hidden, folders = records(path), [], [path]
    for _ in range(0 if found else _LEVELS):
        folders = [each for folder in folders for each in below(folder)]
        for each in folders:
            with suppress(OddrankError):
                found += records(each)
            hidden += [] if os.access(each, os.R_OK | os.X_OK) else [each]
    if not found:
        if hidden:
            raise OddrankError(f"no record in {path} that can be read; {_closed(hidden)}")
        raise OddrankError(f"no record in {path}: name a job's folder or a file rank*{SUFFIX}")
    closed += hidden
    return found


def _of_rank(number: int, present: Sequence[Job], lacking: list[str]) -> list[Path]:
    """Returns the records of a rank and its children in the newest job; adds a line if it lacks."""
    newest, *others = present
    found = newest.of_rank(number)
    if any(map(is_own, found)):
        return found
    lack = f"the newest job, {newest.folder.name}, has no record of rank {number} here"
    if found:
        lack += f", only {len(found)} of its child processes"
    for other in others:
        for file in filter(is_own, other.of_rank(number)):
            lacking.append(f"{lack}; {other.folder.name} has one: name {file}")
            return found
    lacking.append(f"{lack}: name a file or another job")
    return found


def _also_here(present: Sequence[Job]) -> str:
    """Returns a line about another job that runs or has more ranks; "" if there is none."""
    newest, *others = present
    meant = [each for each in others if each.lives or len(each.ranks) > len(newest.ranks)]
    if not meant:
        return ""
    first = max(meant, key=lambda each: len(each.ranks))
    more = f", and {len(meant) - 1} more" if len(meant) > 1 else ""
    name = shlex.quote(first.folder.name)
    return f"also here: oddrank trace where {name}{more}"


def _changed(file: Path) -> float:
    """Returns the file's time of change: the last write, or in /dev/shm the process's start."""
    with suppress(OSError):  # removed since
        return file.stat().st_mtime
    return 0.0


def _rank_and_pid(file: Path) -> tuple[str, int, int]:
    name = NAME.fullmatch(file.name)
    return ("", int(name[2]), int(name[3])) if name else (file.name, 0, 0)
