"""From findings to a verdict, its sentence and its exit code."""

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oddrank.finding import Who, fold, ranks_text
from oddrank.report import FAILING, SCHEMA_FILE
from reports import finding, report

UNKNOWN = finding(condition="unknown", cause="all-wait", what="all ranks wait for each other")


def test_nothing_found_in_a_complete_run_is_healthy():
    healthy = report(size=8)
    assert (healthy.verdict, healthy.exit_code()) == ("healthy", 0)
    assert healthy.summary == "all 8 ranks are healthy"


def test_somebody_named_is_odd_and_the_summary_is_its_sentence():
    odd = report(finding(rank=2))
    assert (odd.verdict, odd.exit_code()) == ("odd", 1)
    assert odd.summary == "rank 2 (node1, GPU 2) is stuck: stopped in stage all_reduce"


def test_somebody_named_is_odd_even_when_the_deadline_came():
    assert report(finding(), complete=False).exit_code() == 1


def test_a_deadline_with_nobody_named_is_incomplete():
    for incomplete in (report(complete=False), report(UNKNOWN, complete=False)):
        assert (incomplete.verdict, incomplete.exit_code()) == ("incomplete", 3)


def test_no_verdict_possible_is_unknown_and_not_healthy():
    unknown = report(UNKNOWN)
    assert (unknown.verdict, unknown.exit_code()) == ("unknown", 1)
    assert unknown.summary == "all ranks wait for each other"


def test_an_incomplete_run_says_why():
    why = "the deadline of 60 s came in stage join"
    assert report(complete=False, why=why).summary == why


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


def test_low_confidence_alone_is_unknown_and_never_odd():
    low = report(finding(rank=2, level="low"), finding(rank=3, condition="suspicious", level="low"))
    assert (low.verdict, low.exit_code()) == ("unknown", 1)
    assert report(finding(level="low"), complete=False).verdict == "incomplete"
    assert report(finding(level="low"), finding(level="medium")).verdict == "odd"
    jsonschema.validate(json.loads(json.dumps(low.envelope())), json.loads(SCHEMA_FILE.read_text()))


def test_the_surer_name_comes_first():
    made = report(finding(rank=0, level="low"), finding(rank=1, level="high"))
    assert [f.who.ranks for f in made.findings] == [(1,), (0,)]


@pytest.mark.parametrize(
    ("fail_on", "codes"),
    [
        (FAILING, [0, 1, 1, 3]), ({"odd"}, [0, 1, 0, 0]), ({"incomplete"}, [0, 0, 0, 3]),
        ((), [0] * 4),
    ],
)  # fmt: skip
def test_fail_on_picks_what_is_not_zero(fail_on, codes):
    reports = [report(), report(finding()), report(UNKNOWN), report(complete=False)]
    assert [made.exit_code(frozenset(fail_on)) for made in reports] == codes


@pytest.mark.parametrize(
    ("who", "text"),
    [
        (Who("rank", (3,), "node1", "GPU 1"), "rank 3 (node1, GPU 1)"),
        (Who("rank", (0, 1, 2, 7)), "ranks 0-2, 7"),
        (Who("node", (4, 5), "node1"), "node node1 (ranks 4-5)"),
        (Who("link", (0, 4)), "link (ranks 0, 4)"),
        (Who("node", (), "node1"), "node node1"),
        (Who("file", device="a.log"), "file a.log"),
    ],
)
def test_who_is_said_as_people_say_it(who, text):
    assert str(who) == text


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([3], "rank 3"), ([3, 3], "rank 3"), ([2, 1], "ranks 1-2"), ({0, 1, 3}, "ranks 0-1, 3")],
)
def test_ranks_are_named_in_the_singular_or_the_plural(ranks, text):
    assert ranks_text(iter(ranks)) == text


@pytest.mark.parametrize(
    ("who", "verb"),
    [
        (Who("rank", (1,)), "is"), (Who("rank", (1, 3)), "are"), (Who("gpu", (1, 3)), "are"),
        (Who("node", (4, 5), "node1"), "is"), (Who("link", (0, 4)), "is"),
    ],
)  # fmt: skip
def test_the_verb_fits_the_name(who, verb):
    assert who.is_or_are == verb


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
