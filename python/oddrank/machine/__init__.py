"""A rank's device and memory, its host's network interfaces, and its settings."""

from os import PathLike


def small_file(path: str | PathLike[str]) -> str:
    """Returns the text of a file of the kernel, stripped; "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def process_state(pid: int) -> str:
    """Returns the state of a process, a letter as in /proc/PID/stat; "" if it is gone."""
    return small_file(f"/proc/{pid}/stat").rpartition(")")[2].strip()[:1]
