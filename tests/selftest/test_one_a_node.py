"""Which ranks measure for their node, in a plan that is short at any size."""

from measured_nodes import rounds_of
from oddrank.selftest.one_a_node import OneANode


def test_the_ranks_are_found_again_in_the_text_of_a_plan():
    chosen = OneANode.of(rounds_of("clock", [None] * 5000))
    again = OneANode.unpack(chosen.pack())
    assert len(chosen.pack()) <= 2500
    assert len(again) == 5000
    assert 4 in again
    assert 5 not in again
    assert again.place(9998) == 4999
