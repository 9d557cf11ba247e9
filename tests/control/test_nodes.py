"""Finds the ranks that share a node."""

from dataclasses import replace

from oddrank.control import runner
from oddrank.control.root import RankState
from oddrank.control.stages import RunState, nodes_of
from oddrank.launch import Launch

HERE = Launch("env", 0, 0, 4, 2, 0, 2, "localhost", None, "job", node_is_known=False)


def test_two_hosts_with_one_name_are_two_nodes(monkeypatch):
    boots = []
    for boot in ("a", "b"):
        monkeypatch.setattr(runner, "small_file", lambda _, boot=boot: boot)
        boots.append(runner._node(HERE))
    states = {
        rank: RankState(rank, "localhost", boots[rank // 2], rank % 2, contact="ok")
        for rank in range(4)
    }
    assert nodes_of(RunState(4, states)) == [(0, 1), (2, 3)]


def test_the_launchers_number_of_a_node_counts_where_there_is_one():
    assert runner._node(replace(HERE, node=1, node_is_known=True)) == 1
