"""pdb over a channel: the program goes on when the debugger quits or its other side is lost."""

import os
import pdb
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from oddrank.debugger.channel import Channel
from oddrank.pauses import Paused


def place_of(frame: FrameType | None) -> str:
    """Returns a frame's place as people write it: train.py:41."""
    if frame is None:
        return "?"
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


class RankPdb(pdb.Pdb):
    """A pdb whose end is never the program's end.

    steps: called when the program first goes on under the debugger. over: called once the debugger
    has left it alone.
    """

    def __init__(
        self, channel: Channel, steps: Callable[[], None], over: Callable[[], None]
    ) -> None:
        # No signal handler: Ctrl-C stays the program's. No .pdbrc: it may hold `continue`.
        super().__init__(
            stdin=channel,  # type: ignore[arg-type]
            stdout=channel,  # type: ignore[arg-type]
            skip=["oddrank", "oddrank.*"],
            nosigint=True,
            readrc=False,
        )
        self._channel, self._steps, self._over = channel, steps, over
        self.is_over = False
        self._previous = sys.gettrace()

    def stop_at(self, frame: FrameType) -> None:
        """Stops at the next line of the frame."""
        sys.settrace(None)  # else, at another breakpoint, it would stop within itself
        self.set_trace(frame)

    def interaction(self, frame: FrameType | None, *more: Any) -> None:
        with Paused("breakpoint", self._channel.left, place_of(frame)):
            super().interaction(frame, *more)
        if sys.gettrace() is None:
            self._end()
        else:
            self._steps()

    def do_quit(self, arg: str) -> bool:
        """q(uit) | exit
        Leaves the debugger. The program goes on.
        """
        self.clear_all_breaks()
        self.set_continue()
        return True

    do_q = do_exit = do_quit

    def do_EOF(self, arg: str) -> bool:
        """EOF
        Leaves the debugger, as quit does.
        """
        if self._channel.is_late:
            self._channel.is_open = True  # for a last word
            self.message("\nthe deadline has passed: the rank goes on")
        return self.do_quit(arg)

    def do_run(self, arg: str) -> None:
        """run | restart
        Not here: a rank can't start again alone.
        """
        self.error("a rank can't start again alone")

    do_restart = do_run

    def do_interact(self, arg: str) -> None:
        """interact
        Not here: it takes a terminal. Type statements at the prompt, after a !.
        """
        self.error("it takes a terminal: type statements here, after a !")

    def _end(self) -> None:
        if not self.is_over:
            self.is_over = True
            sys.settrace(self._previous)  # oddrank's recorder has it up to Python 3.11
            self._over()
