"""A row of the table of environment variables."""

import re
from dataclasses import dataclass

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
