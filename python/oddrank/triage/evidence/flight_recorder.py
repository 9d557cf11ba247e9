"""Reads dumps of torch's flight recorder, pickles and JSON: how far each rank is in each group."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from oddrank import _native
from oddrank.finding import grouped
from oddrank.inputs import Item, Notes, is_pickle, unix_time
from oddrank.triage import facts
from oddrank.triage.evidence import Kind, rank_in_name, without_other_ranks

# Texts that every dump has and other files rarely have.
_MARKS = (b"pg_config", b"pg_status", b"profiling_name", b"collective_seq_id")
_NAMED = re.compile(r"(?:dump|trace)[_-]?(\d+)(?![\d])", re.IGNORECASE)
_LAST = re.compile(r"(\d+)$")
# torch's second back end for NCCL, and the one that sets it up at the first call.
_NCCL = ("nccl2", "nccl-lazy")


def sniff(item: Item) -> bool:
    """Returns whether a file is a pickle, or JSON with the keys of a dump.

    Every pickle is taken: one that is no dump, or is not plain data, must be refused in words.
    """
    head = item.head
    if is_pickle(head):
        return True
    start = head[:64].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    return start in (b"{", b"[") and any(mark in head for mark in _MARKS)


def read(items: Sequence[Item], notes: Notes) -> Iterable[facts.Fact]:
    """Yields each dump's process, the size of the job, progress per rank and group, mismatches."""
    modified = [item.written_ns for item in items]
    files = [
        (os.fsencode(item.path), named_rank(item.name), when)
        for item, when in zip(items, modified, strict=True)
    ]
    threads = min(len(os.sched_getaffinity(0)), 16)
    found = _native.core().read_flight_records(files, threads)
    yield from _Records(items, notes, found, modified).made()


class _Records:
    """Makes facts of the native reader's rows: one object per rank and group, none per entry."""

    def __init__(
        self, items: Sequence[Item], notes: Notes, found: dict[str, Any], modified: Sequence[int]
    ) -> None:
        self._found = found
        self._groups = [facts.Group(name, ranks, text) for name, ranks, text in found["groups"]]
        self._stacks: dict[int, tuple[facts.Frame, ...]] = {}
        self._sources = [facts.Source(item.name) for item in items]
        # A dump does not say when it was made: its file does.
        self._times = [unix_time(when / 1e9) or None for when in modified]
        self._processes: list[facts.Process] = []
        for item, (_, rank, host, pid, *_, lines) in zip(items, found["dumps"], strict=True):
            self._processes.append(facts.Process(rank, host or None, pid))
            for line in lines:
                notes.add(item, line)

    def made(self) -> Iterator[facts.Fact]:
        yield from self._about_processes()
        yield from self._progress()
        for group, seq, differs, variants in self._found["mismatches"]:
            called = tuple(
                facts.Variant(self._call(call), tuple(ranks), self._sources[file], usual)
                for call, ranks, file, usual in variants
            )
            yield facts.Mismatch(self._groups[group], seq, differs, called)

    def _about_processes(self) -> Iterator[facts.Fact]:
        sizes: dict[int, facts.Source] = {}
        for i, (readable, rank, host, pid, world, *_) in enumerate(self._found["dumps"]):
            if readable and rank is not None and (host or pid is not None):
                yield facts.Identity(self._processes[i], self._sources[i])
            sizes.setdefault(world or 0, self._sources[i])
        for file, group, *_ in self._found["tracks"]:
            if self._groups[group].text == "default_pg":
                sizes.setdefault(len(self._groups[group].ranks), self._sources[file])
        yield from (facts.World(size, source) for size, source in sizes.items() if size)

    def _progress(self) -> Iterator[facts.Progress]:
        tracks = grouped((track[0], track) for track in self._found["tracks"])
        for i, dump in enumerate(self._found["dumps"]):
            readable, rank, *_, whole, from_first, groups, pause, _ = dump
            if not readable or rank is None:
                continue
            own = tracks.get(i, ())
            gloo = any(track[2] == "gloo" for track in own)
            said: set[int] = set()
            for track in own:
                _, group, backend, enqueued, completed, calls, count, late, known = track
                if not known and enqueued is None:
                    continue
                said.add(group)
                yield facts.Progress(
                    self._processes[i], self._groups[group], self._sources[i],
                    "nccl" if backend in _NCCL else backend, enqueued, completed,
                    tuple(map(self._call, calls)), count, whole, time=self._times[i],
                    timed_out=late, unseen=backend == "gloo" and not whole,
                    no_messages=backend == "gloo", pause=pause, cut=not whole and not gloo,
                )  # fmt: skip
            # A rank with nothing open anywhere is not in the calls of its other groups either. If
            # its buffer still has its first operation, it has issued none in them.
            if not whole or (not from_first and any(track[5] for track in own)):
                continue
            none = 0 if from_first else None
            for group in groups:
                if group not in said and len(self._groups[group].ranks) > 1:
                    yield facts.Progress(
                        self._processes[i], self._groups[group], self._sources[i], enqueued=none,
                        completed=none, whole=True, no_messages=gloo,
                    )  # fmt: skip

    def _call(self, call: tuple[Any, ...]) -> facts.Call:
        seq, op, peer, dtype, sizes, size, state, since, stack, usual = call
        if stack is not None and stack not in self._stacks:
            self._stacks[stack] = tuple(
                facts.Frame(*frame) for frame in self._found["stacks"][stack]
            )
        site = self._stacks.get(stack, ())
        return facts.Call(seq, op, peer, None, dtype, sizes, size, state, since, site, usual=usual)


def named_rank(name: str) -> int:
    """Returns the rank in a file's name (_dump_3, trace_rank_3, <quorum>/3), -1 if it has none."""
    base = name.replace(":", "/").rstrip("/").rpartition("/")[2]  # PurePath takes long
    stem = base.split(".")[0] if not base.startswith(".") else base
    if (rank := rank_in_name(stem)) is not None:
        return rank
    stem = without_other_ranks(stem)
    for pattern in (_NAMED, _LAST):
        found = pattern.findall(stem)
        if found and len(found[-1]) < 8 and int(found[-1]) < facts.MOST_RANKS:
            return int(found[-1])
    return -1


KIND = Kind("flight_recorder", True, sniff, read)
