"""Expands SLURM's compressed host lists without SLURM."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oddrank import LaunchError
from oddrank.launch import hostlist

LISTS = {
    "n1": "n1", "n[0-3,7],m1": "n0 n1 n2 n3 n7 m1", "n[3-3]": "n3",
    "gpu[008-010]": "gpu008 gpu009 gpu010", "n[9-11]": "n9 n10 n11",
    "r[0-1]n[0,2]": "r0n0 r0n2 r1n0 r1n2", "n[0-1]-ib.site": "n0-ib.site n1-ib.site",
    "[1]" * 8: "1" * 8, "n" * 253: "n" * 253,
}  # fmt: skip


def test_a_list_expands_in_slurms_order():
    for text, names in LISTS.items():
        assert hostlist.expand(text) == names.split(), text
        assert hostlist.first(text) == names.split()[0], text
    assert hostlist.first("n[0-999999999999999999]") == "n0"  # without the others
    assert hostlist.expand("n[1-3]", limit=3) == ["n1", "n2", "n3"]
    with pytest.raises(LaunchError):
        hostlist.expand("n[1-4]", limit=3)


NO_LISTS = [
    "", ",", "n1,", "n[", "n]", "n[]", "n[3-1]", "n[a]", "n[[0]]", "n[0-]", "n[0]]", "a b", "a;b",
    "n1\n", "ñ1",
]  # fmt: skip
HOSTILE = [
    "n[0-999999999]", "a[0-9999]b[0-9999]c[0-9999]", "n[0]" * 9, "n" * 254, "n1," * (1 << 19),
]  # fmt: skip


def test_what_is_no_list_or_hostile_is_refused_at_no_cost():
    for text in NO_LISTS + HOSTILE:
        try:
            names = hostlist.expand(text)
        except LaunchError:
            continue
        pytest.fail(f"{text[:30]!a} gave {len(names)} names")


@given(st.lists(st.tuples(st.sampled_from(["n", "gpu-", "a.b"]), st.integers(0, 999)), min_size=1))
def test_names_that_were_compressed_come_back(hosts):
    compressed = ",".join(f"{prefix}[{number:03d}]" for prefix, number in hosts)
    assert hostlist.expand(compressed) == [f"{prefix}{number:03d}" for prefix, number in hosts]


@given(st.text(alphabet="n0123-[],.() x", max_size=30))
def test_any_text_is_expanded_within_its_limit_or_refused(text):
    try:
        names = hostlist.expand(text, limit=50)
    except LaunchError:
        return
    assert 1 <= len(names) <= 50


def test_task_counts_are_read_at_the_nodes_place():
    assert [hostlist.count_at("4(x2),3", node) for node in range(4)] == [4, 4, 3, None]
    assert hostlist.count_at("4(x999999999)", 123456789) == 4
    assert hostlist.count_at("4(x", 0) is None
