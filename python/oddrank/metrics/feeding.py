"""Feeds logs and event files to the judge of a training: once from end to end, or as they grow."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from itertools import groupby
from pathlib import Path
from typing import Any

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.inputs import Item, growing

_MOST_LOGS = 256


def events(head: bytes) -> Callable[[Path], Iterator[bytes]] | None:
    """Returns what makes lines of a file that begins so; None for other files."""
    return _lines if b"brain.Event:" in head[:64] else None


def _lines(path: Path) -> Iterator[bytes]:
    for step, scalars in groupby(_scalars(path), key=lambda scalar: scalar[0]):
        found = list(scalars)
        stamp = datetime.fromtimestamp(found[0][1], timezone.utc).isoformat()
        numbers = {tag: number for _, _, tag, number in found}
        yield f"{stamp} {json.dumps({'step': step} | numbers)}\n".encode()


def _scalars(path: Path) -> Iterator[tuple[int, float, str, Any]]:
    """Yields step, time, name and number, in the order of the file."""
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError as error:
        raise ImportError(
            "events of TensorBoard take its reader: pip install tensorboard"
        ) from error
    for event in EventFileLoader(str(path)).Load():
        for value in event.summary.value:
            # Megatron-LM writes each number twice, once with samples as its step.
            if value.WhichOneof("value") == "tensor" and not value.tag.endswith(" vs samples"):
                array = make_ndarray(value.tensor)
                if array.size == 1 and array.dtype.kind in "fiu":
                    yield event.step, event.wall_time, value.tag, array.item()


class Logs:
    """The logs of one training and what was found in them: `job`, a `_core.Metrics`."""

    def __init__(
        self, items: Sequence[Item], *, follow: bool = False, csv: bool = False, pattern: str = ""
    ) -> None:
        if len(items) > _MOST_LOGS:
            raise OddrankError(f"{len(items)} logs are too many: give at most {_MOST_LOGS}")
        self.paths = [item.name for item in items]
        self._follows = follow
        self._followers = [growing.Follower(item.path) for item in items]
        self.job = _native.core().Metrics(
            [item.written_ns for item in items], csv=csv, pattern=pattern
        )

    def read(self) -> Iterator[None]:
        """Reads all logs to their ends. Yields after each chunk, and at the end."""
        # The last line of a log that grows may go on.
        end = self.job.pause if self._follows else self.job.end
        left = dict(enumerate(follower.read() for follower in self._followers))
        while left:
            number = self.job.wanted()
            if number not in left:  # rows of the others are not needed for order
                number = next(iter(left))
            if (chunk := next(left[number], None)) is None:
                del left[number]
                end(number)
            else:
                self._feed(number, chunk)
            yield
        self.job.flush()
        yield

    def follow(self, seconds: float, told: Sequence[int]) -> Iterator[None]:
        """Reads the lines in the file, then appended ones. Yields after each look.
        Ends after so many seconds, or at a signal: lines that have come until then are read."""
        for _ in self.read():
            yield
            if told:
                break
        heard, came = time.monotonic(), False
        for found in growing.follow(self._followers, seconds, told):
            if found is not None:
                self._feed(*found)
                came = True
                continue
            if came:
                heard, came = time.monotonic(), False
                self.job.flush()
            else:
                self.job.silence(time.monotonic() - heard)
            yield

    def finish(self) -> None:
        """Reads last lines that have no end. Call it once, after the reading."""
        for number, follower in enumerate(self._followers):
            self.job.end(number)
            follower.close()
        self.job.flush()

    def _feed(self, number: int, chunk: bytes) -> None:
        if chunk:
            self.job.feed(number, chunk)
        else:
            self.job.replace(number)
