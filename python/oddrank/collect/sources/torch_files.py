"""Copies torchelastic's error files, and dumps of torch's flight recorder; asks for new dumps.

torch writes PREFIX + rank: when a watchdog gives up, or when something is written to the rank's
pipe, PREFIX + rank + .pipe (of NCCL and XCCL groups, with TORCH_NCCL_DEBUG_INFO_PIPE_FILE set).
"""

import errno
import glob
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from oddrank import job
from oddrank.collect.sources import (
    ERROR_FILE,
    FLIGHT_FILE,
    FLIGHT_PIPE,
    Rank,
    Sink,
    Source,
    Target,
    copy,
)

_NAMES = ("comm_lib_trace_rank_", "nccl_trace_rank_")
_ANSWER = 6.0  # seconds: torch polls its pipes about once a second
_STILL = 0.3  # a dump of this age is complete


def _dumps(target: Target, _: object, sink: Sink) -> None:
    asked = {}
    for rank in target.living:
        begun = time.time()
        if _ask(rank, sink):
            asked[rank.rank] = begun
    done: set[str] = set()
    names: set[str] = set()
    for rank in target.ranks:
        found = list(dict.fromkeys(_files(rank)))
        if rank.rank in asked:
            sink.at(f"the dump of rank {rank.rank}")
            if not _answered(found, asked[rank.rank]):
                sink.lacks(f"a new dump of rank {rank.rank}", f"torch wrote none in {_ANSWER:g} s")
        begin = rank.since - 1.0
        for file in found:
            if file in done:  # a rank that was started again
                continue
            done.add(file)
            try:
                changed = os.lstat(file).st_mtime
            except OSError as error:
                if error.errno not in {errno.ENOENT, errno.ENOTDIR}:
                    sink.lacks(file, error)
                continue
            if changed < begin:
                sink.lacks(file, "it is older than the job")
                continue
            name = "_".join(Path(file).parts[-2:]) if Path(file).name.isdigit() else file
            name = f"flight_recorder/{job.file_name(Path(name).name)}"
            if name in names:  # another place's
                name += f".{len(names)}"
            names.add(name)
            copy(sink, file, name, rank.uid)


def _ask(rank: Rank, sink: Sink) -> bool:
    """Writes to the rank's dump pipe; returns whether torch will read it."""
    stem = next((rank.environ[name] for name in FLIGHT_PIPE if rank.environ.get(name)), "")
    if not stem:
        return False
    pipe = f"{stem}{rank.rank}.pipe"
    sink.at(pipe)
    try:
        end = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            facts = os.fstat(end)
            if not stat.S_ISFIFO(facts.st_mode) or facts.st_uid != rank.uid:
                sink.lacks(pipe, "it is no pipe of the job's user")
                return False
            os.write(end, b"1\n")
        finally:
            os.close(end)
    except OSError as error:
        why = "no process reads it" if error.errno == errno.ENXIO else error.strerror
        sink.lacks(pipe, why)
        return False
    return True


def _answered(files: list[str], asked: float) -> bool:
    """Waits until one of the files was written after `asked` and is complete."""
    end = asked + _ANSWER
    while time.time() < end:
        for file in files:
            with suppress(OSError):
                facts = os.lstat(file)
                if facts.st_mtime >= asked - 0.01 and time.time() - facts.st_mtime > _STILL:
                    return True
        time.sleep(0.1)
    return False


def _files(rank: Rank) -> Iterator[str]:
    """Yields the paths at which a dump of the rank may be."""
    environ = rank.environ or os.environ  # mostly from the same batch script
    home = environ.get("HOME") or "/nowhere"
    caches = filter(None, [environ.get("XDG_CACHE_HOME"), f"{home}/.cache"])
    prefixes = [environ[name] for name in FLIGHT_FILE if environ.get(name)]
    prefixes += [f"{folder}/torch/{name}" for folder in caches for name in _NAMES]
    prefixes += [f"/tmp/{name}" for name in _NAMES]
    for prefix in prefixes:
        yield f"{prefix}{rank.rank}"
        # torchft writes one for each quorum.
        yield from sorted(glob.glob(f"{glob.escape(prefix)}*_quorum_*/{rank.rank}"))


def _errors(target: Target, _: object, sink: Sink) -> None:
    """Copies the exception of each rank that raised one, in JSON."""
    found: dict[Path, Rank] = {}
    for path, (rank, *_others) in target.values(*ERROR_FILE).items():
        file = Path(path)
        found[file] = rank
        # Its launcher's folder has one file for each local rank, also for ranks that have ended.
        if file.parent.name == str(rank.local_rank) and rank.local_rank is not None:
            above = file.parent.parent
            sink.at(above)
            with suppress(OSError):
                for name in sorted(filter(str.isdecimal, os.listdir(above))):
                    number = rank.rank - rank.local_rank + int(name)
                    beside = Rank(number, int(name), rank.world, 0, 0, rank.uid, False)
                    found.setdefault(above / name / file.name, beside)
    for file, rank in found.items():
        sink.at(file)
        if os.path.lexists(file):
            copy(sink, file, f"torchelastic/rank{rank.rank}.error.json", rank.uid)


FLIGHT_RECORDER = Source("flight recorder", 12.0, 0.3, _dumps)
TORCHELASTIC = Source("torchelastic", 5.0, 0.01, _errors)
