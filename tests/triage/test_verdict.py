"""Pieces of evidence support, refine or contradict each other. Each rule is a test."""

import signal
from dataclasses import replace

import pytest

from oddrank.triage import on_purpose, verdict
from oddrank.triage.facts import (
    Activity,
    Call,
    Child,
    Death,
    Frame,
    Group,
    Point,
    Process,
    Source,
    State,
    Suspect,
    Trouble,
)
from oddrank.triage.findings import finding
from oddrank.triage.view import view
from progress import differ, done, inside, judged, messages

HANG = [inside(0, 7), inside(1, 7), done(2, 6), inside(3, 7)]
GET = Frame("_try_get_data", "torch/utils/data/dataloader.py", 1011)
FILE = Source("evidence", 3)


@pytest.fixture
def judges(monkeypatch):
    """Replaces judges by what they found: deaths, stacks, devices or counts."""

    def replaced(**said):
        names = ("deaths", "waits", "stacks", "devices", "counts")
        made = tuple(
            (lambda seen, name=name: said[name]) if name in said else verdict._JUDGES[i]
            for i, name in enumerate(names)
        )
        monkeypatch.setattr(verdict, "_JUDGES", made)

    return replaced


def stands(rank, frame=GET, leaf_class="data", certainty=2):
    return Suspect(
        "host-stuck", (Process(rank),), "stands-outside", certainty, leaf=frame,
        leaf_class=leaf_class, support=(Point(f"rank {rank} stands in {frame.function}", FILE),),
    )  # fmt: skip


def died(rank, certainty=2, **more):
    death = Death(Process(rank), "exception", FILE, text="ValueError: bad batch", **more)
    return Suspect("dead", (Process(rank),), "first-death", certainty, death=death)


def test_a_stack_says_what_the_rank_does_that_progress_names(judges):
    judges(stacks=[stands(2)])
    (found,) = verdict.suspects(view(HANG))
    assert (found.cause, found.leaf, found.certainty) == ("host-stuck", GET, 2)
    what = finding(found).what
    assert what.startswith("rank 2 is stuck: waits for data in _try_get_data (dataloader.py:1011)")
    assert "ranks 0-1, 3 wait for it in all_reduce 7" in what


def test_a_stack_that_names_another_rank_is_a_contradiction_that_is_shown(judges):
    judges(stacks=[stands(3)])
    found = verdict.suspects(view(HANG))
    assert [p.rank for p in found[0].processes] == [2]
    assert found[0].certainty == 1
    assert "stacks point at rank 3" in found[0].against[0].text


def several(cause="not-entered-or-inside", certainty=0):
    who = tuple(Process(rank) for rank in (1, 2, 3))
    return Suspect(cause, who, "awaited-and-waits-for-nobody", certainty, waiting=(Process(0),))


def test_of_several_that_progress_is_not_sure_of_only_the_one_that_a_stack_shows_is_named(judges):
    judges(waits=[several()], stacks=[stands(3)])
    (found,) = verdict.suspects(view([]))
    assert [p.rank for p in found.processes] == [3]
    assert {p.rank for p in found.waiting} == {0, 1, 2}


def test_what_one_stack_shows_is_not_said_of_others_that_progress_names(judges):
    judges(waits=[several("not-entered", 2)], stacks=[stands(3)])
    (found,) = verdict.suspects(view([]))
    assert (found.cause, [p.rank for p in found.processes]) == ("not-entered", [1, 2, 3])
    assert found.leaf is None
    judges(waits=[several("not-entered", 2)],
           stacks=[replace(stands(3), waiting=(Process(1), Process(2)))])  # fmt: skip
    (found,) = verdict.suspects(view([]))
    assert (found.cause, [p.rank for p in found.processes]) == ("host-stuck", [3])


