"""Finds the job of this process, and the folders of that job's files.

Returns paths and creates nothing: the native core makes a folder, and refuses one that a stranger
could have put there.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

# Variables of MPI launchers with the job's name, the same in all its ranks on all hosts.
_LAUNCHERS_NAMES = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PALS_APID", "PMI_JOBID")
INHERITED = "ODDRANK_JOB"  # arm() sets it to the job's name, for the processes that this one starts
# scp and rsync take the text before a colon for a host.
_UNSAFE = re.compile(r"[^A-Za-z0-9._@+=-]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def job_name(environ: Mapping[str, str] = os.environ) -> str:
    """Returns the job's name: the same in every rank, safe as a file name.

    TORCHELASTIC_RUN_ID unless "none", else SLURM's job and step, else MASTER_ADDR_MASTER_PORT, else
    the MPI launcher's name, else ODDRANK_JOB, else the parent's pid and start time (ranks of one
    parent share them).
    """
    run = environ.get("TORCHELASTIC_RUN_ID", "none")
    if run not in {"", "none"}:
        return file_name(run)
    if environ.get("SLURM_JOB_ID") and environ.get("SLURM_STEP_ID"):
        return file_name(f"slurm-{environ['SLURM_JOB_ID']}.{environ['SLURM_STEP_ID']}")
    if environ.get("MASTER_ADDR") and environ.get("MASTER_PORT"):
        return file_name(f"{environ['MASTER_ADDR']}_{environ['MASTER_PORT']}")
    for name in _LAUNCHERS_NAMES:
        if environ.get(name):
            return file_name(f"mpi-{environ[name]}")
    if environ.get(INHERITED):
        return file_name(environ[INHERITED])
    parent = os.getppid()
    return f"pid-{parent}-{start_time(parent)}"


def base_folders(environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Returns the folders that may hold this user's files on this host, best first.

    $ODDRANK_DIR if it is set, then oddrank-UID in /dev/shm, $TMPDIR, $XDG_RUNTIME_DIR and /tmp.
    """
    folders = [Path(environ["ODDRANK_DIR"])] if environ.get("ODDRANK_DIR") else []
    places = "/dev/shm", environ.get("TMPDIR"), environ.get("XDG_RUNTIME_DIR"), "/tmp"
    folders += [Path(place) / f"oddrank-{os.geteuid()}" for place in places if place]
    # A surrogate stands for a byte that is no UTF-8: the C++ parts take no such name.
    paths = dict.fromkeys(folder.absolute() for folder in folders)
    return tuple(path for path in paths if not _SURROGATE.search(str(path)))


def job_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Returns the folder of this job's files: $ODDRANK_DIR/<job>, or /dev/shm/oddrank-UID/<job>.
    If /dev/shm can't be written, $TMPDIR takes its place."""
    for folder in base_folders(environ):
        if environ.get("ODDRANK_DIR") or os.access(folder.parent, os.W_OK | os.X_OK):
            return folder / job_name(environ)
    return base_folders(environ)[-1] / job_name(environ)


def start_time(pid: int) -> int:
    """Returns when process `pid` started, in clock ticks since boot; 0 if it is gone."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else 0


def stat_fields(pid: int) -> list[str]:
    """Returns /proc/PID/stat's fields from the state on: letter, parent, ...; empty: it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def file_name(text: str) -> str:
    """Turns `text` into a folder's name: no path, not too long. Keeps a valid name as it is."""
    name = _UNSAFE.sub("_", text)[:120]
    return name if name.strip(".") else f"job-{name}"
