"""Copies oddrank's record files, and beside them the kernel's facts on their processes."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from oddrank import _native
from oddrank.collect.sources import Sink, Source, Target, copy
from oddrank.errors import OddrankError
from oddrank.trace import ranks


def _work(target: Target, _: object, sink: Sink) -> None:
    """Copies files that are records: ranks' before their children's."""
    core = _native.core()
    files = [Path(file) for file in target.records]
    if not files:
        return
    read, _refused = ranks.read(files, ranks.LOOK)
    seen = _states(read, {file.parent for file in files}, sink.folder)
    if seen:
        sink.put(ranks.STATES_FILE, ranks.states_text(seen).encode())

    def check(source: int, facts: os.stat_result) -> None:  # anybody may have put another one there
        if facts.st_size > core.TRACE_LARGEST:
            raise OddrankError("it is larger than any record")
        if os.pread(source, len(core.TRACE_MAGIC), 0) != core.TRACE_MAGIC:
            raise OddrankError("it is no record, or its process died before it wrote any")

    for file in sorted(files, key=lambda file: not file.name.startswith("rank")):
        copy(sink, file, file.name, check=check)


def _states(read: Sequence[ranks.Rank], sources: set[Path], target: Path) -> list[ranks.Seen]:
    """Returns the kernel's facts on the processes: older facts if collected before, or gone since.

    Facts on gone ones come from an earlier collection to the same folder, and from the judge of
    `oddrank run`, which leaves its own beside the hosts' folders.
    """
    earlier = {(s.pid, s.started): s for folder in sources for s in _earlier(folder)}
    before = {(s.pid, s.started): s for at in (target, target.parent) for s in _earlier(at)}
    now = {(s.pid, s.started): s for s in ranks.seen_now(read)}
    found = []
    for rank in read:
        which = (rank.pid, rank.started)
        seen = earlier.get(which) or now.get(which)
        if seen is None or seen.state == "dead":
            seen = before.get(which, seen)
        if seen is not None:
            found.append(seen)
    return found


def _earlier(folder: Path) -> list[ranks.Seen]:
    with suppress(OSError, ValueError):
        return ranks.parse_states(json.loads((folder / ranks.STATES_FILE).read_bytes()))
    return []


SOURCE = Source("records", 15.0, 0.6, _work)