def test_of_ranks_in_a_call_those_that_answer_nobody_are_named_and_the_others_wait(judges):
    lost = Suspect("unreachable", (Process(2), Process(3)), "no-answer", 1)
    judges(waits=[several("inside-call", 1)], counts=[lost])
    (found,) = verdict.suspects(view([]))
    assert (found.cause, [p.rank for p in found.processes]) == ("unreachable", [2, 3])
    assert {p.rank for p in found.waiting} == {0, 1}
    # A stack that shows what they all do says more.
    judges(waits=[several("host-stuck", 1)], counts=[lost])
    (found,) = verdict.suspects(view([]))
    assert (found.cause, [p.rank for p in found.processes]) == ("host-stuck", [1, 2, 3])


def test_a_fault_of_one_gpu_is_not_that_of_all_suspects(judges):
    trouble = Trouble("xid", "fallen off the bus", FILE, "n1", "GPU 1", "79", fatal=True)
    fault = Suspect("device", (Process(1),), "fault-of-its-gpu", 2, trouble=(trouble,))
    judges(waits=[several()], devices=[fault])
    found = verdict.suspects(view([]))
    assert (found[0].cause, [p.rank for p in found[0].processes]) == ("device", [1])
    judges(waits=[several("not-entered", 2)], devices=[fault])
    found = verdict.suspects(view([]))
    assert (found[0].cause, [p.rank for p in found[0].processes]) == ("not-entered", [1, 2, 3])


def test_a_process_in_the_kernel_that_is_not_the_jobs_is_no_culprit():
    other = State(Process(None, None, 512), "uninterruptible", FILE)
    facts = [inside(rank, 7) for rank in range(4)]
    assert all(
        p.rank is not None for s in verdict.suspects(view([*facts, other])) for p in s.processes
    )
    child = Child(Process(None, None, 512), Process(2), FILE)
    found = verdict.suspects(view([*facts, child, other]))
    assert (found[0].cause, [p.rank for p in found[0].processes]) == ("host-stuck", [2])
    assert "inside the kernel (state D)" in finding(found[0]).what


def test_a_rank_in_the_kernel_after_a_short_wait_may_read_a_file(judges):
    state = State(Process(2), "uninterruptible", FILE)
    young = replace(several(), processes=(Process(2),), young=True)
    judges(waits=[young])
    found = verdict.suspects(view([done(2, 6), state]))
    assert found[0].certainty == 0


def test_a_stack_names_the_rank_where_progress_could_not(judges):
    judges(stacks=[stands(2)])
    found = verdict.suspects(view([inside(rank, 7) for rank in (0, 1, 3)]))
    assert [p.rank for p in found[0].processes] == [2]
    assert found[0].cause == "host-stuck"


def test_ranks_of_gloo_and_of_nccl_can_wait_for_each_other():
    # Ranks 0-2 gather over gloo and wait for 3; 3 is inside an all_reduce of NCCL with all.
    gloo, nccl = Group("gloo", (0, 1, 2, 3)), Group("nccl", (0, 1, 2, 3))
    facts = [inside(rank, 4, "gather", group=gloo, backend="gloo") for rank in range(3)]
    facts += [done(3, 3, group=gloo, backend="gloo"), inside(3, 9, group=nccl)]
    facts += [done(rank, 8, group=nccl) for rank in range(3)]
    assert judged(*facts)[0][:2] == ("cycle", (0, 1, 2, 3))


def test_the_first_death_explains_those_who_wait_for_the_dead(judges):
    judges(deaths=[died(2)])
    (found,) = verdict.suspects(view(HANG))
    assert (found.cause, [p.rank for p in found.processes]) == ("dead", [2])
    assert "rank 2 raised ValueError: bad batch" in finding(found).what
    assert "ranks 0-1, 3 wait for it" in finding(found).what


def test_a_death_beats_ranks_that_seem_to_be_behind(judges):
    judges(deaths=[died(1)])
    found = verdict.suspects(view(HANG))
    assert [p.rank for p in found[0].processes] == [1]
    assert all(s.certainty == 0 for s in found[1:])


