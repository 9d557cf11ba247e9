"""Finds the lines of a text that hold one of some words, and gives them as they stand."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, BinaryIO

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.inputs import Item, Notes
from oddrank.inputs.files import is_text

_BLOCK = 4 << 20
_LONGEST = 64 << 10
_MOST_CACHED = 1_000_000
_MOST_TRIED = 1000


@dataclass(frozen=True, eq=False)
class Words:
    """The words of one reader, and how many lines come with each. Made by words()."""

    each: tuple[tuple[str, int], ...]


Found = list[tuple[int, int]]
"""Numbers of lines from 1, and the index of the word that each holds."""

Scan = dict[str, Any]
"""The result of scan_lines()."""

# A file is read once for all readers: for WORDS of log_lines, and for words().
_told: list[tuple[str, int]] = []
_readers: list[Words] = []
_cache: dict[tuple[str, int, int, int], tuple[Scan, dict[Words, Found]] | None] = {}
_cached = 0


def words(*each: str | tuple[str, int]) -> Words:
    """Registers words, or (word, lines that come with it).

    They need 4 letters, but the shortest of all sets the stride of the scan: take 6 or more.
    """
    _readers.append(Words(tuple((one, 0) if isinstance(one, str) else one for one in each)))
    return _readers[-1]


def words_of_logs(words: Iterable[tuple[str, int]]) -> None:
    """Registers the words of lines that scan() gives with their writers and times."""
    _told.extend(words)


@lru_cache(1)
def _core(_: int) -> Any:
    return _native.core().LogReaders(_told, [reader.each for reader in _readers])


def _key(item: Item) -> tuple[str, int, int, int]:
    return str(item.path), item.size, item.written_ns, len(_readers)


def _read(item: Item) -> tuple[Scan, dict[Words, Found]] | None:
    """Returns what a file holds for all readers, found once; None if it can't be read."""
    global _cached
    key = _key(item)
    if key in _cache:
        return _cache[key]
    try:
        scan, others = _core(len(_readers)).read(os.fsencode(item.path))
    except OSError:
        return None
    except OddrankError:
        _cache[key] = None
        return None
    _cached += len(scan["matches"]) + len(scan["speakers"]) + sum(map(len, others)) + 1
    if _cached > _MOST_CACHED:
        _cache.clear()
        _cached = 0
    _cache[key] = scan, dict(zip(_readers, others, strict=True))
    return _cache[key]


def begin(item: Item, first: int) -> tuple[int, int]:
    """Returns lines and bytes before a place at which to open a file that is read from a line on.

    That is the beginning if the file has not been scanned.
    """
    found = _cache.get(_key(item))
    marks = found[0]["marks"] if found else ()
    return max((mark for mark in marks if mark[0] + 1 < first), default=(0, 0))


def scan(item: Item) -> Scan | None:
    """Returns the lines of a log with words of words_of_logs(), and their writers."""
    found = _read(item)
    return found and found[0]


def numbers(item: Item, words: Words) -> Found | None:
    """Returns which lines hold a word; None if the file can't be read.

    If many lines hold the same word: the first and last 10,000.
    """
    found = _read(item)
    return found and found[1][words]


def matching(item: Item, words: Words, notes: Notes) -> Iterator[tuple[int, str]]:
    """Yields number and text of each line with a word. An unreadable file is a note."""
    found = numbers(item, words)
    if found is None:
        notes.add(item, "not readable as a log")
        return
    yield from lines(item, (number for number, _ in found))


def any_tells(item: Item, words: Words, tells: Callable[[str], object]) -> bool:
    """Returns whether one of the first lines with a word, in a text, tells of a kind."""
    some = islice(matching(item, words, Notes()), _MOST_TRIED)
    return is_text(item) and any(tells(line) for _, line in some)


def lines(item: Item, wanted: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Yields number and text of the wanted lines, in order; long ones are cut at 64 KiB."""
    left = sorted(set(wanted), reverse=True)
    if not left:
        return
    before, at = begin(item, left[-1])
    with suppress(OSError), open(item.path, "rb") as file:
        file.seek(at)
        yield from _wanted(file, left, before + 1)


def _wanted(file: BinaryIO, left: list[int], number: int) -> Iterator[tuple[int, str]]:
    rest = b""
    while left:
        block = file.read(_BLOCK)
        end = number + block.count(b"\n")
        if left[-1] < end or not block:
            pieces = (rest + block).split(b"\n")
            while left and number <= left[-1] < number + len(pieces):
                if left[-1] == end and block:  # goes on in the next block
                    break
                at = left.pop()
                yield at, pieces[at - number][:_LONGEST].decode(errors="replace").rstrip("\r")
        # The beginning of the line in which the block ends; its first bytes are enough.
        cut = block.rfind(b"\n") + 1
        rest = block[cut : cut + _LONGEST] if cut else (rest + block)[:_LONGEST]
        number = end
        if not block:
            return
