"""Whoever is waited for and waits for nobody is the culprit; progress decides, never a vote."""

import random
from dataclasses import replace

from oddrank.triage.facts import (
    Call,
    Group,
    Identity,
    Process,
    Progress,
    Source,
    State,
    World,
    ranks,
)
from oddrank.triage.findings import finding
from oddrank.triage.judges import waits
from oddrank.triage.verdict import suspects
from oddrank.triage.view import view
from progress import ALL4, differ, done, inside, judged, messages, progress


def test_a_rank_that_did_not_enter_the_call_of_the_others_is_named():
    facts = [inside(0, 7), inside(1, 7), done(2, 6), inside(3, 7)]
    assert judged(*facts) == [("not-entered", (2,), 2)]
    (found,) = suspects(view(facts))
    assert [p.rank for p in found.waiting] == [0, 1, 3]
    told = finding(found)
    assert (told.condition, told.who.ranks) == ("stuck", (2,))
    assert "rank 2 is stuck" in told.what
    assert "it has not entered all_reduce 7 of group default_pg (ranks 0-3)" in told.what
    assert told.what.endswith("ranks 0-1, 3 wait for it there")


def test_the_rank_that_is_ahead_is_not_named_when_most_are_behind():
    # 2 of 4 wait in call 641, which the other 2 have not entered.
    facts = [done(0, 640), done(1, 640), inside(2, 641), inside(3, 641)]
    assert judged(*facts) == [("not-entered", (0, 1), 2)]


def test_a_gpu_that_completes_nothing_while_its_host_goes_on():
    facts = [inside(0, 9), inside(1, 9), inside(2, 7, pending=20), inside(3, 9)]
    assert judged(*facts) == [("gpu-stopped", (2,), 2)]


def test_who_waits_in_one_group_is_no_culprit_in_another():
    rows, columns = [Group("r0", (0, 1)), Group("r1", (2, 3))], [Group("c", (1, 3))]
    # 0 waits for 1 in its row; 1 waits for 3 in the column; 3 has entered neither.
    facts = [
        inside(0, 5, group=rows[0]), done(1, 4, group=rows[0]), inside(1, 3, group=columns[0]),
        done(3, 2, group=columns[0]), inside(2, 5, group=rows[1]), done(3, 4, group=rows[1]),
    ]  # fmt: skip
    assert judged(*facts) == [("not-entered", (3,), 2)]


def test_groups_of_one_name_and_other_ranks_are_not_compared():
    one, other = Group("1", (0, 1)), Group("1", (2, 3))
    facts = [inside(0, 90, group=one), done(1, 89, group=one)]
    facts += [inside(2, 3, group=other), inside(3, 3, group=other)]
    assert judged(*facts)[0] == ("not-entered", (1,), 2)


def test_a_host_that_issues_ahead_does_not_hide_whom_its_gpu_waits_for():
    # Rank 2's GPU stopped in a. Rank 1 waits for it there and has issued call 9 of b, in which its
    # GPU is not yet; rank 0 stands in call 9 of b, and rank 3 waits for rank 0 in c.
    a, b, c = Group("a", (1, 2)), Group("b", (0, 1)), Group("c", (0, 3))

    def at(rank, group, *seqs, since, pending=1):
        calls = tuple(Call(seq, "all_reduce", since=since + seq) for seq in seqs)
        return progress(
            rank, group, enqueued=seqs[-1] + pending - 1, completed=seqs[0] - 1, open=calls,
            open_count=len(calls) + pending - 1,
        )  # fmt: skip

    facts = [
        at(1, a, 5, since=0.0), at(2, a, 4, 5, since=0.0, pending=7), at(1, b, 9, since=10.0),
        at(0, b, 9, since=10.0), at(3, c, 3, since=20.0), done(0, 2, group=c),
    ]  # fmt: skip
    assert judged(*facts) == [("gpu-stopped", (2,), 2)]


