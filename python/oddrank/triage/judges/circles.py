"""Ranks that wait for each other: the two sides of messages, or sets of ranks in a circle."""

from collections import defaultdict

from oddrank.finding import ranks_text
from oddrank.triage.facts import Call, Group, Point, Source, Suspect
from oddrank.triage.judges.wait_graph import Waits, is_send, oldest, processes
from oddrank.triage.view import View

_MOST_RANKS = 4096
_MOST_PAIRS = 16


def judge(view: View, waits: Waits) -> list[Suspect]:
    """Returns the circle that ranks wait in, if they do: the smallest ones, of two ranks, first."""
    pairs = [
        (rank, peer)
        for rank, peers in sorted(waits.pairs.items())
        for peer in sorted(peers)
        if rank < peer and rank in waits.pairs.get(peer, ())
    ]
    if pairs:
        return [_opposed(view, waits, pairs)]
    circle = _circle(waits)
    return [_cycle(view, waits, circle)] if circle else []


def _opposed(view: View, waits: Waits, pairs: list[tuple[int, int]]) -> Suspect:
    """Two ranks that both send to each other, or both receive: the others wait for them."""
    points = []
    for one, other in pairs[:_MOST_PAIRS]:
        group, call = waits.calls[(one, other)]
        back = waits.calls[(other, one)][1]
        place = f" in group {group.text or group.name}"
        if is_send(call) == is_send(back):
            does, lacks = ("send to", "receives") if is_send(call) else ("receive from", "sends")
            text = f"ranks {one} and {other} both {does} each other{place}, and neither {lacks}"
        else:
            text = (
                f"rank {one} is in {_numbered(call)} and rank {other} in {_numbered(back)}{place}"
            )
        points.append(Point(text, view.progress[group][one].source))
    named = sorted({rank for pair in pairs for rank in pair})
    waiting, common, at = waits.waiting_for(named)
    return Suspect(
        "cycle", processes(view, named), rule="opposed-messages", certainty=2,
        support=tuple(points), waiting=processes(view, sorted(waiting)), at=at, group=common,
        cycle=tuple(processes(view, pair) for pair in pairs[:_MOST_PAIRS]),
    )  # fmt: skip


def _numbered(call: Call) -> str:
    return call.op if call.seq is None else f"{call.op} {call.seq}"


def _circle(waits: Waits) -> list[set[int]]:
    """Returns sets of ranks that wait in a circle, each set for the next; empty if none do."""
    ranks = sorted(waits.inside())[:_MOST_RANKS]
    edges = {rank: waits.of(rank) for rank in ranks}
    # Ranks with the same edges are one node: the members of a group that wait together.
    sets: dict[frozenset[int], set[int]] = defaultdict(set)
    for rank in ranks:
        sets[frozenset(edges[rank])].add(rank)
    nodes = [(members, targets) for targets, members in sets.items() if targets]
    for start in range(len(nodes)):
        path, at = [start], start
        while True:
            following = next(
                (i for i, (members, _) in enumerate(nodes) if members & nodes[at][1]), None
            )
            if following is None:
                break
            if following in path:
                loop = path[path.index(following) :]
                return [nodes[i][0] for i in loop] if len(loop) > 1 else []
            path.append(following)
            at = following
    return []


def _cycle(view: View, waits: Waits, circle: list[set[int]]) -> Suspect:
    points = []
    for members, following in zip(circle, [*circle[1:], circle[0]], strict=True):
        rank = min(members)
        at = _where(view, waits, rank, following)
        if at is not None:
            group, call, source = at
            one, other = ranks_text(members), ranks_text(following)
            text = f"{one} waits for {other} in {call.op} of group {group.name}"
            if len(members) > 1:
                text = text.replace(" waits ", " wait ", 1)
            points.append(Point(text, source))
    everyone = sorted(set().union(*circle))
    return Suspect(
        "cycle", processes(view, everyone), rule="circle", certainty=2, support=tuple(points),
        cycle=tuple(processes(view, sorted(members)) for members in circle),
    )  # fmt: skip


def _where(
    view: View, waits: Waits, rank: int, following: set[int]
) -> tuple[Group, Call, Source] | None:
    for group, fronts in waits.fronts.items():
        own = fronts.get(rank)
        if own and own[1] and any(fronts[q] < own for q in following if q in fronts):
            progress = view.progress[group][rank]
            call = oldest(progress)
            if call is not None:
                return group, call, progress.source
    for peer in waits.pairs.get(rank, set()) & following:
        group, call = waits.calls[(rank, peer)]
        return group, call, view.progress[group][rank].source
    return None
