"""What NCCL chose for a collective: algorithm, protocol and channels, read from NCCL's own log.

NCCL tells it on rank 0 of a communicator from 2.20 on, a line for each call. The lines cost time:
the log is open for one run beside the timed ones only.
"""

import ctypes
import os
import re
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from oddrank import _native
from oddrank.bench.data import Choice

# How 2.20 to 2.23 number them; later versions write the names.
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
_LINE = re.compile(
    r"(?:(?P<function>[A-Za-z]+)(?: \[(?P<way>[A-Za-z ]+)\])?: )?[0-9]+ Bytes -> (?P<what>.*)"
)
_CHOICE = re.compile(
    r"Algo (\w+) proto (\w+)(?: channel\{Lo\.\.Hi\}=\{([0-9]{1,4})\.\.([0-9]{1,4})\})?"
)
_KERNEL = re.compile(r"Kernel (\w+) nchannels ([0-9]{1,4})")
# One collective writes a few lines.
_MOST_BYTES = 1 << 20


def parse(text: str) -> Choice | None:
    """Returns the choice of the last line in a log that tells one, None if none does."""
    found: Choice | None = None
    for line in text.splitlines():
        told = _LINE.search(line)
        if told is not None:
            found = _of(told["way"], told["what"]) or found
    return found


def _of(way: str | None, what: str) -> Choice | None:
    if way is not None:
        kernel = _KERNEL.match(what)
        if kernel is None:
            return {"algorithm": way}
        return {"algorithm": way, "channels": int(kernel[2]), "kernel": kernel[1][:80]}
    told = _CHOICE.match(what)
    algorithm = told and _name(told[1], _ALGORITHMS)
    if told is None or algorithm is None:
        return None
    choice: Choice = {"algorithm": algorithm}
    if protocol := _name(told[2], _PROTOCOLS):
        choice["protocol"] = protocol
    if told[3] is not None and int(told[4]) >= int(told[3]):
        choice["channels"] = int(told[4]) - int(told[3]) + 1
    return choice


def _name(word: str, names: tuple[str, ...]) -> str | None:
    """Returns the name that a log writes as a name or as a number; None if it is neither."""
    if word.isdecimal():
        return names[int(word)] if int(word) < len(names) else None
    return None if word.lower() == "unknown" else word[:40]


def text(choice: Choice) -> str:
    """Returns a choice as the table shows it: RING LL128 x16."""
    words = [choice.get("kernel") or choice["algorithm"], choice.get("protocol", "")]
    words += [f"x{choice['channels']}"] if "channels" in choice else []
    return " ".join(filter(None, words))


def seen(run: Callable[[], Any]) -> Choice | None:
    """Runs a collective once and returns what NCCL chose for it; None if its log does not tell.

    With NCCL_DEBUG_FILE set, reads the user's own log, which only has the choice if NCCL_DEBUG and
    NCCL_DEBUG_SUBSYS ask for it. Else opens a log for this run: NCCL 2.24 and newer can.
    """
    users = os.environ.get("NCCL_DEBUG_FILE")
    if users:
        file = Path(_expanded(users))
        begin = file.stat().st_size if file.exists() else 0
        run()
        return parse(_tail(file, begin))
    reset = _reset_function()
    if reset is None:
        run()
        return None
    with opened(reset) as log:
        run()
        return parse(_tail(log))


@contextmanager
def opened(reset: Callable[[], Any], subsystems: str = "TUNING") -> Iterator[Path]:
    """Makes NCCL write its log to a file, which is removed at the end.

    reset: ncclResetDebugInit, by which NCCL reads the variables again.
    """
    with ExitStack() as undo:
        folder = undo.enter_context(tempfile.TemporaryDirectory(prefix="oddrank-nccl-"))
        log = Path(folder) / "log"
        wanted = {
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": subsystems,
            "NCCL_DEBUG_FILE": str(log).replace("%", "%%"),
        }
        before = {name: os.environ.get(name) for name in wanted}

        def restore() -> None:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
            reset()

        undo.callback(restore)
        os.environ.update(wanted)
        reset()
        yield log


def _reset_function() -> Callable[[], Any] | None:
    """Returns ncclResetDebugInit of the NCCL in this process, None if it has none."""
    library = ctypes.CDLL(_native.load_nccl()["path"])
    reset = getattr(library, "ncclResetDebugInit", None)
    if reset is not None:
        reset.restype = None
    return reset


def _expanded(name: str) -> str:
    """Returns the file that NCCL makes of NCCL_DEBUG_FILE: %h is the host, %p the process."""
    values = {"%%": "%", "%h": socket.gethostname().partition(".")[0], "%p": str(os.getpid())}
    return re.sub(r"%[%hp]", lambda found: values[found[0]], name)


def _tail(file: Path, begin: int = 0) -> str:
    try:
        with file.open("rb") as log:
            log.seek(begin)
            return log.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