def test_two_orders_of_two_groups_are_a_circle():
    a, b = Group("a", (0, 1)), Group("b", (0, 1))
    facts = [
        inside(0, 4, group=a), done(0, 8, group=b),
        inside(1, 9, group=b), done(1, 3, group=a),
    ]  # fmt: skip
    assert judged(*facts) == [("cycle", (0, 1), 2)]
    (found,) = suspects(view(facts))
    assert "rank 0 waits for rank 1 in all_reduce of group a" in finding(found).what


def test_a_circle_of_three_through_messages():
    facts = [
        messages(0, ("recv", 2, 1)), messages(1, ("recv", 0, 1)), messages(2, ("recv", 1, 1)),
    ]  # fmt: skip
    assert judged(*facts) == [("cycle", (0, 1, 2), 2)]


def test_two_that_both_receive_are_named_and_not_those_that_wait_for_them():
    pipe = Group("pipe", (0, 3))
    facts = [messages(0, ("recv", 3, 9), group=pipe), messages(3, ("recv", 0, 9), group=pipe)]
    facts += [inside(1, 7), inside(2, 7), done(0, 6), done(3, 6)]
    (found,) = suspects(view(facts))
    assert (found.cause, ranks(found.processes)) == ("cycle", (0, 3))
    assert ranks(found.waiting) == (1, 2)
    what = finding(found).what
    assert "ranks 0 and 3 both receive from each other in group pipe, and neither sends" in what


def test_two_that_both_send_are_named():
    facts = [messages(1, ("send", 2, 4)), messages(2, ("send", 1, 4))]
    assert "both send to each other" in finding(suspects(view(facts))[0]).what


def test_batches_of_messages_match_in_any_order():
    # Each issues both ways at once: neither waits for the other, however each one numbers them.
    both = [("send", 1, 5), ("recv", 1, 6)]
    for back in ([("send", 0, 5), ("recv", 0, 6)], [("recv", 0, 5), ("send", 0, 6)]):
        facts = [messages(0, *both), messages(1, *back, ("send", 2, 9)), done(2, 5)]
        assert judged(*facts) == [("not-entered", (2,), 2)]


def test_a_batch_whose_second_message_has_no_counterpart_waits():
    facts = [messages(0, ("send", 1, 5), ("recv", 1, 6)), messages(1, ("recv", 0, 5))]
    assert judged(*facts)[0][:2] == ("inside-call", (1,))


def test_messages_that_are_counted_each_way_apart_meet_those_of_their_number():
    def at(rank: int, *calls: tuple[str, int]) -> Progress:
        made = tuple(Call(nth, op, peer=1 - rank, nth=nth) for op, nth in calls)
        return progress(rank, Group("pair", (0, 1)), open=made, open_count=len(made))

    # 0 has sent a hundred before; the first send back has no receive.
    facts = [at(0, ("send", 101)), at(1, ("send", 1), ("recv", 102))]
    assert [suspect[:2] for suspect in judged(*facts)] == [("inside-call", (0,))]
    facts = [at(0, ("send", 101)), at(1, ("recv", 100))]
    assert [suspect[:2] for suspect in judged(*facts)] == [("inside-call", (1,))]
    both = at(0, ("send", 101), ("recv", 1)), at(1, ("recv", 101), ("send", 1))
    assert all(cause != "cycle" for cause, *_ in judged(*both))


def test_a_receive_whose_send_never_came():
    facts = [messages(0, ("recv", 1, 3)), done(1, 5), done(2, 5), done(3, 5)]
    assert judged(*facts) == [("not-entered", (1,), 2)]


def test_a_message_that_both_sides_are_in_makes_nobody_wait():
    # 0 and 1 are inside one message; 1 also waits for 2.
    facts = [
        messages(0, ("send", 1, 3)), messages(1, ("recv", 0, 3), ("send", 2, 9)), done(2, 5),
    ]  # fmt: skip
    assert judged(*facts) == [("not-entered", (2,), 2)]


