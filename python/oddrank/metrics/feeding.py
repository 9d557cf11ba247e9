"""Feeds logs to the judge of a training: once from end to end, or as they grow."""

import time
from collections.abc import Iterator, Sequence

from oddrank import _native
from oddrank.errors import OddrankError
from oddrank.inputs import Item, growing

_MOST_LOGS = 256


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
        """Reads what is there, then what is appended. Yields after each look.

        Ends after so many seconds, or once a signal has told so: what has come until then is read.
        """
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
