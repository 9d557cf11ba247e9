"""Names the ranks that issued another operation than the others as the same call of a group."""

from dataclasses import replace

from oddrank.finding import ranks_text
from oddrank.triage import causes
from oddrank.triage.facts import Call, Group, Mismatch, Progress
from oddrank.triage.suspects import Point, Suspect
from oddrank.triage.view import View


def judge(view: View) -> list[Suspect]:
    """Returns the mismatches at calls that some rank has not completed, the earliest a group."""
    firsts: dict[Group, Mismatch] = {}
    for mismatch in view.mismatches:
        members = view.progress.get(mismatch.group, {})
        stuck = [
            rank
            for variant in mismatch.variants
            for rank in variant.ranks
            if rank in members and not _done(members[rank], mismatch.seq)
        ]
        old = firsts.get(mismatch.group)
        if stuck and (old is None or mismatch.seq < old.seq):
            firsts[mismatch.group] = mismatch
    return [_suspect(view, group, _usual_first(firsts[group])) for group in firsts]


def _usual_first(mismatch: Mismatch) -> Mismatch:
    """Puts first, of several that as many ranks issued, what always came after these calls."""
    order = sorted(mismatch.variants, key=lambda v: (-len(v.ranks), v.usual is not True))
    return replace(mismatch, variants=tuple(order))


def _suspect(view: View, group: Group, mismatch: Mismatch) -> Suspect:
    usual, *others = mismatch.variants
    minority = [rank for variant in others for rank in variant.ranks]
    clear = len(usual.ranks) > len(minority)
    # Of two sides of one size, the one that did what it never did before is odd.
    told = not clear and bool(usual.usual) and all(v.usual is False for v in others)
    named = minority if clear or told else [*usual.ranks, *minority]
    points = tuple(
        Point(f"{ranks_text(v.ranks)}: {_signature(v.call, mismatch)}"
              + (", as always after these calls" if v.usual else ""), v.source)
        for v in mismatch.variants
    )  # fmt: skip
    against = [
        Point(f"{ranks_text(v.ranks)} issued what always came after the same calls", v.source)
        for v in others if clear and v.usual
    ]  # fmt: skip
    known = usual.usual is not None or any(v.usual is not None for v in others)
    if clear and not known:
        text = "most ranks issued the other call, and nothing earlier tells which one is wrong"
        against.append(Point(text))
    if told:
        against.append(Point("as many ranks issued the one as the other: what came before tells"))
    elif not clear:
        against.append(Point("nothing tells which of the two sides is the odd one"))
    return Suspect(
        causes.MISMATCH, view.named(sorted(named)), rule="different-calls",
        certainty=2 if clear and not against else 1 if clear or told else 0,
        support=points, against=tuple(against),
        waiting=view.named(sorted(usual.ranks)) if clear or told else (),
        at=usual.call, group=group, mismatch=mismatch,
    )  # fmt: skip


def _done(progress: Progress, seq: int) -> bool:
    return progress.completed is not None and progress.completed >= seq


def _signature(call: Call, mismatch: Mismatch) -> str:
    parts = [call.op]
    if mismatch.differs in ("sizes", "op"):
        parts.append(call.sizes)
    if mismatch.differs == "dtype":
        parts.append(call.dtype)
    if mismatch.differs == "root":
        parts.append(f"root {call.root}")
    if mismatch.differs == "peer":
        parts.append(f"peer {call.peer}")
    return " ".join(part for part in parts if part)
