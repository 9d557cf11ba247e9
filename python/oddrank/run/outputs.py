"""Writes the files that the user wants of a job, and reads its history, each in a child.

Their file systems may not answer: that costs the judge some seconds, and no sentence.
"""

import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from oddrank.errors import OddrankError
from oddrank.run.collect.children import Result, Say, Stop, Task, run_all
from oddrank.run.decide import ATTEMPTS, Attempt, attempts

# Guards of dead ranks wait 4.5 s for the judge's next question.
_SECONDS = 3.0


class Outputs:
    """The files of one judge."""

    def __init__(self) -> None:
        self._why: dict[str, str] = {}
        """File -> why it was not written, as it was said last."""
        self._left: dict[str, int] = {}
        """File -> the pid of a child that its file system still holds."""

    def write(self, works: Mapping[str, Callable[[], object]]) -> list[str]:
        """Calls the function of each file that it writes; returns what is new of those that failed.

        A file is left alone while a child of an earlier call hangs at it.
        """
        # No pid of a child that was reaped is kept: it may be another process's by now.
        self._left = {file: pid for file, pid in self._left.items() if _hangs(pid)}
        tasks = [Task(file, _only(work), _SECONDS) for file, work in works.items()
                 if file not in self._left]  # fmt: skip
        new = []
        for task, result in zip(tasks, _run(*tasks), strict=True):
            file, why = task.name, result.why
            if why and not result.refused:
                why = f"{file} was not written: {why}"
            if result.left is not None:
                self._left[file] = result.left
            if why and why != self._why.get(file):
                new.append(why)
            self._why[file] = why
        return new


def earlier(folder: Path) -> tuple[list[Attempt], str]:
    """Returns the last attempts that a history holds, and why they could not be read ("": read)."""

    def read(say: Say) -> None:
        for attempt in attempts(folder)[-ATTEMPTS:]:
            say(asdict(attempt))

    (result,) = _run(Task(str(folder), read, _SECONDS))
    why = f"the attempts in {folder} were not read: {result.why}" if result.why else ""
    return [Attempt(**said) for said in result.said], why


def _run(*tasks: Task) -> list[Result]:
    # Each task ends after its own seconds. With one end for all, the time that a fork takes would
    # change the sentence from call to call, and "no answer within 2.98 s" would count as new.
    return run_all(tasks, math.inf, Stop())


def _only(work: Callable[[], object]) -> Callable[[Say], None]:
    """Makes a task's work of a function that says nothing but why it fails."""

    def run(_: Say) -> None:
        try:
            work()
        except OSError as error:
            raise OddrankError(str(error)) from None

    return run


def _hangs(pid: int) -> bool:
    """Returns whether a child that was killed has still not ended."""
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    return False
