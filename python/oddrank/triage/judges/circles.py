"""Ranks that wait for each other: the two sides of messages, or ranks in a circle."""

from collections import deque
from collections.abc import Collection, Iterator

from oddrank.finding import group_name, ranks_text
from oddrank.triage import causes
from oddrank.triage.judges.wait_graph import Graph, Place, is_send
from oddrank.triage.suspects import Point, Suspect
from oddrank.triage.words import call_text

_MOST_PAIRS = 16
# From so many ranks at most a circle is looked for, if no two wait for each other; and so many are
# tried at most as those without which there is none.
_MOST_STARTS = 64


def judge(graph: Graph) -> list[Suspect]:
    """Returns the circle that ranks wait in, if they do: the shortest one.

    Who breaks every circle by coming is to blame. If that is true of several, what they always
    did before may tell; else all of them are named.
    """
    opposed = {
        (rank, peer)
        for place in graph.places if place.call.peer is not None
        for rank in place.calls for peer in place.missing
    }  # fmt: skip
    pairs = sorted(
        (one, other) for one, other in opposed if one < other and (other, one) in opposed
    )
    for circles in (_Circles(graph, gpus=False), _Circles(graph, gpus=True)):
        circle = circles.shortest()
        if not circle:
            continue
        breakers = circles.breakers(circle)
        odd = _odd(graph, breakers, ordered=graph.ordered.issuperset(circle))
        if odd is not None and len(pairs) < 2:
            return [_one(graph, circle, odd, sure=len(breakers) == 1)]
        if pairs:
            return [_opposed(graph, pairs)]
        if len(breakers) > 1:
            sets = [{rank} for rank in breakers]
        else:
            sets = [circles.beside(rank) for rank in circle]
        return [Suspect(
            causes.CYCLE, graph.view.named(sorted(set().union(*sets))), rule="circle",
            certainty=1 if circles.gpus else 2, support=_points(graph, sets),
            cycle=tuple(graph.view.named(sorted(members)) for members in sets),
        )]  # fmt: skip
    return []


class _Circles:
    """The part of the graph in which ranks wait for each other. gpus: also for ranks elsewhere."""

    def __init__(self, graph: Graph, *, gpus: bool) -> None:
        self._of = graph.of
        self.gpus = gpus
        self._targets = {
            place: frozenset((place.known if gpus else place.missing) & graph.of.keys())
            for place in graph.places
        }
        self._alive = self._peeled(())

    def _peeled(self, gone: Collection[int]) -> set[int]:
        """Returns the ranks that are left if whoever waits for nobody goes on, again and again."""
        alive = set(self._of) - set(gone)
        counts = {place: len(targets & alive) for place, targets in self._targets.items()}
        awaiting: dict[int, list[Place]] = {}
        for place, targets in self._targets.items():
            for rank in targets:
                awaiting.setdefault(rank, []).append(place)
        ends = deque(r for r in alive if not any(counts[place] for place in self._of[r]))
        alive.difference_update(ends)
        while ends:
            for place in awaiting.get(ends.popleft(), ()):
                counts[place] -= 1
                if counts[place]:
                    continue
                for rank in place.calls:
                    if rank in alive and not any(counts[other] for other in self._of[rank]):
                        alive.discard(rank)
                        ends.append(rank)
        return alive

    def breakers(self, circle: list[int]) -> list[int]:
        """Returns the ranks of a circle that are in every circle, so that none is left without one.

        Empty, too, if none was found among the first that were tried.
        """
        tried = circle
        for _ in range(_MOST_STARTS):
            if not tried:
                return []
            left = self._peeled(tried[:1])
            if not left:
                break
            other = set(self._circle_ahead(min(left), left))
            tried = [rank for rank in tried if rank in other]
        else:
            return []
        # The circle is a way from one of them to itself. No path beside the way goes back: that
        # would be a circle without this rank. One that goes forward passes those between its ends.
        first = tried[0]
        at = circle.index(first)
        numbers = {rank: number for number, rank in enumerate([*circle[at:], *circle[:at]])}
        found: set[int] = set()
        seen: set[Place] = set()
        far = 0
        for rank, number in numbers.items():
            if far <= number:
                found.add(rank)
            work = [rank]
            while work:
                for place in set(self._of[work.pop()]) - seen:
                    seen.add(place)
                    for target in self._targets[place] & self._alive:
                        if target == first:
                            far = len(circle)
                        elif target in numbers:
                            far = max(far, numbers[target])
                        else:
                            work.append(target)
        return [rank for rank in circle if rank in found]

    def beside(self, rank: int) -> set[int]:
        """Returns all ranks that stand where this one does."""
        return set(next(p for p in self._of[rank] if self._targets[p] & self._alive).calls)

    def shortest(self) -> list[int]:
        """Returns the ranks of a circle, each waiting for the next; empty: none.

        If no two wait for each other, it is the shortest to which the first _MOST_STARTS lead.
        """
        best: list[int] = []
        for start in self._starts():
            found = self._back_to(start)
            if found and (not best or len(found) < len(best)):
                best = found
            if len(best) == 2:
                break
        return best

    def _starts(self) -> Iterator[int]:
        """Yields ranks of circles: first one of each two that wait for each other."""
        for place, targets in self._targets.items():
            standing = self._alive & place.calls.keys()
            looked: set[Place] = set()
            for rank in targets & self._alive if standing else ():
                for back in self._of[rank]:
                    if back not in looked:
                        looked.add(back)
                        if common := standing & self._targets[back]:
                            yield min(common)
        firsts = sorted(self._alive)[:_MOST_STARTS]
        yield from sorted({self._circle_ahead(rank, self._alive)[0] for rank in firsts})

    def _circle_ahead(self, rank: int, alive: Collection[int]) -> list[int]:
        """Returns a circle that this rank is in, or waits for. alive: each waits for another."""
        passed: dict[int, None] = {}
        while rank not in passed:
            passed[rank] = None
            rank = next(t for p in self._of[rank] for t in self._targets[p] if t in alive)
        way = list(passed)
        return way[way.index(rank) :]

    def _back_to(self, start: int) -> list[int]:
        before: dict[int, int] = {}
        seen: set[Place] = set()
        work = deque([start])
        while work:
            rank = work.popleft()
            for place in self._of[rank]:
                if place in seen:
                    continue
                seen.add(place)
                for target in sorted(self._targets[place] & self._alive):
                    if target == start:
                        path = [rank]
                        while path[-1] != start:
                            path.append(before[path[-1]])
                        return path[::-1]
                    if target not in before:
                        before[target] = rank
                        work.append(target)
        return []


