"""A row of the table of environment variables."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Variable:
    """An environment variable.

    default: "" if unset means off or nothing. since, until: versions, "" if unknown; until: the
    version that no longer reads it. instead: the name that took its place. source: where all this
    is documented.
    """

    name: str
    does: str
    default: str = ""
    since: str = ""
    until: str = ""
    instead: str = ""
    source: str = ""

    @property
    def versions(self) -> str:
        """Returns `since torch 2.2`, `until NCCL 2.5` or "", and the name to use instead."""
        known = [f"since {self.since}" * bool(self.since), f"until {self.until}" * bool(self.until)]
        known.append(f"now {self.instead}" * bool(self.instead))
        return ", ".join(filter(None, known))
