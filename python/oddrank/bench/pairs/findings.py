"""The causes that `bench pairs` can name, and its summary if it names none."""

import math
from collections.abc import Sequence
from dataclasses import replace

from oddrank.bench.pairs.matrix import Judgement, Part, Suspect, Unit
from oddrank.bench.pairs.schedule import Where
from oddrank.control.stages import RunState
from oddrank.finding import Evidence, Finding, Level, Row, Who, ranks_text

_PLACES: dict[Where, str] = {
    "nodes": "between nodes", "ranks": "between single ranks", "inside": "inside nodes",
}  # fmt: skip
_DETECTED: dict[Unit, str] = {
    "GB/s": "smallest slowdown this run could detect",
    "us": "smallest delay this run could detect",
}
_AGAIN = "run it again: other jobs on the network or the host may have been in the way"

# fmt: off
SLOW = Row(
    "slow", "slow", "{who} {be} slow: {figures}",
    ("medium", "measured twice, but against few others, or close to the limit"))
# Sureness of SLOW with too few others, and with enough of them.
_FEW: tuple[Level, str] = (
    "low", "too few others to compare with: the other end may be slow instead")
_MANY: tuple[Level, str] = ("high", "measured twice, the second time with known-good partners")
_ONCE: tuple[Level, str] = ("low", "seen in one of two measurements at most")
# Suspects of the first measurement that are not named.
NO_TIME = Row(
    "not-confirmed", "unknown",
    "{part} was slow once and there was no time to measure it again: {figures}", _ONCE,
    ("run it again with a longer --deadline, or on fewer nodes",))
NOT_SURE = Row(
    "not-confirmed", "unknown",
    "{part} was slow once and neither clearly slow nor clearly healthy in the recheck: {figures}",
    _ONCE, (_AGAIN,))
PASSED = Row(
    "slow-once", "unknown",
    "{part} was slow once and as fast as the others in the recheck: {figures}", _ONCE, (_AGAIN,))
UNEVEN_LINKS = Row(
    "uneven-links", "unknown", "{where} the {what} differ in too many places to name one: there are"
    " several kinds of links, or the hosts are busy",
    ("low", "more than a few senders, receivers or links deviate"),
    ("look at data.pairs.GBps of the --json FILE, as a heat map: it shows racks and sockets",
     "run it on idle hosts, and inside one rack or one socket at a time"))
# A rail, or a socket without a network card.
UNEVEN_PLACES = Row(
    "uneven-places", "unknown", "between nodes, {ranks} of all nodes move less data than the others"
    " at the same time: a slower rail or socket, or a network card that does not serve all ranks"
    " equally", ("low", "single ranks were not measured while the others wait"),
    ("nvidia-smi topo -m; numactl --hardware",
     "run it on two nodes: there each rank is measured while the others wait"))
TOO_NOISY = Row(
    "too-noisy", "unknown", "no rank looks slow, but a slowdown of {effect:.0%} could have been"
    " missed {where} ({seen})", ("low", "the repeats differ too much"),
    ("give a larger --size or a longer --deadline, or use idle machines", "--effect {least}%"))
# fmt: on


def slow_part(
    run: RunState, suspect: Suspect, unit: Unit, where: Where, judgement: Judgement
) -> Finding:
    part, cause = suspect.part, _cause(suspect.part, unit == "us")
    sure = SLOW.sure
    if suspect.others <= 2:
        sure = _FEW
    elif judgement.is_clear(suspect) and suspect.others >= 4:
        sure = _MANY
    row = replace(SLOW, cause=cause, sure=sure, drains_node=not cause.endswith("-link"))
    seen = _seen(suspect, unit, f" {_PLACES[where]}", f", median of {len(part.cells)}")
    told = [replace(seen, spread=judgement.spread)]
    if judgement.seen_end is not None or judgement.seen_link is not None:  # without what it found
        told.append(Evidence(_could_see(judgement, unit), seen.source.partition(" ")[0]))
    found = row.found(_who_of(run, part), *told, figures=_figures(part, suspect, unit))
    return replace(found, next=_next_for_link(run, part, where))


def _seen(suspect: Suspect, unit: Unit, where: str = "", how: str = "") -> Evidence:
    kind = "latency" if unit == "us" else "bandwidth"
    value, median = _shown(suspect.value, unit), _shown(suspect.median, unit)
    return Evidence(f"{_cells(suspect.part)}{how}", f"{kind}{where}", value, unit, median)


def not_confirmed(run: RunState, suspect: Suspect, unit: Unit, row: Row) -> Finding:
    """A suspect of the first measurement that is not named. row: NO_TIME, NOT_SURE or PASSED."""
    part, figures = _who_of(run, suspect.part), _figures(suspect.part, suspect, unit)
    return row.found(Who("rank"), _seen(suspect, unit), part=part, figures=figures)


def uneven_links(unit: Unit, where: Where, judgement: Judgement) -> Finding:
    what = "latencies" if unit == "us" else "bandwidths"
    seen = Evidence("spread of the repeats", what, spread=judgement.spread)
    return UNEVEN_LINKS.found(Who("rank"), seen, where=_PLACES[where], what=what)


