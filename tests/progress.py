"""Makes progress facts as tests say them: rank 2 is inside all_reduce 7, rank 3 has done 6."""

from oddrank.triage.facts import Call, Group, Mismatch, Process, Progress, Source, Variant

ALL4 = Group("0", (0, 1, 2, 3), "default_pg")


def inside(rank, seq, op="all_reduce", *, group=ALL4, pending=1, backend="nccl"):
    """A rank inside a call of all members, with so many issued from that one on."""
    calls = tuple(Call(seq + i, op, state="enqueued") for i in range(min(pending, 8)))
    return progress(
        rank, group, enqueued=seq + pending - 1, completed=seq - 1, open=calls,
        open_count=pending, backend=backend,
    )  # fmt: skip


def done(rank, seq, group=ALL4, **more):
    """A rank that has completed all that it issued."""
    return progress(rank, group, enqueued=seq, completed=seq, **more)


def messages(rank, *calls, group=ALL4):
    """A rank inside sends and receives: (op, peer, seq)."""
    found = tuple(Call(seq, op, peer=peer) for op, peer, seq in calls)
    return progress(rank, group, open=found, open_count=len(found))


def progress(rank, group, *, whole=True, backend="nccl", **more):
    return Progress(
        Process(rank), group, Source(f"dump_{rank}"), backend=backend, whole=whole, **more
    )


def differ(seq, kind, *variants, group=ALL4, is_fork=False):
    """Ranks that issued different calls: (call, ranks)."""
    made = tuple(Variant(call, ranks, Source("dumps")) for call, ranks in variants)
    return Mismatch(group, seq, kind, made, is_fork)
