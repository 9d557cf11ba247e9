"""Lines that name ranks in other words than torch's: who did not come, who came, who is lost.

A row a wording: what its numbers are, and what they prove. Names of ranks of a node or of an engine
are none of the job's.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from oddrank.inputs import Item, Notes
from oddrank.triage.evidence import Kind, lines, log_lines
from oddrank.triage.evidence.log_lines import Line, Log
from oddrank.triage.evidence.nccl_ras import ranks_of
from oddrank.triage.facts import Call, Fact, Group, Process, Progress, Source, Trouble, World

_LIST = r"[\[{(]?([\d, -]+)"


# missing: these did not come to a call; ready: these wait in it; lost: a watcher lost it.
_WORDINGS = tuple(
    (says, re.compile(pattern))
    for says, pattern in (
        ("missing", rf"[Mm]issing ranks: ?{_LIST}"),
        ("missing", rf"did not respond: ranks? ?{_LIST}"),
        ("ready", rf"[Rr]eady ranks: ?{_LIST}"),
        (
            "lost",
            r"/job:jax_worker/\S*/task:(\d+)\b.{0,80}"
            r"(?:heartbeat timeout|set to ERROR|is unhealthy|disconnected)",
        ),
        ("size", r"(?:world_size=(\d+), worker_count=|/(\d+) clients joined)"),
    )
)
# Lists of Horovod and JAX stand below their heads, a line a rank. unhealthy: a watcher lost them.
_HEAD = re.compile(r"(?:Missing ranks|[Tt]imed out task names|(unhealthy)\b.*):\s*$")
_TENSOR = re.compile(r"([\w./-]+) \[(missing|ready) ranks: ?([\d, ]+)")
_LISTED = re.compile(
    r"(?:^|[\s>\]:|])(?:(\d{1,7}): \[([\w./-]+)|/job:jax_worker/\S*/task:(\d+)\s*$)"
)
_MOST_BELOW, _MOST_NEAR = 256, 16_384
# What the analyzer of the flight recorder writes below whom it misses: the group's ranks.
_EXPECTED = re.compile(rf"expected ranks: {_LIST}")


def _near(log: Log) -> dict[int, str]:
    """Returns the lines beside those that need them, read in one pass."""
    wanted: set[int] = set()
    for line in log.of("awaited"):
        if _HEAD.search(line.text) and len(wanted) < _MOST_NEAR:
            wanted.update(range(line.number + 1, line.number + _MOST_BELOW))
        elif _LISTED.match(line.text):
            wanted.update((line.number - 1, line.number))
        elif line.word == "issing ranks:":
            wanted.update(range(line.number + 1, line.number + 6))
    return dict(lines.lines(log.item, wanted - {0}))


def _facts(log: Log, line: Line, near: Mapping[int, str]) -> Iterator[Fact]:
    source = log.source(line)
    tensors = _TENSOR.findall(line.text)
    if len(tensors) > 1:  # Horovod's of 2018 stand in one line
        for op, says, numbers in tensors:
            lists = {says: ranks_of(numbers)}
            yield from _waits(op, lists.get("missing", ()), lists.get("ready", ()), line, source)
        return
    # JAX's list begins where the line above is its head.
    listed = bool(_LISTED.match(line.text))
    if begins := _HEAD.search(near.get(line.number - 1, "") if listed else line.text):
        yield from _below(near, line, line.number + (not listed), source, begins[1])
    missing: list[int] = []
    ready: list[int] = []
    for says, pattern in _WORDINGS:
        found = pattern.search(line.text)
        numbers = ranks_of(next(filter(None, found.groups()), "")) if found else ()
        if says == "missing":
            missing += numbers
        elif says == "ready":
            ready += numbers
        elif numbers and says == "lost":
            yield Trouble("unreachable", line.text.strip()[:300], source, time=line.time,
                          hits=(numbers[0],))  # fmt: skip
        elif numbers:
            yield World(numbers[0], source)
    below = range(line.number + 1, line.number + 6) if missing else ()
    if found := _EXPECTED.search("\n".join(near.get(number, "") for number in below)):
        ready += [rank for rank in ranks_of(found[1]) if rank not in missing]
    yield from _waits(tensors[0][0] if tensors else "", missing, ready, line, source)


def _below(
    near: Mapping[int, str], line: Line, first: int, source: Source, lost: str | None
) -> Iterator[Fact]:
    missing, op = [], ""
    for number in range(first, first + _MOST_BELOW):
        found = _LISTED.search(near.get(number, ""))
        if found is None:
            break
        missing.append(int(found[1] or found[3]))
        op = op or found[2] or ""
    if not lost:
        yield from _waits(op, missing, [], line, source)
        return
    for rank in missing:
        yield Trouble("unreachable", "JAX's coordination service hears nothing of it", source,
                      time=line.time, hits=(rank,))  # fmt: skip


def _waits(
    op: str, missing: Sequence[int], ready: Sequence[int], line: Line, source: Source
) -> Iterator[Fact]:
    """Yields that some wait for those that are missing: of these at least one rank is there."""
    if not missing and not ready:
        return
    group = Group(op, (), "all ranks")
    others = ready or [next(rank for rank in range(len(missing) + 1) if rank not in missing)]
    call = Call(1, op or "a collective")
    for rank in others:
        yield Progress(Process(rank), group, source, "gloo", 1, completed=0, open=(call,),
                       open_count=1, time=line.time, timed_out=True)  # fmt: skip
    for rank in missing:
        yield Progress(Process(rank), group, source, "gloo", 0, completed=0, whole=True,
                       time=line.time)  # fmt: skip


def _read(items: Sequence[Item], notes: Notes) -> Iterable[Fact]:
    for log in log_lines.read(items, notes):
        near = _near(log)
        found = [fact for line in log.of("awaited") for fact in _facts(log, line, near)]
        yield from log_lines.clocked([log], dict.fromkeys(found))


KIND = Kind("awaited", binary=False, sniff=lambda item: log_lines.has(item, "awaited"), read=_read)