def test_messages_of_a_rank_that_is_behind_name_it_not_its_peer():
    # 1 has sent message 6, as far as it knows not yet completed; 0 has got it and waits for 7.
    facts = [messages(0, ("recv", 1, 7)), messages(1, ("send", 0, 6))]
    assert judged(*facts)[0][1] == (1,)


def test_one_rank_without_evidence_is_named_with_less_confidence():
    facts = [inside(0, 7), inside(1, 7), inside(3, 7)]
    assert judged(*facts) == [("not-entered-or-inside", (2,), 1)]


def test_several_ranks_without_evidence_are_not_named():
    facts = [inside(0, 7), inside(1, 7)]
    ((cause, ranks, certainty),) = judged(*facts)
    assert (cause, ranks, certainty) == ("not-entered-or-inside", (2, 3), 0)
    assert finding(suspects(view(facts))[0]).condition == "unknown"


def test_a_rank_that_waits_for_a_rank_without_evidence_is_no_culprit():
    pair = Group("pair", (1, 2))
    facts = [inside(0, 7), done(1, 6), inside(1, 4, group=pair), inside(3, 7)]
    assert judged(*facts) == [("not-entered-or-inside", (2,), 1)]


def test_all_inside_one_call_names_nobody():
    facts = [inside(rank, 7) for rank in range(4)]
    ((cause, ranks, certainty),) = judged(*facts)
    assert (cause, ranks, certainty) == ("unknown", (), 0)


def test_a_healthy_job_and_a_stall_outside_collectives_name_nobody():
    facts = [done(rank, 7) for rank in range(4)]
    assert judged(*facts) == [("outside", (), 0)]


def test_different_sizes_name_the_minority_of_a_call_that_is_open():
    usual, odd = Call(7, "all_reduce", sizes="1024"), Call(7, "all_reduce", sizes="1000")
    facts = [inside(rank, 7) for rank in range(4)]
    mismatch = differ(7, "sizes", (usual, (0, 1, 3)), (odd, (2,)))
    # Most may be wrong, as after `if rank > 0`: only what came before would tell.
    assert judged(*facts, mismatch) == [("mismatch", (2,), 1)]
    what = finding(suspects(view([*facts, mismatch]))[0]).what
    assert "rank 2" in what
    assert "1000" in what
    assert "1024" in what


def test_two_sides_of_equal_size_are_both_shown_and_none_is_blamed():
    one, other = Call(7, "all_reduce"), Call(7, "broadcast")
    facts = [inside(rank, 7) for rank in range(4)]
    mismatch = differ(7, "op", (one, (0, 1)), (other, (2, 3)))
    assert judged(*facts, mismatch) == [("mismatch", (0, 1, 2, 3), 0)]


def test_of_two_equal_sides_the_one_that_did_as_always_is_not_blamed():
    one, other = Call(7, "broadcast"), Call(7, "all_reduce")
    facts = [inside(rank, 7) for rank in range(4)]
    mismatch = differ(7, "op", (one, (0, 1)), (other, (2, 3)))
    odd, usual = mismatch.variants
    known = replace(mismatch, variants=(replace(odd, usual=False), replace(usual, usual=True)))
    assert judged(*facts, known) == [("mismatch", (0, 1), 1)]
    told = finding(suspects(view([*facts, known]))[0])
    assert told.what.startswith("ranks 0-1 issued broadcast as call 7")
    assert "ranks 2-3: all_reduce, as always after these calls" in told.evidence[0].text


def test_a_minority_that_did_as_always_is_named_with_less_confidence():
    one, other = Call(7, "broadcast"), Call(7, "all_reduce")
    facts = [inside(rank, 7) for rank in range(4)]
    mismatch = differ(7, "op", (one, (0, 1, 2)), (other, (3,)))
    odd, usual = mismatch.variants
    known = replace(mismatch, variants=(replace(odd, usual=False), replace(usual, usual=True)))
    assert judged(*facts, known) == [("mismatch", (3,), 1)]


