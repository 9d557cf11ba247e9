"""All kinds of evidence, a row each, and the loop that reads them."""

from collections.abc import Iterator, Sequence

from oddrank.inputs import Item, Notes
from oddrank.inputs.files import EMPTY, is_text
from oddrank.triage.evidence import (
    Kind,
    awaited,
    collected,
    cores,
    flight_recorder,
    kernel,
    kubernetes,
    launcher,
    log_lines,
    nccl_debug,
    nccl_inspector,
    nccl_ras,
    nvidia_smi,
    record,
    reports,
    stacks,
    tracebacks,
    watchdog,
)
from oddrank.triage.facts import Fact

KINDS: tuple[Kind, ...] = (
    awaited.KIND,
    collected.KIND,
    cores.KIND,
    flight_recorder.KIND,
    kernel.KIND,
    kubernetes.KIND,
    launcher.KIND,
    nccl_debug.KIND,
    nccl_inspector.KIND,
    nccl_ras.KIND,
    nvidia_smi.KIND,
    record.KIND,
    reports.KIND,
    stacks.KIND,
    tracebacks.KIND,
    watchdog.KIND,
)
_MOST_STRANGE = 8


def read(
    items: Sequence[Item], notes: Notes, kinds: Sequence[Kind] | None = None
) -> Iterator[tuple[Kind, list[Item], list[Fact]]]:
    """Yields each kind that was found, its files and its facts. Files of no kind get a note."""
    left = items = log_lines.placed(items)
    known: set[str] = set()
    kinds = KINDS if kinds is None else kinds
    for kind in sorted(kinds, key=lambda kind: not kind.binary):
        chosen = [item for item in left if kind.sniff(item)]
        if kind.binary:
            names = {item.name for item in chosen}
            left = [item for item in left if item.name not in names]
        if chosen:
            known |= {item.name for item in chosen}
            yield kind, chosen, list(kind.read(chosen, notes))
    strange = [item for item in items if item.name not in known]
    # A folder may hold other things than evidence; a file that was named is meant to be read.
    strange.sort(key=lambda item: item.name not in notes.named)
    for item in strange[:_MOST_STRANGE]:
        lost = item.name in notes.named and item.size > 0 and not is_text(item)
        why = "nothing found that oddrank can read" if item.size else EMPTY
        notes.add(item, why, lost=lost)
    if len(strange) > _MOST_STRANGE:
        notes.add(f"{len(strange) - _MOST_STRANGE} more files", "nothing found in them", lost=False)
