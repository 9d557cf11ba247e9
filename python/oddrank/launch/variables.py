"""Reads launchers' environment variables as numbers; errors name the variable and its value."""

from collections.abc import Mapping

from oddrank.errors import LaunchError

Environ = Mapping[str, str]
# A variable that was found: its name and its number.
Number = tuple[str, int]

MAX_RANKS = 1 << 24


def find(environ: Environ, names: str) -> tuple[str, str] | None:
    """Returns the first of the names (separated by blanks) that is not empty, and its value."""
    for name in names.split():
        if environ.get(name):
            return name, environ[name]
    return None


def number(environ: Environ, names: str) -> Number | None:
    """Returns name and value of the first name that is set, as a number from 0.

    LaunchError if the value is no number.
    """
    found = find(environ, names)
    if found is None:
        return None
    name, text = found
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise LaunchError(f"{name}={text[:40]!r} is not a number: set it to one or unset it")
    return name, int(text)


def needed(environ: Environ, names: str, because: Number) -> Number:
    """Returns `number`'s result. LaunchError if no name is set: `because` needs one."""
    found = number(environ, names)
    if found is None:
        missing = " or ".join(names.split())
        raise LaunchError(f"{say(because)} is set without {missing}: set both or neither")
    return found


def check_world(world: Number) -> None:
    """Raises LaunchError if `world` can't be a number of ranks."""
    if not 0 < world[1] <= MAX_RANKS:
        raise LaunchError(f"{say(world)} is no number of ranks: set it to 1 or more")


def check_below(index: Number, count: Number) -> None:
    """Raises LaunchError if an index is not below its count."""
    if index[1] >= count[1]:
        raise LaunchError(f"{say(index)} must be less than {say(count)}: ranks count from 0")


def contradiction(one: Number, other: Number) -> LaunchError:
    """Makes the error for two variables that contradict each other."""
    return LaunchError(
        f"{say(one)} and {say(other)} contradict each other:"
        " unset what is left over from another launcher"
    )


def say(found: Number) -> str:
    return f"{found[0]}={found[1]}"