@pytest.mark.parametrize(
    ("rule", "certainty", "kept"),
    [
        ("stacks-awaited", 0, False),
        ("stacks-awaited", 1, False),
        ("stacks-awaited", 2, True),
        ("stacks-moving", 0, False),
        ("stacks-awaited-still", 1, True),
    ],
)
def test_who_is_at_work_in_one_look_at_a_job_with_a_dead_rank_is_not_named(
    judges, rule, certainty, kept
):
    """It imports, say, while the others wait for it and for the dead one."""
    judges(deaths=[died(1)], stacks=[replace(stands(3, certainty=certainty), rule=rule)])
    found = [[p.rank for p in s.processes] for s in verdict.suspects(view([]))]
    assert found == ([[1], [3]] if kept else [[1]])


def test_behind_a_death_one_look_counts_if_calls_have_timed_out(judges):
    stand = replace(stands(3, certainty=1), rule="stacks-awaited")
    judges(deaths=[died(1)], waits=[], stacks=[stand])
    facts = [replace(fact, timed_out=True) for fact in HANG]
    found = verdict.suspects(view(facts))
    assert [[p.rank for p in s.processes] for s in found] == [[1], [3]]
    assert found[1].certainty == 0


def test_a_death_that_may_be_a_cascade_names_nobody(judges):
    judges(deaths=[died(1, certainty=0)])
    found = verdict.suspects(view(HANG))
    assert [p.rank for p in found[0].processes] == [2]


@pytest.mark.parametrize("leaf_class", ["running", "disk"])
def test_a_stopped_process_is_stopped_wherever_its_stack_shows_it(judges, leaf_class):
    judges(stacks=[stands(2, leaf_class=leaf_class)])
    stopped = State(Process(2), "stopped", FILE)
    just = Activity(Process(2), FILE, last=1000.0, seen=1000.1)
    found = verdict.suspects(view([*HANG, stopped, just]))[0]
    assert (found.cause, found.leaf) == ("host-stopped", GET)


def crashed(rank):
    death = Death(Process(rank), "signal", FILE, signal=signal.SIGABRT)
    return Suspect("dead", (Process(rank),), "first-end", 2, death=death)


def test_a_rank_that_a_library_aborts_as_calls_differ_is_a_victim(judges):
    judges(deaths=[crashed(3)])
    usual, odd = Call(7, "all_reduce", dtype="float32"), Call(7, "all_reduce", dtype="float64")
    facts = [inside(rank, 7) for rank in range(4)]
    facts.append(differ(7, "dtype", (usual, (1, 2, 3)), (odd, (0,))))
    (found,) = verdict.suspects(view(facts))
    assert (found.cause, [p.rank for p in found.processes]) == ("mismatch", [0])


def test_a_rank_that_was_killed_though_calls_differ_is_named(judges):
    killed = replace(crashed(3).death, signal=signal.SIGKILL)
    judges(deaths=[replace(crashed(3), death=killed)])
    usual, odd = Call(7, "all_reduce", dtype="float32"), Call(7, "all_reduce", dtype="float64")
    facts = [inside(rank, 7) for rank in range(4)]
    facts.append(differ(7, "dtype", (usual, (1, 2, 3)), (odd, (0,))))
    assert verdict.suspects(view(facts))[0].cause == "dead"


def test_a_rank_whose_call_failed_lost_somebody():
    ends = [Death(Process(2), "signal", FILE, signal=signal.SIGSEGV)]
    ends += [Death(Process(rank), "exception", FILE, text="RuntimeError", failed="all_reduce")
             for rank in (0, 1, 3)]  # fmt: skip
    (found,) = verdict.suspects(view(ends))
    assert (found.cause, [p.rank for p in found.processes]) == ("dead", [2])


