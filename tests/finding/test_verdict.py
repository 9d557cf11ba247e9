"""From findings to a verdict, its sentence and its exit code."""

import json

from hypothesis import given
from hypothesis import strategies as st

from oddrank.finding import Who, fold, ranks_text
from reports import finding, report, valid

UNKNOWN = finding(condition="unknown", cause="all-wait", what="all ranks wait for each other")


def test_what_was_found_makes_verdict_exit_code_and_summary(golden):
    why = "the deadline of 60 s came in stage join"
    lows = (finding(2, level="low"), finding(3, condition="suspicious", level="low"))
    said = []
    for name, made, verdict, code in (
        ("nothing, in a complete run", report(size=8), "healthy", 0),
        ("somebody is named", report(finding(rank=2)), "odd", 1),
        ("and the deadline came", report(finding(), complete=False), "odd", 1),
        ("the deadline came and nobody is named", report(complete=False), "incomplete", 3),
        ("and all wait", report(UNKNOWN, complete=False), "incomplete", 3),
        ("the deadline says why", report(complete=False, why=why), "incomplete", 3),
        ("all wait", report(UNKNOWN), "unknown", 1),
        ("low confidence alone", report(*lows), "unknown", 1),
        ("and the deadline", report(finding(level="low"), complete=False), "incomplete", 3),
        ("and a name", report(finding(level="low"), finding(level="medium")), "odd", 1),
    ):
        assert (made.verdict, made.exit_code()) == (verdict, code), name
        valid(json.dumps(made.envelope()))
        said.append(f"{name}: {made.summary}")
    golden("\n".join(said))


def test_a_suspicion_and_an_unknown_come_after_the_names_and_the_order_of_causes_stays():
    cause, victim = finding(rank=3, condition="dead"), finding(rank=0)
    made = report(UNKNOWN, finding(rank=1, condition="suspicious"), cause, victim)
    assert [f.condition for f in made.findings] == ["dead", "stuck", "suspicious", "unknown"]
    assert made.summary.startswith("rank 3")
    assert made.summary.endswith("(and 3 more findings)")


def test_of_names_that_are_as_sure_the_worst_comes_first():
    conditions = ["different", "slow", "unknown", "broken", "suspicious", "late", "dead"]
    made = report(*(finding(condition=condition) for condition in conditions))
    assert [one.condition for one in made.findings] == [
        "broken", "dead", "slow", "late", "different", "suspicious", "unknown",
    ]  # fmt: skip
    sure = report(finding(condition="dead", level="medium"), finding(condition="different"))
    assert [one.condition for one in sure.findings] == ["different", "dead"]


def test_who_is_said_as_people_say_it():
    for who, text in (
        (Who("rank", (3,), "node1", "GPU 1"), "rank 3 (node1, GPU 1) is"),
        (Who("rank", (0, 1, 2, 7)), "ranks 0-2, 7 are"), (Who("rank", (1,)), "rank 1 is"),
        (Who("node", (4, 5), "node1"), "node node1 (ranks 4-5) is"),
        (Who("link", (0, 4)), "link (ranks 0, 4) is"), (Who("node", (), "node1"), "node node1 is"),
        (Who("file", device="a.log"), "file a.log is"),
        (Who("gpu", (1, 3)), "ranks 1, 3 are"),
    ):  # fmt: skip
        assert f"{who} {who.is_or_are}" == text
    for ranks, text in (
        ([3], "rank 3"), ([3, 3], "rank 3"), ([2, 1], "ranks 1-2"), ({0, 1, 3}, "ranks 0-1, 3"),
    ):  # fmt: skip
        assert ranks_text(iter(ranks)) == text


@given(st.sets(st.integers(0, 300)))
def test_folded_ranks_unfold_to_the_same_ranks(ranks):
    unfolded = set()
    for part in filter(None, fold(ranks).split(",")):
        low, _, high = part.partition("-")
        unfolded |= set(range(int(low), int(high or low) + 1))
    assert unfolded == ranks


@given(st.sets(st.integers(0, 300)), st.randoms(use_true_random=False))
def test_folding_ignores_order_and_repeats_and_is_as_short_as_it_can_be(ranks, random):
    shuffled = [*ranks, *ranks]
    random.shuffle(shuffled)
    assert fold(shuffled) == fold(ranks)
    gaps = sum(rank + 1 not in ranks for rank in ranks)
    assert len(fold(ranks).split(",")) == max(gaps, 1)
