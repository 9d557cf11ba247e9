"""The sentence on ranks that wait on purpose. It is no finding: nothing is wrong."""

import shlex
from collections.abc import Collection, Sequence

from oddrank.finding import ranks_text
from oddrank.pauses import KINDS
from oddrank.trace.where import on_purpose
from oddrank.triage.facts import Paused, ranks
from oddrank.triage.suspects import Suspect
from oddrank.triage.words import count

_MOST_NAMED = 4


def text(suspect: Suspect, world: int | None, heard: Collection[int] = ()) -> str:
    """Returns the sentence on ranks that wait on purpose: oddrank.pauses says how they tell it.

    world: the job's size. heard: the ranks that some evidence is of.
    """
    of_kind = {kind: [p for p in suspect.pauses if p.pause.kind == kind] for kind in KINDS}
    texts = []
    if switched := of_kind["switch"]:
        processes = [one.process for one in switched]
        who_ = "all ranks" if len(processes) == world else count(processes)
        folder = switched[0].pause.what
        be = "are" if len(processes) > 1 else "is"
        texts.append(f"{who_} {be} paused by the switch {folder}{_lasts(switched)}")
        if left := set(heard) - set(ranks([one.process for one in suspect.pauses])):
            have = "have" if len(left) > 1 else "has"
            texts.append(f"{ranks_text(left)} {have} not come to the pause")
        texts.append(f"to go on: oddrank switch resume {shlex.quote(folder)}")
    if stopped := of_kind["breakpoint"]:
        few = [f"{count([one.process])} {one.pause}" for one in stopped[:_MOST_NAMED]]
        more = " and more" if len(stopped) > len(few) else ""
        texts.append(f"{', '.join(few)}{more}{_lasts(stopped)}")
    if waiting := of_kind["waits"]:
        processes = [one.process for one in waiting]
        whom = "it" if stopped else f"rank {waiting[0].pause.what} at a breakpoint"
        texts.append(f"{count(processes)} {'wait' if len(processes) > 1 else 'waits'} for {whom}")
    return "; ".join(texts)


def _lasts(pauses: Sequence[Paused]) -> str:
    """Says of the first pause how long it lasts, or since when it did if its process is gone."""
    first = pauses[0]
    return on_purpose(first.pause, None if first.gone else first.seen)
