"""Which job this process belongs to, and the folders where that job's files live.

A leaf: the one place of the rule. Paths only; nothing is created or checked here (the native core
walks to a folder and refuses what a stranger could have put there).
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

# What launchers of single processes call a job, the same in all of its ranks on all hosts.
_LAUNCHERS_NAMES = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PALS_APID", "PMI_JOBID")
INHERITED = "ODDRANK_JOB"
"""Set by a process for those that it starts, which no launcher has given a name."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._:@+=-]")


def job_name(environ: Mapping[str, str] = os.environ) -> str:
    """The job's name, the same in every rank of it, safe as a file name.

    TORCHELASTIC_RUN_ID unless "none", else SLURM's job and step, else MASTER_ADDR:MASTER_PORT, else
    what an MPI launcher calls it, else ODDRANK_JOB, else the parent's pid and start time (ranks
    started by one parent share it).
    """
    run = environ.get("TORCHELASTIC_RUN_ID", "none")
    if run not in {"", "none"}:
        return file_name(run)
    if environ.get("SLURM_JOB_ID") and environ.get("SLURM_STEP_ID"):
        return file_name(f"slurm-{environ['SLURM_JOB_ID']}.{environ['SLURM_STEP_ID']}")
    if environ.get("MASTER_ADDR") and environ.get("MASTER_PORT"):
        return file_name(f"{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}")
    for name in _LAUNCHERS_NAMES:
        if environ.get(name):
            return file_name(f"mpi-{environ[name]}")
    if environ.get(INHERITED):
        return file_name(environ[INHERITED])
    parent = os.getppid()
    return f"pid-{parent}-{start_time(parent)}"


def base_folders(environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Where this user's files may live on this host, best first.

    $ODDRANK_DIR if it is set, then oddrank-UID in /dev/shm, $TMPDIR, $XDG_RUNTIME_DIR and /tmp.
    """
    folders = [Path(environ["ODDRANK_DIR"])] if environ.get("ODDRANK_DIR") else []
    for place in (
        "/dev/shm",
        environ.get("TMPDIR", ""),
        environ.get("XDG_RUNTIME_DIR", ""),
        "/tmp",
    ):
        if place:
            folders.append(Path(place) / f"oddrank-{os.geteuid()}")
    return tuple(dict.fromkeys(folder.absolute() for folder in folders))


def job_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of this job's files: $ODDRANK_DIR/<job>, else /dev/shm/oddrank-UID/<job>.

    Where there is no writable /dev/shm, $TMPDIR takes its place.
    """
    for folder in base_folders(environ):
        if environ.get("ODDRANK_DIR") or os.access(folder.parent, os.W_OK | os.X_OK):
            return folder / job_name(environ)
    return base_folders(environ)[-1] / job_name(environ)


def start_time(pid: int) -> int:
    """Start of process `pid` in clock ticks since boot (with the pid: unique); 0 if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])


def file_name(text: str) -> str:
    """`text` as a name for a folder: no path, not too long, and itself where it is one already."""
    name = _UNSAFE.sub("_", text)[:120]
    return name if name.strip(".") else f"job-{name}"
