"""Launchers' environment variables: found, read as numbers, complained about by name and value."""

from collections.abc import Mapping

from oddrank.errors import LaunchError

Environ = Mapping[str, str]
# A variable that was found: its name and its number.
Number = tuple[str, int]

MAX_RANKS = 1 << 24


def find(environ: Environ, names: str) -> tuple[str, str] | None:
    """The first of the names (one text, blanks between) that is set to something, and its value."""
    for name in names.split():
        if environ.get(name):
            return name, environ[name]
    return None


def number(environ: Environ, names: str) -> Number | None:
    """The same as a number from 0; LaunchError where it is none."""
    found = find(environ, names)
    if found is None:
        return None
    name, text = found
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise LaunchError(f"{name}={text[:40]!r} is not a number: set it to one or unset it")
    return name, int(text)


def needed(environ: Environ, names: str, because: Number) -> Number:
    """The same where `because` makes no sense without it."""
    found = number(environ, names)
    if found is None:
        missing = " or ".join(names.split())
        raise LaunchError(f"{say(because)} is set without {missing}: set both or neither")
    return found


def check_world(world: Number) -> None:
    """LaunchError where it can't be a number of ranks."""
    if not 0 < world[1] <= MAX_RANKS:
        raise LaunchError(f"{say(world)} is no number of ranks: set it to 1 or more")


def check_below(index: Number, count: Number) -> None:
    """LaunchError where an index does not fit its count."""
    if index[1] >= count[1]:
        raise LaunchError(f"{say(index)} must be less than {say(count)}: ranks count from 0")


def contradiction(one: Number, other: Number) -> LaunchError:
    """The error that names both."""
    return LaunchError(
        f"{say(one)} and {say(other)} contradict each other:"
        " unset what is left over from another launcher"
    )


def say(found: Number) -> str:
    return f"{found[0]}={found[1]}"
