"""Made-up measurements of `bench pairs` by rank, and the judge's findings."""

from oddrank.bench.pairs.judge import PAIRS, RECHECK, Judge, settle
from oddrank.control.stages import RankState, RunState


def nodes_of(count, ranks=1):
    return {
        node * ranks + local: RankState(
            node * ranks + local, f"node{node}", node, local, contact="ok"
        )
        for node in range(count)
        for local in range(ranks)
    }


def measured(states, rate=lambda cell: 1.0, latency=lambda cell: 50.0, ranks=None, alone=False):
    """Returns three passes of every rank to those with its local rank or on its node."""
    shown = states if ranks is None else {rank: states[rank] for rank in ranks}
    found = {}
    for rank, own in shown.items():
        games = {"ranks" if alone else "nodes": [], "inside": []}
        for peer, other in [pair for pair in shown.items() if pair[0] != rank] * 3:
            rates = [10 * rate((peer, rank))] * 4
            asked = [latency((rank, peer))] * 4 if rank < peer else []
            if own.node == other.node:
                games["inside"].append((peer, rates, asked))
            elif own.local_rank == other.local_rank:
                games["ranks" if alone else "nodes"].append((peer, rates, asked))
        found[rank] = games
    return found


def named(states, first, second, *more):
    """Returns the findings after measurement and recheck. more: measurements of single ranks."""
    run = RunState(len(states), states, {PAIRS: first})
    judge = Judge(0.2)
    suspects = judge.suspects(run)
    assert suspects
    assert all(finding.condition == "unknown" for finding in suspects)  # before the recheck
    run.results[RECHECK] = {
        rank: {where: met for games in (second, *more) for where, met in games[rank].items()}
        for rank in second
    }
    return settle(judge.confirmed(run))
