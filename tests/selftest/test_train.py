"""Stage train: the rank that caused wrong values is named, not the ranks that received them."""

import math
import time

import pytest

from made_up import run_by_rank
from oddrank.selftest import Options
from oddrank.selftest.stages import train

STEPS = 4
NAN = math.nan.hex()


def healthy(ranks):
    return {
        rank: {
            "kind": "H200",
            "loss": [float(step).hex() for step in range(STEPS)],
            "gradients": [f"g{step}" for step in range(STEPS)],
            "sound": [True] * STEPS,
            "parameters": [f"p{step}" for step in range(STEPS + 1)],
        }
        for rank in range(ranks)
    }


def change(said, ranks, name, value, since):
    for rank in ranks:
        said[rank][name][since:] = [value] * len(said[rank][name][since:])


def judged(said, **results):
    """Returns (condition, ranks, cause) of each finding."""
    run = run_by_rank({"train": said, **results}, ranks=len(said))
    found = train.stage(Options()).conclude(run)
    assert {f.stage for f in found} <= {"train"}
    return [(f.condition, f.who.ranks, f.cause) for f in found]


def test_equal_replicas_have_no_finding():
    assert judged(healthy(4)) == []
    assert judged(healthy(1)) == []


def test_a_rank_with_other_gradients_is_named_once_and_not_for_what_it_did_to_all():
    said = healthy(4)
    change(said, [2], "gradients", "wrong", since=1)
    change(said, range(4), "parameters", "spoilt", since=2)
    assert judged(said) == [("different", (2,), "other-gradients")]


def test_after_wrong_values_in_collectives_the_rank_that_differs_may_be_the_only_good_one():
    said = healthy(4)
    change(said, [0, 1, 3], "gradients", "wrong", since=0)
    wrong = {rank: {"mismatches": [{"observer": rank}]} for rank in range(4)}
    assert judged(said, collectives=wrong) == [("unknown", (), "gradients-differ")]
    right = {rank: {"mismatches": []} for rank in range(4)}
    assert judged(said, collectives=right) == [("different", (2,), "other-gradients")]


def test_what_comes_later_is_a_consequence():
    said = healthy(4)
    change(said, [2], "parameters", "wrong", since=2)
    change(said, [2], "loss", "0x1p+0", since=2)
    change(said, [0], "gradients", "wrong", since=3)
    assert judged(said) == [("mismatch", (2,), "other-parameters")]


def test_other_parameters_before_the_first_step_are_told_so():
    said = healthy(3)
    change(said, [1], "parameters", "wrong", since=0)
    (finding,) = train.stage(Options()).conclude(run_by_rank({"train": said}, ranks=3))
    assert finding.who.ranks == (1,)
    assert "as rank 0 has sent them" in finding.what


@pytest.mark.parametrize(("ranks", "odd"), [(2, [1]), (4, [2, 3]), (6, [0, 5])])
def test_without_a_large_majority_nobody_is_named(ranks, odd):
    said = healthy(ranks)
    change(said, odd, "gradients", "wrong", since=0)
    assert judged(said) == [("unknown", (), "gradients-differ")]
    said = healthy(ranks)
    change(said, odd, "parameters", "wrong", since=1)
    assert judged(said) == [("unknown", (), "replicas-differ")]


def test_a_loss_that_is_no_number_names_its_rank_even_of_two():
    said = healthy(2)
    change(said, [1], "loss", NAN, since=1)
    change(said, [1], "sound", False, since=1)
    change(said, range(2), "sound", False, since=2)
    assert judged(said) == [("broken", (1,), "not-finite")]


def test_gradients_of_one_rank_that_make_all_others_infinite_name_that_rank():
    said = healthy(4)
    change(said, [3], "sound", False, since=0)
    change(said, range(4), "parameters", "nan", since=1)
    change(said, range(4), "loss", NAN, since=1)
    change(said, range(4), "sound", False, since=1)
    assert judged(said) == [("broken", (3,), "not-finite")]


def test_where_most_have_no_number_at_once_nobody_is_named():
    said = healthy(4)
    change(said, range(4), "loss", NAN, since=2)
    change(said, range(4), "sound", False, since=2)
    assert judged(said) == [("unknown", (), "not-finite-anywhere")]


def test_devices_of_two_kinds_may_differ_and_one_among_its_own_is_named():
    said = healthy(8)
    for rank in range(4, 8):
        said[rank]["kind"] = "H100"
    change(said, range(4, 8), "gradients", "other kind", since=0)
    change(said, range(4, 8), "parameters", "other kind", since=1)
    assert judged(said) == []
    change(said, [6], "gradients", "wrong", since=2)
    assert judged(said) == [("different", (6,), "other-gradients")]


def test_ten_thousand_ranks_are_judged_in_ten_times_the_time_of_a_thousand():
    took = {}
    for ranks in (1_000, 10_000):
        said = healthy(ranks)
        change(said, [ranks - 1], "parameters", "wrong", since=STEPS)
        began = time.thread_time()
        assert judged(said) == [("mismatch", (ranks - 1,), "other-parameters")]
        took[ranks] = time.thread_time() - began
    assert took[10_000] < 50 * took[1_000]  # looking at all pairs would take 100 times as long
