"""Ranks that wait for each other: the two sides of messages, or ranks in a circle."""

from collections import deque
from collections.abc import Collection, Iterable

from oddrank.finding import group_name, ranks_text
from oddrank.triage import causes
from oddrank.triage.facts import Call, Group, Source
from oddrank.triage.judges.posts import Post, Posts
from oddrank.triage.judges.wait_graph import Waits, is_send, processes
from oddrank.triage.suspects import Point, Suspect
from oddrank.triage.view import View

_MOST_PAIRS = 16
# From so many ranks at most a circle is looked for, if no two wait for each other.
_MOST_STARTS = 64


def judge(view: View, waits: Waits, posts: Posts) -> list[Suspect]:
    """Returns the circle that ranks wait in, if they do: the shortest one.

    Who breaks every circle by coming is to blame. If that is true of several, what they always
    did before may tell; else all of them are named.
    """
    pairs = [
        (rank, peer)
        for rank, peers in sorted(waits.pairs.items())
        for peer in sorted(peers)
        if rank < peer and rank in waits.pairs.get(peer, ())
        and peer in posts.lacks(rank).missing and rank in posts.lacks(peer).missing
    ]  # fmt: skip
    for graph in (_Graph(posts, gpus=False), _Graph(posts, gpus=True)):
        circle = graph.shortest()
        if not circle:
            continue
        breakers = [rank for rank in circle if not graph.without(rank)]
        ordered = posts.ordered.issuperset(circle)
        odd = _odd(view, breakers, ordered=ordered)
        if odd is not None and len(pairs) < 2:
            return [_one(view, waits, posts, circle, odd, sure=len(breakers) == 1)]
        if pairs:
            return [_opposed(view, waits, pairs)]
        if len(breakers) > 1:
            sets = [{rank} for rank in breakers]
        else:
            sets = [graph.beside(rank) for rank in circle]
        return [_cycle(view, posts, sets, certainty=1 if graph.gpus else 2)]
    return []


class _Graph:
    """Who waits for whom, by the calls in which ranks stand. gpus: also for ranks elsewhere."""

    def __init__(self, posts: Posts, *, gpus: bool) -> None:
        self._posts = posts
        self.gpus = gpus
        self._places = {rank: tuple(map(_place, at)) for rank, at in posts.of.items()}
        self._targets: dict[object, frozenset[int]] = {}
        self._standing: dict[object, set[int]] = {}
        for rank, own in posts.of.items():
            for post, place in zip(own, self._places[rank], strict=True):
                # A message is of one rank: its place holds no other.
                key = place if post.call.peer is None else (rank, place)
                self._standing.setdefault(key, set()).add(rank)
                if key not in self._targets:
                    lacks = posts.of_post(rank, post)
                    found = lacks.known if gpus else lacks.missing
                    self._targets[key] = frozenset(found & posts.of.keys())
        self._keys = {
            rank: tuple(
                place if post.call.peer is None else (rank, place)
                for post, place in zip(own, self._places[rank], strict=True)
            )
            for rank, own in posts.of.items()
        }
        self._alive = self._peeled(())

    def without(self, rank: int) -> set[int]:
        """Returns the ranks that wait in circles, or for such ranks, if this one came."""
        return self._peeled((rank,))

    def _peeled(self, gone: Collection[int]) -> set[int]:
        """Returns the ranks that are left if whoever waits for nobody goes on, again and again."""
        alive = set(self._keys) - set(gone)
        counts = {key: len(targets & alive) for key, targets in self._targets.items()}
        awaiting: dict[int, list[object]] = {}
        for key, targets in self._targets.items():
            for rank in targets:
                awaiting.setdefault(rank, []).append(key)
        ends = deque(r for r in alive if not any(counts[key] for key in self._keys[r]))
        alive.difference_update(ends)
        while ends:
            for key in awaiting.get(ends.popleft(), ()):
                counts[key] -= 1
                if counts[key]:
                    continue
                for rank in self._standing[key]:
                    if rank in alive and not any(counts[other] for other in self._keys[rank]):
                        alive.discard(rank)
                        ends.append(rank)
        return alive

    def beside(self, rank: int) -> set[int]:
        """Returns all ranks that stand where this one does."""
        key = next(key for key in self._keys[rank] if self._targets[key] & self._alive)
        return set(self._standing[key])

    def shortest(self) -> list[int]:
        """Returns the ranks of a shortest circle, each waiting for the next; empty: none."""
        best: list[int] = []
        for start in self._starts():
            found = self._back_to(start)
            if found and (not best or len(found) < len(best)):
                best = found
            if len(best) == 2:
                break
        return best

    def _starts(self) -> Iterable[int]:
        """Yields ranks of circles of two first: these need no search."""
        for key, targets in self._targets.items():
            standing = self._standing[key] & self._alive
            looked: set[object] = set()
            for rank in targets & self._alive if standing else ():
                for back in self._keys[rank]:
                    if back not in looked:
                        looked.add(back)
                        common = standing & self._targets[back]
                        if common:
                            yield min(common)
        yield from sorted(self._alive)[:_MOST_STARTS]

    def _back_to(self, start: int) -> list[int]:
        before: dict[int, int] = {}
        seen: set[object] = set()
        work = deque([start])
        while work:
            rank = work.popleft()
            for key in self._keys[rank]:
                if key in seen:
                    continue
                seen.add(key)
                for target in sorted(self._targets[key] & self._alive):
                    if target == start:
                        path = [rank]
                        while path[-1] != start:
                            path.append(before[path[-1]])
                        return path[::-1] if len(path) > 1 else []
                    if target not in before:
                        before[target] = rank
                        work.append(target)
        return []


