"""The causes that `bench pairs` can name, and what it says where it names nobody."""

import math
from collections.abc import Sequence
from dataclasses import replace

from oddrank.bench.pairs.games import Where
from oddrank.bench.pairs.looks import Unit
from oddrank.bench.pairs.matrix import Judgement, Suspect
from oddrank.bench.pairs.parts import Part
from oddrank.control.stages import Rounds
from oddrank.finding import Confidence, Evidence, Finding, Who, fold

SLOW_ONCE = "slow-once"
_PLACES: dict[Where, str] = {
    "nodes": "between nodes", "ranks": "between single ranks", "inside": "inside nodes",
}  # fmt: skip
_AGAIN = "run it again: whoever else used the network or the host may have been in the way"


def slow_part(
    rounds: Rounds, suspect: Suspect, unit: Unit, where: Where, judgement: Judgement
) -> Finding:
    """Slow in the matrix of all, and again among partners that are known to be good."""
    part = suspect.part
    who = _who_of(rounds, part)
    delayed = unit == "us"
    if suspect.others <= 2:
        sure = Confidence("low", "too few others to compare with: it may be the other end as well")
    elif judgement.is_clear(suspect) and suspect.others >= 4:
        sure = Confidence("high", "measured twice, the second time with known-good partners")
    else:
        sure = Confidence("medium", "measured twice, but against few others or near to the line")
    return Finding(
        condition="slow",
        who=who,
        cause=_cause(part, delayed),
        what=f"{who} is slow: {_figures(part, suspect, unit)}",
        stage="pairs",
        evidence=(
            Evidence(
                f"{_cells(part)}, median of {len(part.cells)}",
                f"{'latency' if delayed else 'bandwidth'} {_PLACES[where]}",
                _shown(suspect.value, unit),
                unit,
                _shown(suspect.median, unit),
                judgement.spread,
            ),
            Evidence(_could_see(judgement, unit), "latency" if delayed else "bandwidth"),
        ),
        confidence=sure,
        next=_next_for_link(rounds, part, where),
    )


def not_measured_again(rounds: Rounds, suspect: Suspect, unit: Unit) -> Finding:
    """A suspect whom there was no time to measure again, or who came after too many others."""
    but = "and could not be measured again"
    return _doubt(rounds, suspect, unit, but, "a longer --deadline, or fewer nodes")


def not_sure(rounds: Rounds, suspect: Suspect, unit: Unit) -> Finding:
    """Slow once, and with known-good partners neither clearly so nor clearly not."""
    return _doubt(rounds, suspect, unit, "and nothing clear when measured again", _AGAIN)


def slow_once(rounds: Rounds, suspect: Suspect, unit: Unit) -> Finding:
    """Slow once, and as quick as the others with known-good partners: it passed by."""
    found = _doubt(rounds, suspect, unit, "and like the others when measured again", _AGAIN)
    return replace(found, cause=SLOW_ONCE)


def _doubt(rounds: Rounds, suspect: Suspect, unit: Unit, but: str, advice: str) -> Finding:
    who = _who_of(rounds, suspect.part)
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause="not-confirmed",
        what=f"{who} was slow once {but}: {_figures(suspect.part, suspect, unit)}",
        stage="pairs",
        evidence=(
            Evidence(
                _cells(suspect.part),
                "latency" if unit == "us" else "bandwidth",
                _shown(suspect.value, unit),
                unit,
                _shown(suspect.median, unit),
            ),
        ),
        confidence=Confidence("low", "seen in one of two measurements at most"),
        next=(advice,),
    )


def uneven_links(unit: Unit, where: Where, judgement: Judgement) -> Finding:
    """So many parts differ that nobody is odd."""
    what = "latencies" if unit == "us" else "bandwidths"
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause="uneven-links",
        what=f"{_PLACES[where]} the {what} differ in too many places to name one: the links are of"
        " several kinds, or the hosts busy",
        stage="pairs",
        evidence=(Evidence("spread of the repeats", what, spread=judgement.spread),),
        confidence=Confidence("low", "more than a few senders, receivers or links deviate"),
        next=(
            "oddrank bench plot FILE  (of --json FILE: the heat map shows racks and sockets)",
            "again on hosts that do nothing else; inside one rack or one socket at a time",
        ),
    )


