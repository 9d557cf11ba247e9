"""Finds the lines of a text that hold one of some words, and gives them as they stand."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.inputs import Item, Notes

_BLOCK = 4 << 20
_LONGEST = 64 << 10
_MOST_CACHED = 1_000_000


@dataclass(frozen=True)
class Words:
    """The words of one reader, and how many lines come with each. Made by words()."""

    each: tuple[tuple[str, int], ...]


Found = list[tuple[int, int]]
"""Numbers of lines from 1, and the index of the word that each holds."""

# A file is read once for all readers.
_readers: list[Words] = []
_cache: dict[tuple[tuple[str, int, int], Words], Found] = {}
_cached = 0


def words(*each: str | tuple[str, int]) -> Words:
    """Registers words, of at least 4 letters, or (word, lines that come with it)."""
    _readers.append(Words(tuple((one, 0) if isinstance(one, str) else one for one in each)))
    return _readers[-1]


def numbers(item: Item, words: Words) -> Found | None:
    """Returns which lines hold a word; None if the file can't be read.

    Of many lines with the same word, the first and last 10,000. The scan is kept for the other
    readers of the same file.
    """
    try:
        found = item.path.stat()
        key = (str(item.path), found.st_size, found.st_mtime_ns)
        if (key, words) not in _cache:
            _scan(key)
        return _cache[key, words]
    except (OSError, OddrankError):
        return None


def _scan(key: tuple[str, int, int]) -> None:
    global _cached
    needles = list(dict.fromkeys(pair for reader in _readers for pair in reader.each))
    found = _native.core().scan_lines(
        os.fsencode(key[0]), needles, total=32 << 20, speakers=False
    )  # fmt: skip
    matches = found["matches"]
    _cached += len(matches) + len(_readers)
    if _cached > _MOST_CACHED:
        _cache.clear()
        _cached = len(matches) + len(_readers)
    for reader in _readers:
        own = [word for word, _ in reader.each]
        places = {word: index for index, word in enumerate(own)}
        rows: Found = []
        for line, needle, text, _, _, follows, _ in matches:
            # A line with words of several readers is reported with the first of them.
            index = places.get(needles[needle][0])
            if index is None and not follows:
                index = next((i for i, word in enumerate(own) if word in text), None)
            if index is not None:
                rows.append((line, index))
        _cache[key, reader] = rows


def occurs(item: Item, words: Words) -> bool:
    """Returns whether a line of the whole file holds one of the words."""
    return bool(numbers(item, words))


def matching(item: Item, words: Words, notes: Notes) -> Iterator[tuple[int, str]]:
    """Yields number and text of each line with a word. An unreadable file is a note."""
    found = numbers(item, words)
    if found is None:
        notes.add(item, "not readable as a log")
        return
    yield from lines(item, (number for number, _ in found))


def lines(item: Item, wanted: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Yields number and text of the wanted lines, in order; long ones are cut at 64 KiB."""
    left = sorted(set(wanted), reverse=True)
    if not left:
        return
    with suppress(OSError), open(item.path, "rb") as file:
        yield from _wanted(file, left)


def _wanted(file: BinaryIO, left: list[int]) -> Iterator[tuple[int, str]]:
    number, rest = 1, b""
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
        rest = _tail(rest, block)
        number = end
        if not block:
            return


def _tail(rest: bytes, block: bytes) -> bytes:
    """Returns the beginning of the line in which a block ends; its first bytes are enough."""
    cut = block.rfind(b"\n") + 1
    return block[cut : cut + _LONGEST] if cut else (rest + block)[:_LONGEST]


def sorted_words(several: Iterable[Sequence[str]]) -> Words:
    """Registers the words of several lists, each word once."""
    return words(*sorted({word for some in several for word in some}))
