"""Runs one source of `oddrank collect` in this process, and keeps what it says."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oddrank import job
from oddrank.run.collect.sources import Rank, Sink, Source, Target

HOST = "node1"


@dataclass
class Ran:
    """What a source did. files: name -> content."""

    files: dict[str, bytes] = field(default_factory=dict)
    lacks: dict[str, str] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)


def rank(number: int = 0, pid: int | None = None, **more: Any) -> Rank:
    """Returns a rank that this process, or `pid`, is."""
    pid = os.getpid() if pid is None else pid
    facts = {"local_rank": number, "world": 4, "started": job.start_time(pid), "alive": True,
             "uid": os.geteuid(), **more}  # fmt: skip
    return Rank(rank=number, pid=pid, **facts)


def ran(source: Source, folder: Path, *ranks: Rank, room: int = 1 << 20) -> Ran:
    """Runs all parts of a source. room: bytes for each."""
    target, found = Target("job", HOST, (), ranks), Ran()

    def say(message: Any) -> None:
        if "not_read" in message:
            one = message["not_read"]
            found.lacks[one["what"]] = one["why"]
            if one["absent"]:
                found.absent.add(one["what"])
        if "file" in message:
            name = message["file"]["name"]
            found.files[name] = (folder / name).read_bytes()

    for part in source.parts(target).values():
        source.work(target, part, Sink(folder, room, say))
    return found
