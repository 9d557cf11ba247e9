"""A file by which the guards of a host learn the root's address from the first who knows it.

The store of torch comes seconds later, and only to workers that live to import torch: with the file
a rank that dies at once is known by name. The guards read it (csrc/control/meeting_point.cpp).
"""

import os
import stat
from contextlib import suppress
from pathlib import Path


def path_under(folder: Path, run: str) -> str:
    """The file of this run in the job's folder.

    Its name holds who started the ranks of this host, so that no other run ever has the same: only
    for launchers that are one process a host and a run.
    """
    parent = os.getppid()
    with suppress(OSError):
        text = Path(f"/proc/{parent}/stat").read_text(encoding="utf-8", errors="replace")
        return str(folder / f"root-{parent}-{text.rpartition(')')[2].split()[19]}-{run}")
    return ""


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