def test_a_fault_of_the_gpu_of_the_named_rank_supports_it(judges):
    trouble = Trouble("xid", "Xid 79: GPU has fallen off the bus", FILE, fatal=True)
    fault = Suspect("device", (Process(2),), "fatal-xid", 2, trouble=(trouble,),
                    support=(Point(trouble.text, FILE),))  # fmt: skip
    judges(devices=[fault])
    (found,) = verdict.suspects(view(HANG))
    assert any("fallen off the bus" in point.text for point in found.support)


def test_a_fault_of_another_device_stays_a_finding_of_its_own(judges):
    trouble = Trouble("ib-flap", "ib6 went down 6 times", FILE, host="node9")
    judges(devices=[Suspect("device", (), "flaps", 0, trouble=(trouble,))])
    found = verdict.suspects(view(HANG))
    assert [s.cause for s in found] == ["not-entered", "device"]


def test_counts_of_another_watcher_support_or_contradict(judges):
    behind = Suspect("not-entered-or-inside", (Process(2),), "counts-behind", 1)
    judges(counts=[behind])
    assert verdict.suspects(view(HANG))[0].certainty == 2
    judges(counts=[replace(behind, processes=(Process(3),))])
    assert verdict.suspects(view(HANG))[0].against


@pytest.mark.parametrize(
    ("pause", "leaf_class", "cause"),
    [(0.2, "disk", "moving"), (0.2, "running", "infinite-loop"), (300.0, "data", "host-stuck")],
)
def test_a_rank_that_goes_on_is_told_from_one_that_stands(judges, pause, leaf_class, cause):
    judges(stacks=[stands(2, leaf_class=leaf_class)])
    activity = Activity(Process(2), Source("record"), last=1000.0, seen=1000.0 + pause)
    assert verdict.suspects(view([*HANG, activity]))[0].cause == cause


def test_a_rank_whose_code_runs_too_often_to_be_recorded_goes_on(judges):
    judges(stacks=[stands(2, leaf_class="running")])
    activity = Activity(Process(2), Source("record"), last=1000.0, seen=1300.0, runs=True)
    found = verdict.suspects(view([*HANG, activity]))[0]
    assert found.cause == "infinite-loop"
    assert "it runs code that runs too often to be recorded" in [p.text for p in found.support]


def test_when_the_record_of_a_process_that_is_gone_was_read_says_nothing(judges):
    judges(stacks=[stands(2, leaf_class="running")])
    gone = State(Process(2), "dead", FILE)

    def told(read):
        seen = [Activity(Process(r), FILE, last=1000.0 + 5 * (r != 2), seen=read) for r in range(3)]
        found = verdict.suspects(view([*HANG, gone, *seen]))[0]
        return found.cause, [point.text for point in found.support]

    assert told(1005.2) == told(9999.0)
    cause, words = told(1005.2)
    assert cause != "moving"
    assert "its last recorded event was 5.0 s before the last one of all ranks" in words


def test_every_sentence_can_be_made_with_little_and_with_much():
    much = {
        "at": Call(7, "all_reduce"), "group": Group("0", (0, 1, 2, 3)), "leaf": GET,
        "leaf_class": "data", "waiting": (Process(0), Process(1)), "against": (Point("but"),),
    }  # fmt: skip
    for cause in set(verdict_causes()) - {on_purpose.CAUSE}:  # no finding
        for processes in ((Process(2),), (Process(2, "n1"), Process(3, "n1")), (Process(pid=7),)):
            for more in ({}, much):
                told = finding(Suspect(cause, processes, "held", 2, **more))
                assert told.what
                assert "None" not in told.what


def verdict_causes():
    from typing import get_args

    from oddrank.triage.facts import Cause

    return get_args(Cause)


def test_messages_wait_across_groups_too():
    # 0 waits for a message of 1, and 1 is inside a collective that 2 has not entered.
    pair = Group("p", (0, 1))
    facts = [
        messages(0, ("recv", 1, 3), group=pair), inside(1, 7), inside(3, 7), done(2, 6),
    ]  # fmt: skip
    assert judged(*facts)[0][:2] == ("not-entered", (2,))