def test_a_difference_that_all_ranks_have_completed_is_none():
    one, other = Call(5, "gather", sizes="10"), Call(5, "gather", sizes="0")
    facts = [done(rank, 7) for rank in range(4)]
    assert judged(*facts, differ(5, "sizes", (one, (0, 1, 2)), (other, (3,)))) == [
        ("outside", (), 0)
    ]


def test_a_stopped_process_is_said_to_be_stopped():
    facts = [inside(0, 7), inside(1, 7), done(2, 6), inside(3, 7)]
    stopped = State(Process(2, "node1", 77), "stopped", Source("guard"))
    assert judged(*facts, stopped)[0] == ("host-stopped", (2,), 2)


def test_a_rank_that_was_stopped_inside_the_call_is_named_by_its_state():
    facts = [inside(rank, 7, backend="gloo") for rank in range(4)]
    stopped = State(Process(2), "stopped", Source("guard"))
    running = [State(Process(rank), "running", Source("guard")) for rank in (0, 1, 3)]
    assert judged(*facts, stopped, *running) == [("host-stopped", (2,), 2)]
    (found,) = suspects(view([*facts, stopped, *running]))
    assert [p.rank for p in found.waiting] == [0, 1, 3]


def test_a_pid_and_a_rank_of_one_process_are_joined():
    facts = [inside(0, 7), inside(1, 7), done(2, 6), inside(3, 7)]
    same = Identity(Process(2, "node1", 77), Source("log"))
    stopped = State(Process(None, "node1", 77), "stopped", Source("guard"))
    assert judged(*facts, same, stopped)[0] == ("host-stopped", (2,), 2)


def test_counters_of_a_watchdog_alone_name_nobody():
    # Rank 9 timed out in a group whose other members said nothing.
    lone = progress(
        9, Group("37", (), "TENSOR_MODEL_PARALLEL_GROUP"), whole=False, timed_out=True,
        enqueued=49406, completed=49386, open=(Call(49387, "_allgather_base"),), open_count=20,
    )  # fmt: skip
    ((cause, ranks, certainty),) = judged(lone, World(16, Source("log")))
    assert (cause, ranks, certainty) == ("unknown", (), 0)


def test_a_rank_whose_watchdog_speaks_but_did_not_time_out_is_the_one_awaited():
    data = Group("5", (0, 1, 2, 3), "data")
    late = {"whole": False, "timed_out": True, "enqueued": 123, "completed": 120}
    call = (Call(121, "all_reduce"),)
    facts = [progress(rank, data, open=call, **late) for rank in (0, 2, 3)]
    facts.append(progress(1, ALL4, whole=False, enqueued=5, completed=5))
    assert judged(*facts) == [("not-entered-or-inside", (1,), 1)]


def test_the_only_rank_that_is_inside_no_call_is_suspected_though_groups_are_not_known():
    data = Group("5", (), "data")
    late = {"whole": False, "timed_out": True, "completed": 120, "open": (Call(121, "all_reduce"),)}
    facts = [progress(rank, data, **late) for rank in (0, 1, 3, 4, 5)]
    size = World(6, Source("settings"))
    assert judged(*facts, size) == [("not-entered-or-inside", (2,), 1)]
    # Of a job of unknown size, others may be silent, too.
    assert all(certainty == 0 for _, _, certainty in judged(*facts))
    assert judged(*facts[1:])[0][1:] == ((), 0)


def test_a_group_known_by_its_name_gets_the_ranks_that_another_source_knows():
    nameless = Group("0", (), "default_pg")
    facts = [inside(0, 7), done(2, 6), inside(1, 7, group=nameless), inside(3, 7, group=nameless)]
    assert judged(*facts) == [("not-entered", (2,), 2)]


