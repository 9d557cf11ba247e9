"""How all ranks obey an order after the same step, without waiting for each other until then.

A rank counts its calls of poll(). An order runs through the job's store, read in a thread:

  1. Rank 0 puts the order.
  2. Each rank answers with a limit: a step ahead of it that it will not pass without the decision.
  3. Rank 0 has all answers and decides: the largest limit. No rank is beyond that step.
  4. Each rank obeys when poll() comes to that step. Ranks may come there at different times.

If an answer is missing, rank 0 decides that nothing happens. Only rank 0 decides, and once for each
order: so two ranks can't obey at different steps. A rank that has answered and gets no decision, as
the store is gone, can't know what the others do: its poll() raises an error.

poll() itself adds one and compares two integers, whatever the job's size. A collective every k
steps would cost more, and each would make fast ranks wait for slow ones.
"""

import json
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from oddrank.errors import OddrankError
from oddrank.finding import ranks_text
from oddrank.job_store import JobStore

_NEVER = sys.maxsize
_EVERY = 1.0  # seconds between reads of the store; a tenth of it while an order is under way
_ANSWERS_SECONDS = 60.0  # rank 0 waits so long for all answers
_URGENT_SECONDS = 5.0  # and so long for those to an order by signal
_DECISION_SECONDS = 300.0
"""A rank at its limit waits so long for the decision: far longer than rank 0 for the answers."""
_AGAIN_SECONDS = 30.0  # an order that was not agreed is tried again after so long

IDLE, ASKED, AGREED, OBEYED = "idle", "asked", "agreed", "obeyed"


class SwitchError(OddrankError):
    """A switch can't be used, or says that this job must not start."""


class RefusedError(SwitchError):
    """The job must not start: started again, it would be refused again (oddrank.run.decide)."""


class Wanted(NamedTuple):
    """An order to agree on.

    text: as messages name it. key: differs from the key of any other order of this job. urgent: the
    process may be about to be ended.
    """

    word: str
    text: str
    key: str
    urgent: bool = False


class Agreement:
    """One rank's part. poll() is the training thread's; all else is the switch's thread's."""

    def __init__(self, store: JobStore) -> None:
        self.store, self.steps, self.state, self.word = store, 0, IDLE, ""
        self.error = ""  # why this rank can't go on to obey; "" if it can
        self.number = 0  # orders before the present one
        self.at = 0  # the call of poll() at which the present order is obeyed, once it is agreed
        self.last, self.obeyed = "", -math.inf  # this rank's last obeyed word, and when
        self.refused = ""  # the last order, if the ranks did not agree on it
        self._look_at = _NEVER  # poll() checks nothing before this step
        self._changed = threading.Condition()
        self._every = store.pace(_EVERY)
        self._soon = self._every / 10
        self._pace: deque[tuple[float, int]] = deque([(time.monotonic(), 0)], maxlen=10)

    def poll(self) -> str:
        """Counts a step; returns the action to take after it: "" (nearly always), save or kill.

        All ranks call it equally often, and get the same answer after the same step.
        SwitchError if the other ranks can't be reached any more.
        """
        self.steps = steps = self.steps + 1
        if steps < self._look_at:
            return ""
        return self._arrive(steps)

    def turn(self) -> float:
        """Takes the due action; returns the seconds until the next turn."""
        self._pace.append((time.monotonic(), self.steps))
        if self.state == OBEYED:
            self.number, self.state = self.number + 1, IDLE
        if self.state == IDLE:
            word = self.store.look(f"{self.number}/order")
            if word is None:
                return self._every
            self._answer(word)
        elif self.state == ASKED:
            decision = self.store.look(f"{self.number}/decision")
            if decision is not None:
                self._decided(int(decision))
        return self._soon

    def fail(self, why: str) -> None:
        """Makes a rank that waits for rank 0 raise an error, now and not at its deadline."""
        with self._changed:
            if self.state == ASKED:
                self.error = why
                self._look_at = 0
            self._changed.notify_all()

    def _answer(self, word: str) -> None:
        with self._changed:
            # From here on poll() waits for this lock: no step can be counted unseen.
            self._look_at = 0
            steps = self.steps
            limit = steps + self._ahead()
            self.word, self.state, self._look_at = word, ASKED, limit
        self.store.put(f"{self.number}/limit/{self.store.rank}", json.dumps([steps, limit]))

    def _ahead(self) -> int:
        """Returns how many steps take longer than an agreement does: no rank should wait for it."""
        (then, before), (now, steps) = self._pace[0], self._pace[-1]
        if steps == before:
            return 1
        return max(1, math.ceil(3 * self._every * (steps - before) / max(now - then, 1e-3)))

    def _decided(self, at: int) -> None:
        """Takes rank 0's decision: a step, or -1 for no agreement."""
        if at < 0:
            self.refused = self.word
            self._set(OBEYED, _NEVER)
        else:
            self.at, self.refused = at, ""
            self._set(AGREED, at)

    def _set(self, state: str, look_at: int) -> None:
        with self._changed:
            self.state, self._look_at = state, look_at
            self._changed.notify_all()

    def _arrive(self, steps: int) -> str:
        """Goes on at a step that may be the agreed one; waits for the decision if need be."""
        with self._changed:
            self._changed.wait_for(
                lambda: steps < self._look_at or self.state == AGREED or self.error,
                _DECISION_SECONDS,
            )
            if steps < self._look_at and not self.error:
                return ""
            word, agreed = self.word, self.state == AGREED and not self.error
            self.state, self._look_at = OBEYED, _NEVER
            if agreed:
                self.last, self.obeyed = word, time.monotonic()
                return word
        why = self.error or f"rank 0 decided nothing within {_DECISION_SECONDS:g} s"
        raise SwitchError(
            f"rank {self.store.rank} can't know what the others do about the order to {word}:"
            f" {why}. Start the job again from its last checkpoint"
        )