def uneven_places(slower: Sequence[int]) -> Finding:
    """The same ranks of all nodes: a rail, or a socket without a card of its own."""
    ranks = f"local rank{'s' * (len(slower) > 1)} {fold(slower)}"
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause="uneven-places",
        what=f"between nodes {ranks} of all nodes move less than the others at the same time: a"
        " slower rail or socket, or a way out that does not serve all of them alike",
        stage="pairs",
        evidence=(Evidence(f"sent by {ranks}, node by node beside the best", "bandwidth"),),
        confidence=Confidence("low", "single ranks were not measured while the others rest"),
        next=(
            "nvidia-smi topo -m; numactl --hardware",
            "again with two nodes: there each rank is measured while the others rest",
        ),
    )


def too_noisy(judgement: Judgement, where: Where, effect: float) -> Finding:
    """Who is slow by the effect looked for could not be told from the others."""
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause="too-noisy",
        what=f"nobody was seen to be slow, but {effect:.0%} was looked for, and"
        f" {_PLACES[where]} {_could_see(judgement, 'GB/s')}",
        stage="pairs",
        evidence=(Evidence("spread of the repeats", "bandwidth", spread=judgement.spread),),
        confidence=Confidence("low", "the repeats differ too much"),
        next=(
            "a larger --size, a longer --deadline, or on machines that do nothing else",
            f"--effect {min(95, 5 * math.ceil(20 * judgement.smallest()))}%",
        ),
    )


def nobody_is_slow(
    who: str,
    seen: Sequence[tuple[Unit, Where, Judgement]],
    *,
    all_met: bool,
    all_judged: bool,
    passed: str,
) -> str:
    """The summary of healthy pairs: what would have been seen.

    who: all ranks; or all nodes, where single ranks of them could not be judged.
    """
    parts = [f"{_PLACES[where]} {_could_see(judgement, unit)}" for unit, where, judgement in seen]
    if "nodes" in who:
        parts.append("single ranks were not judged: those of a node share its way out unevenly")
    if not all_met:
        parts.append("not every link was measured")
    if not all_judged:
        parts.append("not every link was judged: the nodes have different numbers of ranks")
    parts += [passed] if passed else []
    return f"{who} move data equally well ({'; '.join(parts)})" if parts else ""


def _could_see(judgement: Judgement, unit: Unit) -> str:
    """The smallest effects that would have been seen."""
    ends = "a rank" if unit == "us" else "a sender or receiver"
    seen = {ends: judgement.seen_end, "a link": judgement.seen_link}
    known = [
        f"{name} {1 / (1 - effect):.1f} times as long" if unit == "us" else f"{name} {effect:.0%}"
        for name, effect in seen.items()
        if effect is not None
    ]
    what = "delay" if unit == "us" else "slowdown"
    if not known:
        return f"without a third to compare with no {what} could be seen"
    return f"the smallest {what} that could have been seen: {', '.join(known)}"


def _cause(part: Part, delayed: bool) -> str:
    """slow- or delayed-, and sender, receiver, link, rank or node."""
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
        "among": "its ranks move, each to each,",
    }  # fmt: skip
    return f"{verbs.get(part.kind, 'it moves')} {value}, {others}"


def _shown(value: float, unit: Unit) -> float:
    """Latencies are judged by their inverse."""
    return 1 / value if unit == "us" else value


def _cells(part: Part) -> str:
    """Which links, in words."""
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


def _who_of(rounds: Rounds, part: Part) -> Who:
    """A rank, a node by its ranks, or a link by both ends."""
    first, second = rounds.who(part.ranks), rounds.who(part.to)
    if part.is_between():
        names = [who.host for who in (first, second)]
        if names[0] == names[1]:
            names = [str(Who("rank", ranks)) for ranks in (part.ranks, part.to)]
        ends = f"{names[0]} {'to' if part.kind == 'way' else 'and'} {names[1]}"
        return Who("link", tuple(sorted(part.touched())), None, ends)
    return first if len(part.ranks) == 1 else Who("node", part.ranks, first.host)


def _next_for_link(rounds: Rounds, part: Part, where: Where) -> tuple[str, ...]:
    """What to type, on the host of the slow one."""
    host = rounds.who(part.ranks).host or "its host"
    if where == "inside":
        return (f"on {host}: nvidia-smi topo -m; nvidia-smi nvlink -s; numactl --hardware",)
    if part.is_between():
        other = rounds.who(part.to).host or "the other"
        return (f"on {host}: ping -c 20 -i 0.2 {other}", f"on {host}: tracepath {other}")
    return (
        f"on {host}: ip -s link; ethtool -S INTERFACE | grep -iE 'err|drop|discard|pause'",
        f"on {host}: ethtool INTERFACE | grep -E 'Speed|Duplex'; ibstat",
    )
