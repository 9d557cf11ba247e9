"""A rank's device and memory, its host's network interfaces, and its settings."""

from os import PathLike


def small_file(path: str | PathLike[str]) -> str:
    """Returns the text of a file of the kernel, stripped; "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
