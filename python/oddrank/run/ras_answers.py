"""Asks NCCL's RAS while ranks stand: of a rank without a record it shows how far it has come.

RAS knows all nodes, so it is enough to ask on rank 0's host, where the judge is.
"""

import os
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from oddrank.inputs import HEAD, Item
from oddrank.run.collect.sources import nccl_ras
from oddrank.triage.evidence.nccl_ras import text_facts
from oddrank.triage.facts import Counts, Fact

APART = 6.0
"""Seconds between two answers: enough for triage to take equal counts for a stall."""
_SECONDS = 8.0  # for an answer
_MOST = 4 << 20  # bytes


class Ras:
    """The last two answers."""

    def __init__(self) -> None:
        self._answers: list[bytes] = []

    def ask(self) -> bool:
        """Returns whether there is an answer."""
        before = self._answers
        if os.environ.get("NCCL_RAS_ENABLE") != "0":
            asking = threading.Thread(target=self._ask, daemon=True)  # a stranger may never end
            asking.start()
            asking.join(_SECONDS)
        return self._answers is not before

    def _ask(self) -> None:
        address = os.environ.get("NCCL_RAS_ADDR", nccl_ras.DEFAULT)
        with suppress(OSError, ValueError):
            answer = nccl_ras.ask(address, b"VERBOSE STATUS", _MOST)
            self._answers = [*self._answers[-1:], nccl_ras.dated(time.time(), answer)]

    def facts(self, pids: Collection[int]) -> list[Fact]:
        """Returns what the answers say; nothing if they name processes of another job."""
        text = b"".join(self._answers)
        with open(os.memfd_create("nccl_ras"), "wb", buffering=0) as file:
            file.write(text)
            path = Path(f"/proc/self/fd/{file.fileno()}")
            item = Item("NCCL RAS", path, len(text), text[:HEAD], written_ns=time.time_ns())
            found = list(text_facts(item))
        counts = [fact for fact in found if isinstance(fact, Counts)]
        named = {process.pid for each in counts for _, process in each.members}
        return found if named and named <= {*pids} else []
