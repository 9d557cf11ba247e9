"""Copies torchelastic's error files: the exception of each rank that raised one, in JSON."""

import os
from pathlib import Path

from oddrank.run.collect.sources import Rank, Sink, Source, Target, copy
from oddrank.run.collect.sources.places import ERROR_FILE


def _work(target: Target, _: object, sink: Sink) -> None:
    found: dict[Path, Rank] = {}
    for path, (rank, *_others) in target.values(*ERROR_FILE).items():
        file = Path(path)
        found[file] = rank
        # Its launcher's folder has one of each local rank: of those that have ended, too.
        if file.parent.name == str(rank.local_rank) and rank.local_rank is not None:
            sink.at(file.parent.parent)
            for name in _numbers(file.parent.parent):
                number = rank.rank - rank.local_rank + int(name)
                beside = Rank(number, int(name), rank.world, 0, 0, rank.uid, False)
                found.setdefault(file.parent.parent / name / file.name, beside)
    for file, rank in found.items():
        sink.at(file)
        if os.path.lexists(file):
            copy(sink, file, f"torchelastic/rank{rank.rank}.error.json", rank.uid)


def _numbers(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.isascii() and name.isdigit())
    except OSError:
        return []


SOURCE = Source("torchelastic", 5.0, 0.01, _work)
