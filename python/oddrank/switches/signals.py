"""SIGUSR1 and SIGTERM as orders to a switch: schedulers send them before they end a job.

Python runs a handler when the training thread comes back from C++; a rank that waits in a
collective may not. So the thread of the switch hears of a signal first, by signal.set_wakeup_fd().
"""

import ctypes
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from oddrank.job_store import Poller
from oddrank.switches.order_file import KILL, SAVE

_ORDERS = {signal.SIGUSR1: SAVE, signal.SIGTERM: KILL}


class Signals:
    """The handlers of this process. Made in the main thread; forked children have none of them."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._noted: list[str] = []
        self._terminated = False
        self._previous: dict[signal.Signals, Any] = {}
        for number in _ORDERS:
            self._previous[number] = signal.getsignal(number)
            signal.signal(number, self._handle)
        others = signal.set_wakeup_fd(poller.wake_fd(), warn_on_full_buffer=False)
        self._has_fd = others == -1
        if not self._has_fd:  # an event loop's: the handlers alone have to do
            signal.set_wakeup_fd(others, warn_on_full_buffer=False)
        _active.append(self)

    def noted(self, woken: bytes) -> set[str]:
        """Returns the orders that came since the last call. woken: bytes that woke the poller."""
        words = {word for number, word in _ORDERS.items() if number in woken}
        while self._noted:
            words.add(self._noted.pop())
        return words

    def restore(self) -> None:
        """Restores the previous handlers, unless others were set since."""
        if self in _active:
            _active.remove(self)
        with suppress(ValueError):  # not in the main thread
            for number, previous in self._previous.items():
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, signal.SIG_DFL if previous is None else previous)
            if self._has_fd:
                signal.set_wakeup_fd(-1)
                self._has_fd = False

    def end_by_default(self) -> None:
        """Ends the process by SIGTERM, as it would have ended without a switch.
        Works while the main thread is in C++. Does nothing if the script has its own handler."""
        if self._previous[signal.SIGTERM] == signal.SIG_DFL:
            set_handler: Callable[..., Any] = ctypes.CDLL(None).signal
            set_handler(ctypes.c_int(signal.SIGTERM), ctypes.c_void_p(0))
            os.kill(os.getpid(), signal.SIGTERM)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM and self._terminated:  # somebody insists
            self.end_by_default()
        self._terminated |= number == signal.SIGTERM
        self._noted.append(_ORDERS[signal.Signals(number)])
        self._poller.wake()
        previous = self._previous[signal.Signals(number)]
        if callable(previous):
            previous(number, frame)


_active: list[Signals] = []  # at most one


def _forget() -> None:
    """Gives a forked child its own signals: a DataLoader's worker must end by SIGTERM."""
    while _active:
        _active[0].restore()


os.register_at_fork(after_in_child=_forget)
