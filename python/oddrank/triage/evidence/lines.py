"""Finds the lines of a text that hold one of some words, and gives them as they stand."""

from collections.abc import Iterable, Iterator, Sequence

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.triage.evidence import Item, Notes

_BLOCK = 4 << 20
_LONGEST = 64 << 10
_MOST_CACHED = 1_000_000
Words = tuple[tuple[str, int], ...]
"""Words, and how many lines come with each: see csrc/logs/scanner.hpp. At most 64 of 4 letters."""

_cache: dict[tuple[str, int, int, int], list[tuple[int, int]] | None] = {}
_cached = 0


def is_text(item: Item) -> bool:
    """Returns whether a file looks like text: zero bytes are in binary files only."""
    return item.size > 0 and b"\0" not in item.head


def numbers(item: Item, words: Words) -> list[tuple[int, int]] | None:
    """Returns the numbers from 1 of lines with a word, and the word's index; None: unreadable.

    Of lines with the same word, if there are many, the first and last 10,000. The scan is kept
    for the next caller with the same words.
    """
    global _cached
    try:
        found = item.path.stat()
        key = (str(item.path), found.st_size, found.st_mtime_ns, hash(words))
        if key not in _cache:
            matches = _native.core().scan_lines(str(item.path), words, total=32 << 20)["matches"]
            _cached += len(matches)
            if _cached > _MOST_CACHED:
                _cache.clear()
                _cached = len(matches)
            _cache[key] = [(match[0], match[1]) for match in matches]
        return _cache[key]
    except (OSError, OddrankError):
        return None


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
    number, rest = 1, b""
    with open(item.path, "rb") as file:
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


def words(*each: str | tuple[str, int]) -> Words:
    """Makes words of texts and of (text, lines that come with it)."""
    return tuple((one, 0) if isinstance(one, str) else one for one in each)


def sorted_words(several: Iterable[Sequence[str]]) -> Words:
    """Makes words of several lists, each word once."""
    return words(*sorted({word for some in several for word in some}))
