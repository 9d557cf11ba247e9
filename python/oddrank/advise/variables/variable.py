"""A row of the table of environment variables, and how rows are written."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Short for the values of many rows.
_VALUES = {
    "LEVEL": "LOC/NVL/NVB/C2C/PIX/PXB/PXN/P2C/PHB/SYS/NET/DIS/0..",
    "BOOL": "y/yes/1/t/true/n/no/0/f/false",
}
_NUMBER = re.compile(r"[+-]?(0x[0-9a-f]{1,16}|[0-9]{1,20})", re.IGNORECASE)


@dataclass(frozen=True)
class Variable:
    """An environment variable.

    default: "" if unset means off or nothing. since, until: versions, "" if unknown; until: the
    version that no longer reads it. instead: the name that took its place. source: where all this
    is documented. takes: its values, as words and ranges of whole numbers (`LOC/SYS/0..5`, `1..`);
    a comma at the end: or a list of them; "": any. otherwise: what the library does with others,
    "" if unknown.
    """

    name: str
    does: str
    default: str = ""
    since: str = ""
    until: str = ""
    instead: str = ""
    source: str = ""
    takes: str = ""
    otherwise: str = ""

    def allows(self, value: str) -> bool:
        """Returns whether the variable takes a value. An empty one is as good as none."""
        parts = value.split(",") if self.takes.endswith(",") else [value]
        wanted = self.takes.removesuffix(",").split("/")
        return (
            not self.takes
            or not value.strip()
            or all(any(_fits(one, part.strip()) for one in wanted) for part in parts)
        )

    @property
    def versions(self) -> str:
        """Returns `since torch 2.2`, `until NCCL 2.5` or "", and the name to use instead."""
        known = [f"since {self.since}" * bool(self.since), f"until {self.until}" * bool(self.until)]
        known.append(f"now {self.instead}" * bool(self.instead))
        return ", ".join(filter(None, known))


def _fits(one: str, text: str) -> bool:
    low, is_range, high = one.partition("..")
    if not is_range and not one.isdigit():
        return one.lower() == text.lower()
    if not _NUMBER.fullmatch(text):
        return False
    number = int(text, 16 if "x" in text.lower() else 10)
    if not is_range:
        return number == int(one)
    return (not low or number >= int(low)) and (not high or number <= int(high))


def rows(
    source: str,
    text: str,
    *,
    product: str = "",
    prefix: str = "",
    numbers: str = "",
    words: str = "",
    instead: str = "",
) -> Iterator[Variable]:
    """Yields the rows of a text: `name|what it does|default|since version|values`.

    A line that begins with a blank goes on with the line before. product: of the versions. prefix:
    of the names. numbers, words: `otherwise` of rows that take numbers, and of all others.
    """
    for line in text.strip().replace("\n ", " ").splitlines():
        name, does, default, since, takes = (*line.split("|"), "", "", "")[:5]
        has_numbers = any(one[:1] in ".0123456789" for one in takes.split("/") if one)
        yield Variable(
            f"{prefix}{name}", does, default, since=f"{product} {since}" if since else "",
            instead=instead, source=source, takes=_VALUES.get(takes, takes),
            otherwise=numbers if has_numbers else words,
        )  # fmt: skip