def _odd(graph: Graph, breakers: Collection[int], *, ordered: bool) -> int | None:
    """Returns the one rank to blame: no other breaks all circles, or did what it never did.

    ordered: it is known where each of them stands. If it is not, one rank against many may be the
    only one that is right.
    """
    if len(breakers) == 1 and ordered:
        return next(iter(breakers))
    unusual = [
        rank
        for rank in breakers
        if any(call.usual is False for p in graph.view.of_rank[rank].values() for call in p.open)
    ]
    return unusual[0] if len(unusual) == 1 else None


def _one(graph: Graph, circle: list[int], odd: int, *, sure: bool) -> Suspect:
    at = circle.index(odd)
    sets = [{rank} for rank in (*circle[at:], *circle[:at])]
    waiting, group, call = graph.waiting_for([odd])
    why = (
        f"every circle of ranks that wait for each other passes through rank {odd}" if sure
        else f"rank {odd} issued what it never issued after the same calls before"
    )  # fmt: skip
    return Suspect(
        causes.NOT_ENTERED, graph.view.named([odd]), rule="in-every-circle", certainty=1,
        support=(*_points(graph, sets), Point(why)),
        against=(Point("it waits for others, too: the order of its calls makes it odd"),),
        waiting=graph.view.named(sorted(waiting)), at=call, group=group,
    )  # fmt: skip


def _opposed(graph: Graph, pairs: list[tuple[int, int]]) -> Suspect:
    """Two ranks that both send to each other, or both receive: the others wait for them."""
    view, points = graph.view, []
    for one, other in pairs[:_MOST_PAIRS]:
        group, call = graph.calls[(one, other)]
        back = graph.calls[(other, one)][1]
        place = f" in {group_name(group.title)}"
        if is_send(call) == is_send(back):
            does, lacks = ("send to", "receives") if is_send(call) else ("receive from", "sends")
            text = f"ranks {one} and {other} both {does} each other{place}, and neither {lacks}"
        else:
            text = (
                f"rank {one} is in {call_text(call)} and rank {other} in {call_text(back)}{place}"
            )
        points.append(Point(text, view.progress[group][one].source))
    named = sorted({rank for pair in pairs for rank in pair})
    waiting, common, at = graph.waiting_for(named)
    return Suspect(
        causes.CYCLE, view.named(named), rule="opposed-messages", certainty=2,
        support=tuple(points), waiting=view.named(sorted(waiting)), at=at, group=common,
        cycle=tuple(map(view.named, pairs[:_MOST_PAIRS])),
    )  # fmt: skip


def _points(graph: Graph, circle: list[set[int]]) -> tuple[Point, ...]:
    points = []
    for members, following in zip(circle, [*circle[1:], circle[0]], strict=True):
        rank = min(members)
        there = (place for place in graph.of[rank] if not place.known.isdisjoint(following))
        if place := next(there, None):
            one, other = ranks_text(members), ranks_text(following)
            verb = "wait" if len(members) > 1 else "waits"
            text = f"{one} {verb} for {other} in {place.call.op} of {group_name(place.group.title)}"
            points.append(Point(text, graph.view.progress[place.group][rank].source))
    return tuple(points)
