"""The majority of a fact: one vote per node; without two thirds no node is named."""

from hypothesis import given
from hypothesis import strategies as st

from oddrank.selftest.facts import Fact
from oddrank.selftest.facts.compare import compare, group


def compared(values, sizes):
    """Returns the only difference. values: of each rank; sizes: number of ranks on each node."""
    nodes, first = [], 0
    for size in sizes:
        nodes.append(tuple(range(first, first + size)))
        first += size
    facts = {rank: {"version": value} for rank, value in enumerate(values)}
    found = compare([Fact("version", lambda here: None, "breaks")], facts, nodes)
    return found[0] if found else None


def test_who_deviates_from_two_thirds_of_the_nodes_or_of_the_ranks_of_one():
    for values, sizes, deviating in (
        ("AAAAAAAABBBB", (8, 4), None), ("AAAAAAAABAAA", (8, 4), (8,)),
        ("AAAAAAAABBBBCCCC", (8, 4, 4), None), ("AB", (2,), None), ("AB", (1, 1), None),
        ("AAB", (3,), (2,)), ("AAABB", (5,), None), ("AAAB", (4,), (3,)),
    ):  # fmt: skip
        found = compared(values, sizes)
        named = None if found.common is None else found.groups[1][1]
        assert named == deviating, (values, sizes)


@given(st.lists(st.integers(1, 8), min_size=2, max_size=12), st.data())
def test_a_third_of_the_nodes_at_most_is_named_however_many_ranks_they_have(sizes, data):
    odd = data.draw(st.sets(st.sampled_from(range(len(sizes)))))
    node_of = [node for node, size in enumerate(sizes) for _ in range(size)]
    found = compared([node in odd for node in node_of], sizes)
    few = min(odd, set(range(len(sizes))) - odd, key=len)
    if not few:
        assert found is None
    elif 3 * len(few) > len(sizes):
        assert found.common is None
    else:
        named = tuple(rank for rank, node in enumerate(node_of) if node in few)
        assert (found.common, found.groups[1][1]) == (found.groups[0], named)


def test_values_are_grouped_with_their_ranks_whatever_they_are():
    assert group({0: {"a": 1, "b": 2}, 1: [2], 2: {"b": 2, "a": 1}}) == [
        ({"a": 1, "b": 2}, (0, 2)),
        ([2], (1,)),
    ]
