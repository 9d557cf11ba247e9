"""Which record files a command is about: a path that was typed, a pid, or the newest job."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from oddrank import job
from oddrank.errors import OddrankError
from oddrank.trace import folders
from oddrank.trace.folders import NAME, SUFFIX, Job


@dataclass(frozen=True)
class Found:
    """What a command is about."""

    files: Sequence[Path]
    """Records, in the order of their ranks; never none."""
    lacking: Sequence[str] = ()
    """A line for each name that was typed and has no record."""
    also: str = ""
    """A line about jobs that could have been meant too, where nobody has said which."""


def find(paths: Iterable[str] = (), pid: int | None = None) -> Found:
    """What was typed.

    paths: record files, folders of a job or of several, what `trace collect` has made (a folder a
    job, a folder a host below), or numbers of ranks of the newest job. pid: the record of that
    process. Neither: all of this user's newest job on this host. OddrankError, which says where it
    has looked, where there is none.
    """
    typed = list(paths)
    if typed:
        return _typed(typed)
    if pid is not None:
        return Found(_of_pid(pid))
    newest, *others = folders.here()
    return Found(sorted(newest.files, key=_rank_and_pid), also=folders.also_here(others))


def find_one(name: str) -> Found:
    """One record: a file, a folder that holds one, or a rank's number in this user's newest job."""
    found = find([name])
    if is_rank(name):
        own = [file for file in found.files if folders.is_own(file)] or found.files
        # Of the last run, where a job was started again as it was.
        return replace(found, files=[max(own, key=folders.started)])
    if len(found.files) > 1:
        raise OddrankError(
            f"{name} has {len(found.files)} records: name one, such as {found.files[0]}"
        )
    return found


def is_rank(name: str) -> bool:
    """Whether it is the number of a rank, and no file or folder."""
    return name.isdecimal() and not Path(name).exists()


def job_of(file: Path) -> str:
    """The job that a record belongs to: its folder's name."""
    return file.parent.name


def _typed(names: Sequence[str]) -> Found:
    files: list[Path] = []
    lacking: list[str] = []
    here: list[Job] = []
    for name in names:
        try:
            if is_rank(name):
                here = here or folders.here()
                own, lack = _of_rank(int(name), here)
                lacking += lack
            else:
                own = _below(Path(name))
            files += own
        except OddrankError as error:
            lacking.append(str(error))
    if not files:
        raise OddrankError("; ".join(lacking))
    in_order = sorted(dict.fromkeys(files), key=_rank_and_pid)
    return Found(in_order, lacking, folders.also_here(here[1:]))


def _below(path: Path) -> list[Path]:
    try:
        path.stat()
    except OSError as error:
        raise OddrankError(
            f"there is no record {path} ({error.strerror}): name a job's folder, a record file or"
            " the number of a rank"
        ) from None
    if not path.is_dir():
        return [path]  # what it is says the reader
    found = folders.records(path)
    for folder in [] if found else folders.below(path):
        found += folders.records(folder)
        found += [file for host in folders.below(folder) for file in folders.records(host)]
    if not found:
        raise OddrankError(f"no record in {path}: name a job's folder or a file rank*{SUFFIX}")
    return found


def _of_rank(number: int, here: Sequence[Job]) -> tuple[list[Path], list[str]]:
    """Its records in the newest job and its children's; a line where it has none of its own."""
    found = here[0].of_rank(number)
    if any(map(folders.is_own, found)):
        return found, []
    what = f"the newest job, {here[0].folder.name}, has no record here of rank {number}"
    if found:
        what += f" itself, but {len(found)} of child processes"
    for other in here[1:]:
        for file in filter(folders.is_own, other.of_rank(number)):
            return found, [f"{what}; {other} has one: name {file}"]
    return found, [f"{what}: name a file or another job's folder"]


def _of_pid(pid: int) -> list[Path]:
    start = job.start_time(pid)
    for folder in (folder for base in folders.bases() for folder in folders.below(base)):
        for file in folders.records(folder):
            name = NAME.fullmatch(file.name)
            if name and int(name[3]) == pid and start in (0, int(name[4])):
                return [file]
    raise OddrankError(
        f"process {pid} has no record in {folders.looked_at()}: was oddrank.arm() called?"
    )


def _rank_and_pid(file: Path) -> tuple[str, int, int]:
    name = NAME.fullmatch(file.name)
    return ("", int(name[2]), int(name[3])) if name else (file.name, 0, 0)
