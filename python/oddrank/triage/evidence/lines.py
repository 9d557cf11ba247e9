"""Reads the lines of a text file that hold one of some words: in blocks, in bounded memory."""

import re
from collections.abc import Iterator, Sequence

from oddrank.triage.evidence import Item, Notes

_BLOCK = 4 << 20
_LONGEST = 64 << 10


def anchors(words: Sequence[str]) -> re.Pattern[bytes]:
    """Returns the pattern of lines worth a look: those that hold one of the words."""
    return re.compile(b"|".join(re.escape(word.encode()) for word in words))


def is_text(item: Item) -> bool:
    """Returns whether a file looks like text: zero bytes are in binary files only."""
    return item.size > 0 and b"\0" not in item.head


def matching(
    item: Item, wanted: re.Pattern[bytes], notes: Notes | None = None
) -> Iterator[tuple[int, str]]:
    """Yields the number from 1 and the text of each line in which `wanted` occurs.

    Lines longer than 64 KiB are cut. A file that can't be read is a line in the notes.
    """
    try:
        with open(item.path, "rb") as file:
            yield from _lines(iter(lambda: file.read(_BLOCK), b""), wanted)
    except OSError as error:
        if notes is not None:
            notes.add(item, f"not readable: {error.strerror}")


def _lines(blocks: Iterator[bytes], wanted: re.Pattern[bytes]) -> Iterator[tuple[int, str]]:
    number, rest = 1, b""
    for block in blocks:
        cut = block.rfind(b"\n") + 1
        if not cut:  # one line longer than a block: only its beginning is kept
            rest = (rest + block)[:_LONGEST]
            continue
        yield from _whole_lines(rest + block[:cut], wanted, number)
        number += block.count(b"\n")
        rest = block[cut:]
    yield from _whole_lines(rest, wanted, number)


def _whole_lines(text: bytes, wanted: re.Pattern[bytes], number: int) -> Iterator[tuple[int, str]]:
    end = counted = 0
    while found := wanted.search(text, end):
        begin = text.rfind(b"\n", end, found.start()) + 1 or end
        number += text.count(b"\n", counted, begin)
        counted = begin
        end = text.find(b"\n", found.start()) + 1 or len(text)
        yield number, text[begin : min(end, begin + _LONGEST)].decode(errors="replace").rstrip()


def occurs(item: Item, wanted: re.Pattern[bytes]) -> bool:
    """Returns whether a line holds what is wanted, in the whole file."""
    return wanted.search(item.head) is not None or next(matching(item, wanted), None) is not None
