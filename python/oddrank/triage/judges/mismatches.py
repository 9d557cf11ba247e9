"""Names the ranks that issued another operation than the others as the same call of a group."""

from oddrank.finding import ranks_text
from oddrank.triage.facts import Call, Group, Mismatch, Point, Progress, Suspect
from oddrank.triage.judges.wait_graph import processes
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
    found = []
    for group, mismatch in firsts.items():
        usual, *others = mismatch.variants
        minority = [rank for variant in others for rank in variant.ranks]
        clear = len(usual.ranks) > len(minority)
        named = minority if clear else [*usual.ranks, *minority]
        points = tuple(
            Point(f"{ranks_text(v.ranks)}: {_signature(v.call, mismatch)}", v.source)
            for v in mismatch.variants
        )
        found.append(
            Suspect(
                "mismatch", processes(view, sorted(named)), rule="different-calls",
                certainty=2 if clear else 1, support=points,
                waiting=processes(view, sorted(usual.ranks)) if clear else (),
                at=usual.call, group=group, mismatch=mismatch,
            )
        )  # fmt: skip
    return found


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
