"""What always followed the calls before is expected; without a pattern, nothing is."""

from oddrank.triage.matching import Signature, expected

STEP = [Signature("all_reduce", "float32", size) for size in (2048, 1024, 512)]


def issued(calls):
    return {seq: {call: [0, 1]} for seq, call in enumerate(calls, 1)}


def test_training_repeats_itself():
    calls = STEP * 5
    assert expected(issued(calls), len(calls) + 1) == STEP[0]
    assert expected(issued([*calls, STEP[0]]), len(calls) + 2) == STEP[1]


def test_what_followed_other_calls_now_and_then_is_no_pattern():
    save = Signature("gather")
    calls = [*STEP, *STEP, save, *STEP, *STEP, save, *STEP, *STEP, *STEP]
    assert expected(issued(calls), len(calls) + 1) is None


def test_too_little_is_no_pattern():
    assert expected({}, 1) is None
    assert expected(issued(STEP + STEP[:1]), 5) is None