class Root:
    """Rank 0's part: puts orders, and decides.

    wanted: returns the present orders, the first one first; obeyed ones may be among them. tell:
    gets a sentence for people.
    """

    def __init__(
        self,
        agreement: Agreement,
        wanted: Callable[[], Sequence[Wanted]],
        tell: Callable[[str], None],
    ) -> None:
        self._agreement, self._wanted, self._tell = agreement, wanted, tell
        self._store = agreement.store
        self._order: Wanted | None = None
        self._decided = False
        self._done: dict[str, Wanted] = {}
        self._put_at = -math.inf
        self._missing: Sequence[int] = ()  # ranks without an answer
        self._again = -math.inf
        self.behind = ""  # which rank was behind when all had answered

    @property
    def state(self) -> str:
        """The job's state, as `oddrank switch status` shows it."""
        order, at = self._order, self._agreement.at
        if self._missing:
            return f"no agreement: {ranks_text(self._missing)} did not answer"
        if order is None:
            last = next(reversed(self._done.values()), None)
            return f"runs; its last order: {last.text}" if last else "runs"
        if not self._decided:
            return f"asks all ranks to {order.text}"
        return f"will {order.text} after call {at}{self.behind}"

    def turn(self) -> None:
        agreement, now = self._agreement, time.monotonic()
        if self._order is not None:
            self._go_on(self._order, now)
            return
        new = next((one for one in self._wanted() if one.key not in self._done), None)
        if new is None:
            self._missing = ()
        elif agreement.state == IDLE and (now >= self._again or (new.urgent and not self._missing)):
            self._order, self._decided, self._put_at = new, False, now
            self._store.put(f"{agreement.number}/order", new.word)

    def _go_on(self, order: Wanted, now: float) -> None:
        agreement = self._agreement
        if agreement.state == ASKED and not self._decided:
            self._decide(order, now)
        elif agreement.state == OBEYED or (self._decided and agreement.state == IDLE):
            if not self._missing:
                self._done[order.key] = order
            self._order = None

    def _decide(self, order: Wanted, now: float) -> None:
        store, number = self._store, self._agreement.number
        keys = [f"{number}/limit/{rank}" for rank in range(store.world)]
        if store.has(keys):
            answers = [json.loads(store.look(key) or "[0, 0]") for key in keys]
            at = max(limit for _, limit in answers)
            steps = [step for step, _ in answers]
            slowest = steps.index(min(steps))
            self.behind = ""
            if min(steps) < max(steps):
                self.behind = f"; ranks were at calls {min(steps)} (rank {slowest}) to {max(steps)}"
            self._missing, self._decided = (), True
            store.put(f"{number}/decision", str(at))
            self._tell(
                f"{order.text}: all {store.world} ranks obey after call {at} of poll(){self.behind}"
            )
            return
        left = store.count("closed")
        # A rank reads once a second, and less often in a large job.
        limit = (_URGENT_SECONDS if order.urgent else _ANSWERS_SECONDS) + 2 * store.pace(0.0)
        if left or now - self._put_at >= limit:
            self._missing = [i for i, key in enumerate(keys) if not store.has([key])]
            self._decided, self._again = True, now + _AGAIN_SECONDS
            store.put(f"{number}/decision", "-1")
            why = "closed the switch" if left else f"did not answer within {limit:g} s"
            self._tell(f"not agreed: {order.text}: {ranks_text(self._missing)} {why}")
