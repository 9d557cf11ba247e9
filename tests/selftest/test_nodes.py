"""The ranks that measure for their node; the plan is short for any number of nodes."""

from made_up import run_by_node
from oddrank.control.root import RankState
from oddrank.control.stages import RunState
from oddrank.selftest.nodes import NodeLeaders, node_count


def test_hosts_of_one_name_are_as_many_nodes_as_the_launcher_counts():
    states = {r: RankState(r, "localhost", r // 2, r % 2, contact="ok") for r in range(4)}
    assert node_count(RunState(4, states)) == 2
    one = {r: RankState(r, "localhost", 0, r, contact="ok") for r in range(4)}
    assert node_count(RunState(4, one)) == 1


def test_the_ranks_are_found_again_in_the_text_of_a_plan():
    chosen = NodeLeaders.of(run_by_node("clock", [None] * 5000))
    again = NodeLeaders.unpack(chosen.pack())
    assert len(chosen.pack()) <= 2500
    assert len(again) == 5000
    assert 4 in again
    assert 5 not in again
    assert again.place(9998) == 4999
