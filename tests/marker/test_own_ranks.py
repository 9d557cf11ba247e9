"""One of oddrank's own tests in four ranks: what a rank's record says of its calls."""

import os
from pathlib import Path

import pytest

pytestmark = [pytest.mark.needs("torch-build"), pytest.mark.job, pytest.mark.timeout(600)]


@pytest.mark.smoke
@pytest.mark.ranks(4, deadline=300)
def test_roots_and_peers_in_a_record_are_global_ranks(ranks, process_group):
    import torch
    import torch.distributed as dist

    from oddrank.trace import collectives

    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    first = ranks.rank // 2 * 2
    peer = ranks.rank ^ 1
    group, x = pairs[ranks.rank // 2], torch.ones(3)
    dist.broadcast(x, first, group=group)
    dist.reduce(x, first + 1, group=group)
    if ranks.rank < peer:
        dist.send(x, peer, group=group, tag=7)
    else:
        dist.recv(x, peer, group=group, tag=7)
    (record,) = Path(os.environ["ODDRANK_DIR"]).rglob(f"*{os.getpid()}*")
    own = [each for each in collectives.read(str(record)) if len(each.ranks) == 2]
    assert {tuple(each.ranks) for each in own} == {(first, first + 1)}
    told = [(each.op.strip("_"), each.root, each.peer) for each in own]
    assert told[:2] == [("broadcast", first, None), ("reduce", first + 1, None)]
    assert [(root, to) for _, root, to in told[2:]] == [(None, peer)]
