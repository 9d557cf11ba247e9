"""Nodes for judgements: their ranks, and what the lowest of each has measured."""

from oddrank.control.root import RankState
from oddrank.control.stages import Rounds


def rounds_of(stage, measured, *, per_node=2, **others):
    """`measured`: of each node, by number; `others`: the same of other stages."""
    nodes = len(measured)
    states = {
        rank: RankState(
            rank, host=f"node{rank // per_node}", node=rank // per_node,
            local_rank=rank % per_node, contact="ok",
        )
        for rank in range(nodes * per_node)
    }  # fmt: skip
    results = {
        name: {
            rank: said[rank // per_node] if rank % per_node == 0 else None
            for rank in range(nodes * per_node)
        }
        for name, said in {stage: measured, **others}.items()
    }
    return Rounds(nodes * per_node, states, results)


def named(findings):
    """(cause, host) of each finding; the host of a link or of nobody is None."""
    return [(finding.cause, finding.who.host) for finding in findings]
