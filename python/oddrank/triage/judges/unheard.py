"""Ranks that left no word of calls in which others wait: named only if no other can be it."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Set

from oddrank.finding import ranks_text
from oddrank.triage import causes
from oddrank.triage.facts import Call, Group, Progress, Source
from oddrank.triage.judges.posts import Lacks, Post, Posts
from oddrank.triage.judges.wait_graph import Waits, oldest, processes
from oddrank.triage.suspects import Point, Suspect
from oddrank.triage.view import View

# So many ranks that do as always make one odd that does not.
_MOST_DO = 2


def judge(view: View, waits: Waits, posts: Posts) -> list[Suspect]:
    """All that left evidence wait: for ranks without evidence, or for nobody known."""
    inside = waits.inside()
    unusual, usual = _by_pattern(posts)
    if len(unusual) == 1 and len(usual) >= _MOST_DO:
        return [_odd(view, waits, unusual)]
    missing = _ends_of_chains(posts, inside)
    alone = _only_other(view, inside) if not missing and _unknown_groups(waits) else set()
    # Who did what it never did may be odd itself: the silent one may be in that call with it.
    sure = alone or (set() if unusual else _sure(view, posts, missing))
    silent = sure or missing
    if not silent:
        return [_nobody(view, posts, inside)]
    waiting, group, call = waits.waiting_for(silent)
    front = [rank for rank in inside if not silent.isdisjoint(posts.lacks(rank).unheard)]
    if not group:
        group, call = _common(view, front or sorted(inside))
    counted = view.heard - cut(view)
    how = "left no evidence" if not silent & counted else "did not say to be in this call"
    stay = "waits" if len(inside) == 1 else "wait"
    them = "it" if len(silent) == 1 else "them"
    text = f"{ranks_text(silent)} {how}; {ranks_text(inside)} {stay} in calls with {them}"
    against = "a missing dump means only that nobody wrote it"
    if silent & counted:
        against = "only counters were read: a stack of the rank would tell more"
    elif not sure and len(silent) == 1:
        against = "it may itself wait for others that left no evidence"
    return [
        Suspect(
            causes.NOT_ENTERED_OR_INSIDE,
            processes(view, sorted(silent)),
            rule="awaited-and-silent",
            # Of a job of unknown size, others may be silent, too.
            certainty=int(len(sure) == 1 and not (alone and view.world is None)),
            support=(Point(text, _first_source(view, group)),),
            against=(Point(against),),
            waiting=processes(view, sorted(waiting or inside)),
            at=call,
            group=group,
            there=processes(view, sorted(posts.in_call(waiting or inside, group, call))),
        )
    ]


def _ends_of_chains(posts: Posts, inside: Set[int]) -> set[int]:
    """Returns the silent ranks for whom others wait that wait for nobody else; else all of them."""
    found: tuple[set[int], set[int]] = (set(), set())
    lacking = {id(lacks): lacks for lacks in map(posts.lacks, posts.of)}
    for lacks in lacking.values():
        found[bool(lacks.known)].update(lacks.unheard)
    ends, others = found
    return ends - inside or others - inside


def _by_pattern(posts: Posts) -> tuple[dict[int, Post], set[int]]:
    """Returns who stands in a call that it never issued after the same calls, and who does as
    always."""
    unusual: dict[int, Post] = {}
    usual: set[int] = set()
    for rank, own in posts.of.items():
        for post in own:
            if post.call.usual is False:
                unusual[rank] = post
            elif post.call.usual:
                usual.add(rank)
    return unusual, usual


def _odd(view: View, waits: Waits, unusual: Mapping[int, Post]) -> Suspect:
    ((rank, post),) = unusual.items()
    waiting, _, _ = waits.waiting_for([rank])
    what = f"{post.call.op} {post.call.dtype} {post.call.sizes}".strip()
    text = f"rank {rank} stands in {what}, which it never issued after the same calls before"
    return Suspect(
        causes.MISMATCH, processes(view, [rank]), rule="unusual-call", certainty=1,
        support=(
            Point(text, view.progress[post.group][rank].source),
            Point("all other ranks stand where they always came to"),
        ),
        against=(Point("the other side of the call left no evidence"),),
        waiting=processes(view, sorted(waiting)), at=post.call, group=post.group,
    )  # fmt: skip


def _nobody(view: View, posts: Posts, inside: Collection[int]) -> Suspect:
    inside = inside or posts.of.keys()
    group, call = _common(view, sorted(inside))
    there = posts.in_call(inside, group, call)
    text, rule = "every rank of the group is inside the call, none is behind", "all-inside"
    if group is None and not any(
        post.call.peer is not None for own in posts.of.values() for post in own
    ):
        text, rule = "no line says in which call they wait, nor who is behind", "group-unknown"
    elif group is None:
        text = "every rank is inside messages whose other ends were issued, none is behind"
    elif not group.ranks or not set(group.ranks) <= set(there):
        text, rule = "the ranks of a group are not known, nor who is behind", "group-unknown"
    points = [Point(text, _first_source(view, group))]
    if (
        call
        and call.seq == 1
        and all(p.completed == 0 and p.backend.endswith("ccl") for p in _of_group(view, group))
    ):
        points.append(Point("no rank completed this first call of the group: the path between their"
                            " GPUs or hosts may not work at all"))  # fmt: skip
    return Suspect(
        causes.UNKNOWN, (), rule=rule, certainty=0, support=tuple(points),
        waiting=processes(view, sorted(inside)), at=call, group=group,
        there=processes(view, sorted(there)) if group is not None else None,
    )  # fmt: skip


def _first_source(view: View, group: Group | None) -> Source | None:
    first = min(_of_group(view, group), key=lambda p: p.time or 0.0, default=None)
    return first.source if first else None


def _sure(view: View, posts: Posts, missing: Collection[int]) -> set[int]:
    """Returns the ranks that others wait for, and that can't wait for anybody themselves.

    If the GPU of one rank stops in a call, the others get out: so one rank alone in a call with a
    silent one may itself be stuck, unless all other ranks of the job left evidence.
    """
    standing: dict[object, tuple[Lacks, set[int]]] = {}
    for rank, own in posts.of.items():
        for post in own:
            message = None if post.call.peer is None else rank
            key = (post.group, post.call.seq, message)
            lacks = posts.of_post(rank, post)
            standing.setdefault(key, (lacks, set()))[1].add(rank)
    awaiting: dict[int, set[int]] = {}
    alone: set[int] = set()
    for lacks, ranks in standing.values():
        if len(lacks.unheard) == 1 and not lacks.known:
            awaiting.setdefault(next(iter(lacks.unheard)), set()).update(ranks)
        if len(ranks) == 1:
            alone |= lacks.unheard
    groups = _groups(view)
    others = _without_word(view)
    most = _usual_count(view, groups)
    return {
        rank
        for rank, waiting in awaiting.items()
        if rank in missing
        and (others <= {rank} or (rank not in alone and len(groups.get(rank, ())) >= most))
        and _is_end(posts, groups.get(rank, ()), rank, waiting)
    }


def _without_word(view: View) -> set[int]:
    """Returns the ranks of the job of which nothing is known to be whole."""
    world = range(max(view.world or 0, max(view.heard, default=-1) + 1))
    everyone = set(world) | {rank for group in view.progress for rank in group.ranks}
    return everyone - ({rank for members in view.progress.values() for rank in members} - cut(view))


def cut(view: View) -> set[int]:
    """Returns the ranks whose dumps were cut off before any call that is open."""
    found: dict[int, bool] = {}
    for members in view.progress.values():
        for rank, progress in members.items():
            found[rank] = found.get(rank, True) and progress.cut and not progress.open
    return {rank for rank, none in found.items() if none}


def _groups(view: View) -> Mapping[int, list[Group]]:
    found: dict[int, list[Group]] = {}
    for group in view.progress:
        for rank in group.ranks if len(group.ranks) > 1 else ():
            found.setdefault(rank, []).append(group)
    return found


def _is_end(posts: Posts, groups: Iterable[Group], rank: int, waiting: Set[int]) -> bool:
    """Returns whether everybody that a rank without evidence could wait for waits for that rank.

    Ranks issue the calls of groups that they share in one order: who waits for the rank in a call
    has been through all calls before it, so that the rank is not in one of these. That says
    nothing of messages, which are of two alone.
    """
    own = [
        group
        for group in groups
        if waiting.isdisjoint(group.ranks) or _has_messages(posts.view, group)
    ]
    work = {member for group in own for member in group.ranks} - {rank}
    seen = set(work)
    while work:
        at = work.pop()
        lacks = posts.lacks(at)
        if not (lacks.known or lacks.unheard):
            return False
        following = (lacks.known | lacks.unheard) - {rank} - seen
        seen |= following
        work |= following
    return True


def _has_messages(view: View, group: Group) -> bool:
    return any(call.peer is not None for p in view.progress[group].values() for call in p.open)


def _usual_count(view: View, groups: Mapping[int, list[Group]]) -> int:
    heard = {rank for members in view.progress.values() for rank in members}
    return max((len(groups.get(rank, ())) for rank in heard), default=0)


def _unknown_groups(waits: Waits) -> bool:
    return any(not group.ranks for group in waits.fronts)


def _only_other(view: View, inside: Collection[int]) -> set[int]:
    """Returns the one rank of the job that is inside no call, though who is in the groups is not
    known; else nothing. If no source says how many ranks the job has, others may be silent, too."""
    others = set(range(view.world or 0)) - set(inside)
    return others if len(others) == 1 and len(inside) > 1 else set()


def _of_group(view: View, group: Group | None) -> Collection[Progress]:
    return view.progress.get(group, {}).values() if group is not None else ()


def _common(view: View, ranks: Collection[int]) -> tuple[Group | None, Call | None]:
    """Returns the call in which most of the ranks are."""
    where: Counter[tuple[Group, Call]] = Counter()
    for group, members in view.progress.items():
        for rank in ranks:
            call = oldest(members[rank]) if rank in members else None
            if call is not None:
                plain = Call(call.seq, call.op)
                where[(group, plain)] += 1
    if not where:
        return None, None
    return max(where, key=lambda key: where[key])
