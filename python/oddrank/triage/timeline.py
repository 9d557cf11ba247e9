"""One order of what happened: ends, timeouts and faults, as far as clocks allow.

Times of one host are on one clock. Clocks of several hosts may differ, so that their events are
merged by time, and the order between hosts is said to be uncertain where they are close. Times
without a zone are hours off, perhaps: nothing orders them and those with one.
"""

import re
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from oddrank.finding import grouped, ranks_text
from oddrank.triage.facts import Death, Fact, Progress, Source, Stop, Trouble
from oddrank.triage.words import call_of

# Clocks of hosts that keep time are this close, in seconds; whole seconds are less exact.
_CLOCKS = 1.0
_MOST_TEXT, _MOST_WORDS = 160, 300
# How an error says that a call waited in vain, and that a peer was gone.
WAITED = re.compile(
    r"Timed out waiting \d+ ?ms|Watchdog caught|wait timeout after"
    r"|failed to pass monitoredBarrier|received errors while waiting for send/recv"
    r"|timed out in monitoredBarrier|[Oo]peration timed out|Timeout\(ms\)="
    r"|waiting for clients\. \d+/\d+ clients joined|store based barrier"
    r"|rocess on rank \d+ due to timeout|Watchdog timeout \(|Barrier timed out\. "
    r"|RPC call to \w+ timed out|EI000[26]\b|NPU error, error code is 107020"
    r"|Hccl\w+, error code is [69]\b|hccl fftsplus (?:task )?timeout"
    # The watchdog's own words, cut off by a terminal or a limit.
    r"|watchdog thread terminated(?: with(?: exception:?)?)?\s*$|^\[(?:PG\b[^\]]*|Rank \d*)\]?\s*$"
)
LOST = re.compile(
    r"Connection (?:was )?(?:reset|closed|refused|aborted)|[Bb]roken pipe|BrokenPipeError"
    r"|ConnectionResetError|ECONNRESET|recvValue failed|failed to recv, got 0 bytes"
    r"|Remote process exited|remote process exited|ncclRemoteError|remote error"
    r"|communicator was aborted|aborted communicator|DistStoreError|DistNetworkError(?!: The serv)"
    r"|RendezvousConnectionError|RendezvousClosedError|client socket has|Socket Timeout"
    r"|Socket closed|store->get\(|Application timeout caused pair closure"
    r"|NCCL watchdog(?! hang)|No route to host|Software caused connection abort"
    r"|another rank|rocess on rank \d+ due to error"
    # Messages of drivers and engines about a worker that died.
    r"|ActorDied|ActorUnavailable|RayActorError|WorkerCrashed|[Aa]ctor (?:died|is dead)"
    r"|EngineDeadError|Engine core (?:initialization|proc\w*) (?:failed|died)|another task died"
    r"|[Ww]orker(?:Proc)?\w* (?:initialization failed|died|failed with error)|child failed"
    r"|RuntimeError: cancelled$|CheckpointException ranks:"
)
ZONES = 14 * 3600.0  # times without a zone may be so many seconds off


@dataclass(frozen=True, slots=True)
class Event:
    """An event at a time. ranks: the ranks that it concerns. count: how often."""

    time: float
    text: str
    source: Source
    host: str | None = None
    ranks: tuple[int, ...] = ()
    coarse: bool = False
    count: int = 1
    wall: bool = False


def timeline(facts: Iterable[Fact]) -> list[Event]:
    """Returns all events with a time, the earliest first; equal ones of several ranks are one."""
    # What several ranks, or sources of one rank, tell of within a second is one event.
    folded = grouped(((e.text, "" if e.ranks else e.host, int(e.time)), e) for e in _events(facts))
    found = []
    for events in folded.values():
        first = min(events, key=lambda event: event.time)
        ranks = tuple(sorted({rank for event in events for rank in event.ranks}))
        count = len(ranks) or sum(event.count for event in events)
        coarse = any(event.coarse for event in events)
        found.append(replace(first, ranks=ranks, coarse=coarse, count=count))
    return sorted(found, key=lambda event: (event.time, event.ranks, event.text))


