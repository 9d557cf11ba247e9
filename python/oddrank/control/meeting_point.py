"""A file by which the guards of a host learn the root's address from the first who knows it.

The store of torch comes seconds later, and only to workers that live to import torch: with the file
a rank that dies at once is known by name. The guards read it (csrc/control/meeting_point.cpp).
"""

import os
import re
import stat
import time
from contextlib import suppress
from pathlib import Path

from oddrank import job

_NAME = re.compile(r"root-(\d{1,10})-(\d{1,20})-.*")
# Long after the guards of a run have read it: a starter may live unseen, in another pid namespace.
_OLD_SECONDS = 24 * 3600


def path_under(folder: Path, run: str) -> str:
    """The file of this run in the job's folder.

    Its name holds who started the ranks of this host, so that no other run ever has the same: only
    for launchers that are one process a host and a run.
    """
    parent = os.getppid()
    started = job.start_time(parent)
    return str(folder / f"root-{parent}-{started}-{run}") if started else ""


def leave(path: str, address: str) -> None:
    """Writes the address, a secret of this user's, for the guards of this host: whole or not."""
    if not path:
        return
    file = Path(path)
    with suppress(OSError):  # full, read-only or another's: the store brings the address too
        for folder in (file.parent.parent, file.parent):  # the user's, the job's
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            seen = folder.lstat()
            if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid():
                return
        temporary = f"{path}.{os.getpid()}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w", encoding="ascii") as stream:
            stream.write(address)
        os.replace(temporary, path)
    with suppress(OSError):
        _clear_up(Path(path).parent.parent)


def _clear_up(user: Path) -> None:
    """Removes what guards that were killed have left in this user's jobs, and folders emptied so.

    A guard removes the file as soon as it has read it; folders with records are trace's.
    """
    folders = list(os.scandir(user)) if os.access(user, os.R_OK | os.X_OK) else []
    for folder in folders:
        with suppress(OSError):  # gone meanwhile, or not ours
            if folder.is_dir(follow_symlinks=False):
                left = [file for file in os.scandir(folder) if _is_left(file)]
                for file in left:
                    os.unlink(file)
                if left:
                    os.rmdir(folder)


def _is_left(file: "os.DirEntry[str]") -> bool:
    name = _NAME.fullmatch(file.name)
    if name is None or job.start_time(int(name[1])) == int(name[2]):
        return False
    return file.stat(follow_symlinks=False).st_mtime + _OLD_SECONDS < time.time()
