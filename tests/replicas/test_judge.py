"""The majority, layouts, places and texts of replicas, without ranks."""

from dataclasses import asdict

from hypothesis import given
from hypothesis import strategies as st

from oddrank.replicas import findings, groups, judge

LINE = ["params", "w", "float32", [2]]


def test_the_minority_is_named_only_if_more_than_half_agree():
    for values, odd in (("aaa", None), ("aba", (1,)), ("ab", ()), ("abba", ()), ("abccc", (0, 1))):
        assert judge.minority(dict(enumerate(values))) == odd, values
    assert judge.minority({3: "a", 5: "b", 9: "c"}) == ()


@given(st.dictionaries(st.integers(0, 50), st.sampled_from("abc"), min_size=1))
def test_who_is_named_is_always_the_smaller_part(values: dict[int, str]):
    odd = judge.minority(values)
    if odd:
        assert 2 * len(odd) < len(values)
        assert len({value for rank, value in values.items() if rank not in odd}) == 1


def test_tensors_in_which_the_same_ranks_are_odd_are_one_outlier():
    lines = [[*LINE[:1], name, *LINE[2:]] for name in ("a", "b", "c", "d")]
    digests = {0: ["1", "1", "1", "1"], 1: ["1", "1", "2", "1"], 2: ["2", "2", "1", "1"]}
    found = judge.outliers((0, 1, 2), lines, digests)
    assert [(one.ranks, [t.name for t in one.tensors]) for one in found] == [
        ((1,), ["c"]),
        ((2,), ["a", "b"]),
    ]
    assert [judge.Outlier.from_json(asdict(one)) for one in found] == found


def test_a_missing_tensor_is_told_and_the_shared_ones_stay():
    other = ["params", "v", "float32", [3]]
    found, shared = judge.layouts((0, 1, 2), {0: [LINE, other], 1: [LINE], 2: [LINE, other]})
    assert found is not None
    assert found.ranks == (1,)
    assert found.lines == ("v (params): float32 [3] on ranks 0, 2, missing on rank 1",)
    assert shared == [LINE]
    assert judge.layouts((0, 1), {0: [LINE], 1: [LINE]}) == (None, [LINE])


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=40, unique=True))
def test_ranks_come_back_from_their_text(ranks: list[int]):
    assert groups.from_text(groups.as_text(ranks)) == tuple(ranks)


def test_regular_groups_have_short_texts():
    for ranks in (range(0, 10_000, 8), (5, 4, 3), (7,), (1, 0)):
        text = groups.as_text(tuple(ranks))
        assert groups.from_text(text) == tuple(ranks)
        assert len(text) < 14


def test_the_value_that_is_shown_is_one_that_differs():
    """Ranks 1 and 4 are odd in one tensor, each at another element: the first is rank 4's."""
    place = {"blocks": 1, "different": 1, "block_bytes": 4096, "index": [3],
             "values": {"1.0 (0x1)": [0, 1, 2, 3], "7.0 (0x7)": [4]}}  # fmt: skip
    tensor = judge.Different("w", "params", "float32", (9,), place)
    outlier = judge.Outlier((0, 1, 2, 3, 4), (1, 4), 1, [tensor])
    said = findings.different_bits(outlier, {}).what
    assert "first at [3]: 7.0 (0x7) instead of 1.0 (0x1)" in said