def lines(events: Iterable[Event], most: int = 20) -> list[str]:
    """Returns events as lines: UTC time, process, event. `~`: its order is not sure.

    If there are too many, the first ones: the cause is among them.
    """
    events = list(events)
    found = []
    for index, event in enumerate(events[:most]):
        before = events[index - 1] if index else None
        unsure = before is not None and not ordered(before, event)
        mark = "~" if unsure else " "
        name = ranks_text(event.ranks) if event.ranks else event.host or ""
        times = f" ({event.count} times)" if event.count > max(len(event.ranks), 1) else ""
        who = f"{name}: " if name else ""
        whole, thousandths = divmod(round(event.time * 1000), 1000)
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(whole))
        found.append(f"{mark}{when}.{thousandths:03}  {who}{event.text}{times}")
    if len(events) > most:
        found.append(f"... and {len(events) - most} more")
    return found


def ordered(first: Event, second: Event) -> bool:
    """Returns whether the clocks allow to say that one event came before the other."""
    apart = second.time - first.time
    if first.wall != second.wall:
        apart -= ZONES
    if first.coarse or second.coarse:
        apart -= 1.0
    if not (first.host and first.host == second.host) and first.source.file != second.source.file:
        apart -= _CLOCKS
    return apart > 0


def _events(facts: Iterable[Fact]) -> Iterable[Event]:
    for fact in facts:
        if isinstance(fact, Death) and fact.time is not None:
            yield _event(fact, fact.time, death_text(fact), fact.coarse)
        elif isinstance(fact, Progress) and fact.timed_out and fact.time is not None:
            call = next(iter(fact.open), None)
            what = call_of(call, fact.group, "a call")
            how = "failed" if fact.failed else "timed out"
            yield _event(fact, fact.time, f"{how} in {what}")
            if call is not None and call.since is not None:
                yield _event(fact, call.since, f"entered {what}")
        elif isinstance(fact, Stop) and fact.time is not None:
            told = f"was told to end by signal {fact.signal}" if fact.signal else "ended the job"
            text = f"{fact.what} {told}" + (f": {fact.why}" if fact.why else "")
            yield Event(fact.time, text, fact.source, wall=fact.wall)
        elif isinstance(fact, Trouble) and fact.time is not None:
            device = f"{fact.device}: " if fact.device else ""
            text = f"{device}{fact.text}"[:_MOST_TEXT]
            yield Event(fact.time, text, fact.source, fact.host, count=fact.count, wall=fact.coarse)


def _event(fact: Death | Progress, at: float, text: str, coarse: bool = False) -> Event:
    process = fact.process
    ranks = (process.rank,) if process.rank is not None else ()
    if not ranks and process.pid is not None:
        text = f"process {process.pid} {text}"
    return Event(at, text, fact.source, process.host, ranks, coarse, wall=fact.wall)


def said(death: Death) -> str:
    """Returns the first line of a process's last words."""
    text = death.text.strip().partition("\n")[0]
    cut = len(text) > _MOST_WORDS or re.search(r"\[[\w ]*$", text)  # by a terminal
    return f"{text[:_MOST_WORDS]}..." if cut else text


def signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}" if number else "a signal"


def death_text(death: Death, at: str = "", *, several: bool = False) -> str:
    """Returns how one or several processes ended, as the predicate of a sentence. at: where."""
    text, by = said(death), f" by the {death.by}" if death.by else ""
    was = "were" if several else "was"
    how = {
        "exception": f"raised {text or 'an exception'}{at}",
        "signal": f"{was} killed{by} with {signal_name(death.signal)}{at}",
        "oom": f"ran out of memory{at}" + (f" and {was} killed{by}" if by else ""),
        "exit": ("ended" if death.code is None else f"exited with code {death.code}") + at,
        "evicted": f"{was} evicted{by}{at}",
        "abort": f"aborted{by}{at}" + (f": {text}" if text else ""),
    }[death.how]
    # If the killer is known, its words on a kill for memory only repeat this.
    told = death.how in ("exception", "abort") or (death.how == "oom" and death.by)
    return f"{how} ({text})" if text and not told else how
