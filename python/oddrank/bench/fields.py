"""Reads members of untrusted JSON: a member of another type is refused, with its place."""

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

from oddrank.errors import OddrankError

_MOST_TEXT = 200
_LARGEST = 1 << 62
_LEAST, _MOST = 1e-9, 1e15  # range of a time or a bandwidth

T = TypeVar("T")


class Fields:
    """Reads the members of one JSON object; `where` is the object's place in the file."""

    def __init__(self, path: str, members: object, where: str) -> None:
        self._path, self._where = path, where
        if not isinstance(members, dict):
            self._wrong("", members, "an object")
        self._members: dict[str, Any] = members

    def mapping(self, name: str) -> dict[str, Any]:
        return self._take(name, lambda value: isinstance(value, dict), "an object", {})

    def sequence(self, name: str) -> list[Any]:
        return self._take(name, lambda value: isinstance(value, list), "a list", [])

    def text(self, name: str, default: str | None = None) -> str:
        return self._take(
            name,
            lambda value: isinstance(value, str) and len(value) <= _MOST_TEXT,
            f"a text of at most {_MOST_TEXT} characters",
            "",
            default,
        )

    def texts(self, name: str) -> tuple[str, ...]:
        """Returns a list of texts."""
        found = self.sequence(name)
        if not all(isinstance(text, str) and len(text) <= _MOST_TEXT for text in found):
            self._wrong(name, found, f"a list of texts of at most {_MOST_TEXT} characters")
        return tuple(found)

    def flag(self, name: str, default: bool | None = None) -> bool:
        return self._take(name, lambda v: isinstance(v, bool), "true or false", False, default)

    def count(self, name: str) -> int:
        return self._take(
            name, lambda v: type(v) is int and 0 <= v <= _LARGEST, "a whole number", 0
        )

    def positive(self, name: str) -> float | None:
        """Returns a time or a bandwidth; None if it is absent, null or 0."""
        value = self._members.get(name)
        if value is None or (is_number(value) and value == 0):
            return None
        return float(self._take(name, is_positive, "a time or a bandwidth", 0.0))

    def _take(
        self,
        name: str,
        fits: Callable[[Any], bool],
        what: str,
        kind: T,
        default: T | None = None,
    ) -> T:
        if name not in self._members and default is not None:
            return default
        value = self._members.get(name)
        if not fits(value):
            self._wrong(name, value, what)
        return cast(T, value)

    def _wrong(self, name: str, value: object, what: str) -> NoReturn:
        place = ".".join(part for part in (self._where, name) if part) or "the file"
        raise refuse(self._path, f"{place} is {short(value)}, not {what}")


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_positive(value: Any) -> bool:
    """Returns whether it can be a time in microseconds or a bandwidth in GB/s."""
    return is_number(value) and _LEAST <= value <= _MOST


def short(value: object) -> str:
    """Shortens an untrusted value to fit into a sentence."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if value is None:
        return "missing"
    text = str(value)[:40]
    return repr(text) if isinstance(value, str) else text


def refuse(path: str, why: str) -> OddrankError:
    return OddrankError(
        f"cannot read {path}: {why}; name a file that bench run or bench pairs wrote with --json"
    )