def test_a_look_at_a_healthy_job_names_nobody():
    def waiting(rank, seconds):
        call = Call(7, "all_reduce", since=1000.0)
        return progress(
            rank, ALL4, enqueued=7, completed=6, open=(call,), time=1000.0 + seconds, pause=0.5
        )

    short = [waiting(0, 0.3), waiting(1, 4.0), done(2, 6), waiting(3, 0.3)]
    assert judged(*short) == [("not-entered", (2,), 0)]
    long = [waiting(0, 0.3), waiting(1, 6.0), done(2, 6), waiting(3, 0.3)]
    assert judged(*long) == [("not-entered", (2,), 2)]


def gloo_done(rank, seq, **more):
    """A rank with nothing open in a dump that records no messages."""
    return done(rank, seq, backend="gloo", no_messages=True, **more)


def test_a_rank_that_may_be_in_a_message_is_named_with_less_confidence():
    facts = [inside(0, 7, backend="gloo"), inside(1, 7, backend="gloo"), inside(3, 7)]
    assert judged(*facts, done(2, 6, backend="gloo"))[0][1:] == ((2,), 2)
    assert judged(*facts, gloo_done(2, 6))[0][1:] == ((2,), 1)
    assert judged(*facts, gloo_done(2, 6, whole=False, unseen=True))[0][2] == 0


def test_of_several_ranks_that_may_be_in_messages_none_is_named():
    facts = [inside(0, 7), inside(1, 7), gloo_done(2, 6), gloo_done(3, 6)]
    (found,) = suspects(view(facts))
    assert found.certainty == 0
    assert "one of them may wait for another" in found.against[0].text


def test_those_that_do_what_they_never_did_before_may_be_odd_themselves():
    def leaving(rank, usual):
        call = Call(1, "barrier", usual=usual)
        return progress(rank, ALL4, enqueued=1, completed=0, open=(call,), backend="gloo")

    others = [leaving(rank, usual=False) for rank in (1, 2, 3)]
    assert judged(*others, gloo_done(0, 0))[0][2] == 0
    others = [leaving(rank, usual=True) for rank in (1, 2, 3)]
    assert judged(*others, gloo_done(0, 0))[0][1:] == ((0,), 1)


def test_a_rank_that_gave_up_in_another_group_is_not_the_one_awaited():
    pipe = progress(0, Group("pipe", (0,)), whole=False, timed_out=True)
    late = {"whole": False, "timed_out": True, "completed": 70, "open": (Call(71, "all_reduce"),)}
    facts = [progress(1, Group("5", (0, 1)), **late), progress(3, Group("6", ()), **late), pipe]
    facts.append(progress(2, Group("0", ()), whole=False, enqueued=0, completed=0))
    facts.append(World(4, Source("settings")))
    assert judged(*facts) == [("not-entered-or-inside", (2,), 1)]


def test_who_is_inside_a_call_of_an_unknown_group_is_no_end():
    # 2 is awaited in ALL4, and itself inside a call of a group that nobody else is known to be in.
    facts = [inside(0, 7), inside(1, 7), inside(3, 7), done(2, 6)]
    facts.append(inside(2, 3, group=Group("tensor")))
    assert not [ranks for cause, ranks, certainty in judged(*facts) if certainty]


def test_every_order_of_the_same_facts_gives_the_same_verdict():
    facts = [inside(0, 7), inside(1, 7), done(2, 6), inside(3, 7)]
    facts += [inside(0, 3, group=Group("p", (0, 2))), done(2, 2, group=Group("p", (0, 2)))]
    expected = judged(*facts)
    chance = random.Random(1)
    for _ in range(20):
        chance.shuffle(facts)
        assert judged(*facts) == expected


def test_a_large_job_is_judged_without_n_times_n_edges():
    everyone = Group("0", tuple(range(20_000)))
    facts = [inside(rank, 7, group=everyone) for rank in range(19_999)]
    facts.append(done(19_999, 6, group=everyone))
    (found,) = waits.judge(view(facts))
    assert [p.rank for p in found.processes] == [19_999]
    assert len(found.waiting) == 19_999
    assert ALL4.ranks == (0, 1, 2, 3)
