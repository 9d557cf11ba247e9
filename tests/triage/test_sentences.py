"""The sentence says where each rank is, no more than was recorded, and contradicts itself never."""

from oddrank.triage.facts import Call, Death, Group, Process, Source, State, ranks
from oddrank.triage.findings import finding
from oddrank.triage.judges import deaths
from oddrank.triage.verdict import suspects
from oddrank.triage.view import view
from progress import differ, done, inside, judged


def said(*facts):
    (found,) = suspects(view(facts))
    return finding(found).what


def test_those_who_wait_for_the_rank_elsewhere_are_told_apart():
    # All are in the default group: 0 and 1 wait there, 3 waits for 2 in another group.
    pair = Group("pair", (2, 3))
    facts = [inside(0, 7), inside(1, 7), done(2, 6), done(3, 6)]
    facts += [inside(3, 4, group=pair), done(2, 3, group=pair)]
    text = said(*facts)
    assert text.endswith("ranks 0-1 wait for it there, rank 3 in other calls")


def test_a_rank_that_others_have_left_in_a_call_has_not_entered_theirs():
    facts = [inside(rank, 512) for rank in (0, 2, 3)]
    text = said(*facts, inside(1, 510))
    assert "rank 1 is stuck: inside all_reduce 510 of group default_pg" in text
    assert "rank 1 has not entered all_reduce 512; ranks 0, 2-3 wait for it there" in text


def test_several_that_did_not_get_out_of_a_call_are_not_told_apart():
    pair = Group("pair", (1, 3))
    facts = [inside(rank, 36, backend="gloo") for rank in (0, 1, 2)]
    facts += [done(3, 36, backend="gloo"), inside(3, 37, group=pair), done(1, 36, group=pair)]
    assert [certainty for *_, certainty in judged(*facts)] == [0]
    (found,) = suspects(view(facts))
    assert "ranks 0, 2 did not get out of the same call, either" in found.against[0].text


def test_sends_over_gloo_are_said_to_be_unseen_where_no_call_is_open():
    facts = [done(rank, 7, backend="gloo", no_messages=True) for rank in range(4)]
    assert "in a send or receive over gloo, or in code that is no collective" in said(*facts)
    (found,) = suspects(view(facts))
    assert "not recorded" in finding(found).confidence.why
    assert "gloo" not in said(*(done(rank, 7) for rank in range(4)))


def failed(rank):
    return Death(Process(rank), "exit", Source("record"), code=1, failed="all_reduce")


def test_who_exits_as_a_call_failed_is_a_victim_and_who_runs_is_not_gone():
    call = Call(7, "all_reduce", sizes="64")
    facts = [inside(rank, 7, backend="gloo") for rank in range(4)]
    facts += [failed(rank) for rank in (0, 2, 3)]
    facts.append(State(Process(1), "running", Source("record")))
    odd = differ(7, "sizes", (call, (0, 1, 3)), (Call(7, "all_reduce", sizes="6400"), (2,)))
    assert judged(*facts, odd) == [("mismatch", (2,), 1)]
    (found,) = deaths.judge(view(facts))
    assert (found.cause, ranks(found.processes)) == ("unknown", ())