def uneven_places(slower: Sequence[int]) -> Finding:
    ranks = f"local {ranks_text(slower)}"
    seen = Evidence(f"sent by {ranks}, node by node beside the best", "bandwidth")
    return UNEVEN_PLACES.found(Who("rank"), seen, ranks=ranks)


def too_noisy(judgement: Judgement, where: Where, effect: float) -> Finding:
    return TOO_NOISY.found(
        Who("rank"), Evidence("spread of the repeats", "bandwidth", spread=judgement.spread),
        effect=effect, where=_PLACES[where], seen=_could_see(judgement, "GB/s"),
        least=min(95, 5 * math.ceil(20 * judgement.smallest())),
    )  # fmt: skip


def nobody_is_slow(
    who: str, seen: Sequence[tuple[Unit, Where, Judgement]], *, all_met: bool, all_judged: bool,
    passed: str,
) -> str:  # fmt: skip
    """Returns the summary of healthy pairs: the slowdowns that this run could detect.

    who: the measured ranks: "all N ranks"; or "all N nodes", if single ranks could not be judged.
    """
    places: dict[Unit, dict[str, list[str]]] = {}
    for unit, where, judgement in seen:
        places.setdefault(unit, {}).setdefault(_least(judgement, unit), []).append(_PLACES[where])
    parts = [
        f"{_DETECTED[unit]} " + "; ".join(f"{', '.join(at)}: {least}" for least, at in of.items())
        for unit, of in places.items()
    ]
    if "nodes" in who:
        parts.append("single ranks not judged: the ranks of a node share its network card unevenly")
    if not all_met:
        parts.append("not every link was measured")
    if not all_judged:
        parts.append("not every link was judged: the nodes differ in their number of ranks")
    parts += [passed] if passed else []
    return f"{who} move data equally fast ({'; '.join(parts)})" if parts else ""


def _could_see(judgement: Judgement, unit: Unit) -> str:
    return f"{_DETECTED[unit]}: {_least(judgement, unit)}"


def _least(judgement: Judgement, unit: Unit) -> str:
    ends = "a rank" if unit == "us" else "a sender or receiver"
    seen = {ends: judgement.seen_end, "a link": judgement.seen_link}
    known = [
        f"{name} {1 / (1 - effect):.1f} times as long" if unit == "us" else f"{name} {effect:.0%}"
        for name, effect in seen.items()
        if effect is not None
    ]
    return ", ".join(known) or "none, without a third rank to compare with"


def _cause(part: Part, delayed: bool) -> str:
    """Returns the cause: slow- or delayed-, then sender, receiver, link, rank or node."""
    nouns = {"way": "link", "both": "node" if len(part.ranks) > 1 else "rank", "among": "node"}
    noun = nouns.get(part.kind, part.kind)
    return f"delayed-{noun}" if delayed else f"slow-{noun}"


def _figures(part: Part, suspect: Suspect, unit: Unit) -> str:
    value = f"{_shown(suspect.value, unit):.4g} {unit}"
    others = f"the other{'s' * (suspect.others > 1)} {_shown(suspect.median, unit):.4g} {unit}"
    if unit == "us":
        return f"a small message {_cells(part)} takes {value}, {others}"
    verbs = {
        "sender": "it sends", "receiver": "it receives", "both": "it sends and receives",
        "among": "its ranks move among themselves",
    }  # fmt: skip
    return f"{verbs.get(part.kind, 'it moves')} {value}, {others}"


def _shown(value: float, unit: Unit) -> float:
    """Converts a judged value for people: latencies are judged as inverses."""
    return 1 / value if unit == "us" else value


def _cells(part: Part) -> str:
    ranks, to = Who("rank", part.ranks), Who("rank", part.to)
    words = {
        "sender": f"from {ranks}",
        "receiver": f"to {ranks}",
        "both": f"to and from {ranks}",
        "link": f"between {ranks} and {to}",
        "way": f"from {ranks} to {to}",
        "among": f"among {ranks}",
    }
    return words[part.kind]


def _who_of(run: RunState, part: Part) -> Who:
    """Returns a rank, a node by its ranks, or a link by both ends."""
    first, second = run.who(part.ranks), run.who(part.to)
    if part.is_between():
        names = [who.host for who in (first, second)]
        if names[0] == names[1]:
            names = [str(Who("rank", ranks)) for ranks in (part.ranks, part.to)]
        ends = f"{names[0]} {'to' if part.kind == 'way' else 'and'} {names[1]}"
        return Who("link", tuple(sorted(part.touched())), None, ends)
    return first if len(part.ranks) == 1 else Who("node", part.ranks, first.host)


def _next_for_link(run: RunState, part: Part, where: Where) -> tuple[str, ...]:
    host = run.who(part.ranks).host or "its host"
    if where == "inside":
        return (f"on {host}: nvidia-smi topo -m; nvidia-smi nvlink -s; numactl --hardware",)
    if part.is_between():
        other = run.who(part.to).host or "the other"
        return (f"on {host}: ping -c 20 -i 0.2 {other}", f"on {host}: tracepath {other}")
    return (
        f"on {host}: ip -s link; ethtool -S INTERFACE | grep -iE 'err|drop|discard|pause'",
        f"on {host}: ethtool INTERFACE | grep -E 'Speed|Duplex'; ibstat",
    )