def _place(post: Post) -> tuple[Group, int | None, int | None, str]:
    call = post.call
    return (post.group, call.seq, call.peer, "" if call.peer is None else call.op)


def _odd(view: View, breakers: Collection[int], *, ordered: bool) -> int | None:
    """Returns the one rank to blame: no other breaks all circles, or did what it never did.

    ordered: it is known where each of them stands. If it is not, one rank against many may be the
    only one that is right.
    """
    if len(breakers) == 1 and ordered:
        return next(iter(breakers))
    unusual = [
        rank
        for rank in breakers
        if any(
            call.usual is False
            for members in view.progress.values() if rank in members
            for call in members[rank].open
        )
    ]  # fmt: skip
    return unusual[0] if len(unusual) == 1 else None


def _one(
    view: View, waits: Waits, posts: Posts, circle: list[int], odd: int, *, sure: bool
) -> Suspect:
    at = circle.index(odd)
    sets = [{rank} for rank in (*circle[at:], *circle[:at])]
    waiting, group, call = waits.waiting_for([odd])
    why = (
        f"every circle of ranks that wait for each other passes through rank {odd}" if sure
        else f"rank {odd} issued what it never issued after the same calls before"
    )  # fmt: skip
    return Suspect(
        causes.NOT_ENTERED, processes(view, [odd]), rule="in-every-circle", certainty=1,
        support=(*_points(view, posts, sets), Point(why)),
        against=(Point("it waits for others, too: the order of its calls makes it odd"),),
        waiting=processes(view, sorted(waiting)), at=call, group=group,
    )  # fmt: skip


def _opposed(view: View, waits: Waits, pairs: list[tuple[int, int]]) -> Suspect:
    """Two ranks that both send to each other, or both receive: the others wait for them."""
    points = []
    for one, other in pairs[:_MOST_PAIRS]:
        group, call = waits.calls[(one, other)]
        back = waits.calls[(other, one)][1]
        place = f" in {group_name(group.title)}"
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
        causes.CYCLE, processes(view, named), rule="opposed-messages", certainty=2,
        support=tuple(points), waiting=processes(view, sorted(waiting)), at=at, group=common,
        cycle=tuple(processes(view, pair) for pair in pairs[:_MOST_PAIRS]),
    )  # fmt: skip


def _numbered(call: Call) -> str:
    return call.op if call.seq is None else f"{call.op} {call.seq}"


def _cycle(view: View, posts: Posts, circle: list[set[int]], certainty: int) -> Suspect:
    everyone = sorted(set().union(*circle))
    return Suspect(
        causes.CYCLE, processes(view, everyone), rule="circle", certainty=certainty,
        support=_points(view, posts, circle),
        cycle=tuple(processes(view, sorted(members)) for members in circle),
    )  # fmt: skip


def _points(view: View, posts: Posts, circle: list[set[int]]) -> tuple[Point, ...]:
    points = []
    for members, following in zip(circle, [*circle[1:], circle[0]], strict=True):
        at = _where(view, posts, min(members), following)
        if at is not None:
            group, call, source = at
            one, other = ranks_text(members), ranks_text(following)
            verb = "wait" if len(members) > 1 else "waits"
            text = f"{one} {verb} for {other} in {call.op} of {group_name(group.title)}"
            points.append(Point(text, source))
    return tuple(points)


def _where(
    view: View, posts: Posts, rank: int, following: Collection[int]
) -> tuple[Group, Call, Source] | None:
    for post in posts.of.get(rank, ()):
        if not posts.of_post(rank, post).known.isdisjoint(following):
            return post.group, post.call, view.progress[post.group][rank].source
    return None
