"""All kinds of evidence, a row each, and the loop that reads them."""

import re
import shlex
from collections.abc import Iterator, Sequence

from oddrank.inputs import Item, Notes
from oddrank.inputs.files import EMPTY, is_text
from oddrank.report import SCHEMA
from oddrank.triage.evidence import (
    Kind,
    collected,
    flight_recorder,
    kernel,
    kubernetes,
    launcher,
    log_lines,
    nccl_debug,
    nccl_ras,
    nvidia_smi,
    record,
    stacks,
    tracebacks,
    watchdog,
)
from oddrank.triage.facts import Fact

# The table of docs/triage.md says what each is and where it comes from.
KINDS = (
    collected.KIND, flight_recorder.KIND, kernel.KIND, kubernetes.KIND,
    kubernetes.TYPED, launcher.KIND, nccl_debug.KIND, nccl_ras.KIND, nvidia_smi.KIND, record.KIND,
    stacks.KIND, tracebacks.KIND, watchdog.KIND,
)  # fmt: skip
_MOST_STRANGE = 8
_CORE = "a core is not read: give what `pystack core` or gdb's `thread apply all bt` say of it"
_REPORT = re.compile(rb'\s*\{\s*"schema": ?"%s",\s*"tool": ?"(\w+)"' % SCHEMA.encode())


def read(
    items: Sequence[Item], notes: Notes, kinds: Sequence[Kind] | None = None
) -> Iterator[tuple[Kind, list[Item], list[Fact]]]:
    """Yields each kind that was found, its files and its facts. Files of no kind get a note."""
    items = log_lines.placed(items)
    left, known = [], set()
    for item in items:
        if item.head.startswith(b"\x7fELF") and item.head[16:18] == b"\x04\0":
            notes.add(item, _CORE)
        elif report := _REPORT.match(item.head):
            tool = report[1].decode()
            notes.add(item, f"a report of oddrank {tool} is no evidence of a job", lost=False)
        else:
            left.append(item)
            continue
        known.add(item.name)
    for kind in sorted(KINDS if kinds is None else kinds, key=lambda kind: not kind.binary):
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
        why = "nothing found that triage can read" if item.size else EMPTY
        text = is_text(item)
        if text and item.size and item.name in notes.named - {"stdin"}:
            why += f"; for loss and speed: oddrank metrics {shlex.quote(item.name)}"
        notes.add(item, why, lost=item.name in notes.named and item.size > 0 and not text)
    if len(strange) > _MOST_STRANGE:
        notes.add(f"{len(strange) - _MOST_STRANGE} more files", "nothing found in them", lost=False)
