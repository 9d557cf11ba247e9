"""Reads facts on a test's ranks from their records."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oddrank import _native
from oddrank.errors import type_and_text
from oddrank.inputs import Item, Notes
from oddrank.marker.rank_start import Rank
from oddrank.trace import ranks as records
from oddrank.trace.jobs import SUFFIX
from oddrank.triage.evidence import record
from oddrank.triage.facts import Death, Fact, Frame


@dataclass
class Evidence:
    """Facts from the ranks' records. sites: rank -> the place of its main thread at its end."""

    facts: list[Fact] = field(default_factory=list)
    sites: dict[int, tuple[Frame, ...]] = field(default_factory=dict)
    trouble: str = ""
    """Why the records were not read."""


def evidence(ranks: Sequence[Rank], folder: Path) -> Evidence:
    """Reads the ranks' records, and the states of their processes."""
    found = Evidence()
    pids = {rank.process.pid for rank in ranks}
    try:
        known, _ = records.read(sorted(folder.rglob(f"*{SUFFIX}")))
        # Programs that a rank starts may record themselves, too.
        own = [Path(rank.file) for rank in known if rank.pid in pids]
        magic = _native.core().TRACE_MAGIC
        for fact in record.KIND.read([Item(f.name, f, 0, magic) for f in own], Notes()):
            if not isinstance(fact, Death):  # the parent knows better how a rank ended
                found.facts.append(fact)
            elif fact.process.rank is not None:
                found.sites[fact.process.rank] = fact.site
    except Exception as error:  # the verdict says less without records: it must not be lost
        found.trouble = f"the ranks' records were not read: {type_and_text(error)}"
    return found
