"""The one object for time in tests: every wait takes its limit from PATIENCE.

A limit only ends a hang. It is far above what the wait needs, and grows with the slowness of the
machine, which is measured once and handed to all processes below in the environment.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TypeVar

_VARIABLE = "ODDRANK_TEST_SLOWNESS"
_QUIET = 0.02  # seconds that a quiet machine takes to start a bare Python
_MOST = 10.0
_T = TypeVar("_T")


class Patience:
    """Limits of waits, in seconds. limit: for anything that is not known to take long."""

    @cached_property
    def slowness(self) -> float:
        """How many times longer than on a quiet machine processes take to start here, 1 to 10."""
        if _VARIABLE not in os.environ:
            times = []
            for _ in range(5):
                began = time.monotonic()
                subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True, timeout=60)
                times.append(time.monotonic() - began)
            os.environ[_VARIABLE] = f"{min(_MOST, max(1.0, sorted(times)[2] / _QUIET)):.2f}"
        return float(os.environ[_VARIABLE])

    def seconds(self, normal: float) -> float:
        """Returns the limit of a wait whose limit on a quiet machine is `normal`."""
        return normal * self.slowness

    @property
    def limit(self) -> float:
        return self.seconds(60)

    @property
    def job(self) -> float:
        """Limit of a job whose ranks import torch: that alone may take a rank 20 s."""
        return self.seconds(240)

    def until(self, true: Callable[[], _T], normal: float = 60, what: str = "it") -> _T:
        """Waits until `true()` is true, and returns it; fails after seconds(normal)."""
        end = time.monotonic() + self.seconds(normal)
        while not (found := true()):
            assert time.monotonic() < end, f"{what} did not come to pass"
            time.sleep(0.005)
        return found


def at_once(calls: Iterable[Callable[[], _T]]) -> list[_T]:
    """Makes all the calls at the same time, in threads: for those that wait for deadlines."""
    with ThreadPoolExecutor(32) as pool:
        return [one.result() for one in [pool.submit(call) for call in calls]]


PATIENCE = Patience()
until = PATIENCE.until
