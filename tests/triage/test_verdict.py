"""Pieces of evidence support, refine or contradict each other. Each rule is a row."""

import json
import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from oddrank.report import SCHEMA_FILE
from oddrank.triage import causes, verdict
from oddrank.triage.facts import (
    Activity,
    Call,
    Child,
    Death,
    Frame,
    Group,
    Process,
    Source,
    Stack,
    State,
    Stop,
    Thread,
    Trouble,
)
from oddrank.triage.findings import finding
from oddrank.triage.judges import deaths
from oddrank.triage.suspects import Point, Suspect
from oddrank.triage.view import view
from progress import ALL4, differ, done, progress
from triage.told import check, into, verdicts

HANG = [*into(7, 0, 1, 3), done(2, 6)]
ALL_INSIDE = into(7, 0, 1, 2, 3)
GET = Frame("_try_get_data", "torch/utils/data/dataloader.py", 1011)
FILE = Source("evidence", 3)
LOADS = Stack((Frame("load", "train.py", 7),), (Thread(Process(2), "MainThread"),))
HELPER = Frame("_new_process_group_helper", "torch/distributed/distributed_c10d.py")
NEW_GROUP = Stack((HELPER, Frame("main", "train.py", 63)), (Thread(Process(2), "MainThread"),))
COME = replace(NEW_GROUP, frames=(replace(HELPER, function="all_reduce"), *NEW_GROUP.frames[1:]))
ONLY_2 = ("not-entered", (2,), 2)
NOW = 1000.0


def joined(*facts, **said):
    """Joins facts with what these judges are made to say of them."""

    def judge():
        with pytest.MonkeyPatch.context() as patch:
            for name, found in said.items():
                patch.setattr(getattr(verdict, name), "judge", lambda seen, found=found: found)
            return verdict.suspects(view(facts))

    return judge


def stands(rank, leaf_class="data", certainty=2, **more):
    made = Suspect(
        causes.HOST_STUCK, (Process(rank),), "stands-outside", certainty, leaf=GET,
        leaf_class=leaf_class, support=(Point(f"rank {rank} stands in {GET.function}", FILE),),
    )  # fmt: skip
    return replace(made, **more)


def died(rank, certainty=2):
    death = Death(Process(rank), "exception", FILE, text="ValueError: bad batch")
    return Suspect(causes.DEAD, (Process(rank),), "first-end", certainty, death=death)


def crashed(rank, by=signal.SIGABRT):
    death = Death(Process(rank), "signal", FILE, signal=by)
    return Suspect(causes.DEAD, (Process(rank),), "first-end", 2, death=death)


def several(cause="not-entered-or-inside", certainty=0):
    who = tuple(Process(rank) for rank in (1, 2, 3))
    rule = "awaited-and-waits-for-nobody"
    return Suspect(
        causes.TABLE[cause], who, rule, certainty, waiting=(Process(0),), at=Call(7, "all_reduce")
    )


def broken(*ranks, certainty=2, kind="xid", rule="fault-of-its-gpu", host="n1"):
    text = {"xid": "fallen off the bus", "ib-flap": "ib6 went down 6 times"}[kind]
    trouble = Trouble(kind, text, FILE, host, "GPU 1", "79", fatal=kind == "xid")
    who = tuple(map(Process, ranks))
    support = (Point(text, FILE),)
    return Suspect(causes.DEVICE, who, rule, certainty, trouble=(trouble,), support=support)


def held(rank, state="stopped", pid=None, **more):
    return State(Process(rank, None, pid), state, FILE, **more)


def seen(rank, pause, **more):
    return Activity(Process(rank), FILE, last=NOW, seen=NOW + pause, **more)


def dtypes(*odd):
    usual, other = (Call(7, "all_reduce", dtype=name) for name in ("float32", "float64"))
    ranks = tuple(rank for rank in range(4) if rank not in odd)
    return [*ALL_INSIDE, differ(7, "dtype", (usual, ranks), (other, odd))]


def test_a_stack_says_what_the_ranks_do_that_progress_names(golden):
    waits = (Process(1), Process(2))
    lost = Suspect(causes.UNREACHABLE, (Process(2), Process(3)), "no-answer", 1)
    behind = Suspect(causes.NOT_ENTERED_OR_INSIDE, (Process(2),), "counts-behind", 1)
    check(golden, {
        "the same rank": (joined(*HANG, stacks=[stands(2)]), ("host-stuck", (2,), 2)),
        "another rank": (joined(*HANG, stacks=[stands(3)]), ("not-entered", (2,), 1)),
        "another rank, less surely": (joined(*HANG, stacks=[stands(3, certainty=1)]), ONLY_2),
        "another rank, more surely":
            (joined(*HANG, waits=[several(certainty=1)], stacks=[stands(0)]),
             ("host-stuck", (0,), 2)),
        "one of several that progress is not sure of":
            (joined(waits=[several()], stacks=[stands(3)]), ("host-stuck", (3,), 2)),
        "one of several that progress is sure of":
            (joined(waits=[several("not-entered", 2)], stacks=[stands(3)]),
             ("not-entered", (1, 2, 3), 2)),
        "one of several, the others wait as it shows":
            (joined(waits=[several("not-entered", 2)], stacks=[stands(3, waiting=waits)]),
             ("host-stuck", (3,), 2)),
        "where progress could not": (joined(*into(7, 0, 1, 3), stacks=[stands(2)]),
                                     ("host-stuck", (2,), 2)),
        "of ranks in a call those that answer nobody":
            (joined(waits=[several("inside-call", 1)], ras=[lost]), ("unreachable", (2, 3), 2)),
        "a stack that shows what they all do says more":
            (joined(waits=[several("host-stuck", 1)], ras=[lost]), ("host-stuck", (1, 2, 3), 2)),
        "not of a rank that issued another call: it came to the call":
            (joined(*dtypes(2), stacks=[stands(2, certainty=0)]), ("mismatch", (2,), 1)),
        "the same rank in another call, that no source counts":
            (joined(*HANG, NEW_GROUP), ("host-stuck", (2,), 2)),
        "the same rank, which has come to the call since": (joined(*HANG, COME), ONLY_2),
        "counts of the same rank": (joined(*HANG, ras=[behind]), ONLY_2),
        "counts of another rank":
            (joined(*HANG, ras=[replace(behind, processes=(Process(3),))]), ONLY_2),
    })  # fmt: skip


def test_states_and_activities_say_why_a_rank_stands(golden):
    young = replace(several(), processes=(Process(2),), young=True)
    child = Child(Process(None, None, 512), Process(2), FILE)
    in_kernel = held(None, "uninterruptible", 512)
    call = Call(7, "all_reduce", since=NOW)
    later = [progress(rank, ALL4, enqueued=7, completed=6, open=(call,)) for rank in (0, 1, 3)]
    rows = {
        "a process in the kernel that is not the job's": ([*ALL_INSIDE, in_kernel],
                                                          ("unknown", (), 0)),
        "a rank's child in the kernel": ([*ALL_INSIDE, child, in_kernel], ("host-stuck", (2,), 2)),
        "in the kernel after a short wait":
            (joined(done(2, 6), held(2, "uninterruptible"), waits=[young]),
             ("not-entered-or-inside", (2,), 0)),
        "in the kernel, and where": ([*HANG, held(2, "uninterruptible", where="nfs_wait_bit")],
                                     ("host-stuck", (2,), 2)),
        "in the kernel, where, and in which line":
            ([*HANG, LOADS, held(2, "uninterruptible", where="nfs_wait_bit")],
             ("host-stuck", (2,), 2)),
        "in the kernel while a stack seems to run":
            (joined(*HANG, held(2, "uninterruptible"),
                    stacks=[stands(2, cause=causes.INFINITE_LOOP)]), ("host-stuck", (2,), 2)),
        "ended well, and moved just before":
            ([*HANG, Death(Process(2), "exit", FILE, code=0), seen(2, 0.2)], ("finished", (2,), 2)),
        "stopped in a known line": ([*HANG, LOADS, held(2)], ("host-stopped", (2,), 2)),
        "all are stopped: a person looks": ([*HANG, *(held(rank) for rank in range(4))], ONLY_2),
        "stopped the day before the stall":
            ([*later, done(2, 6), held(2, time=NOW - 2 * 86400)], ONLY_2),
        "stopped hours before it":
            ([*later, done(2, 6), held(2, time=NOW - 86400 / 2)], ("host-stopped", (2,), 2)),
        "stopped where another rank is surely named": ([*HANG, held(3)], ONLY_2),
    }  # fmt: skip
    for pause, leaf_class, cause, sure in (
        (0.2, "disk", "moving", 2), (0.2, "running", "infinite-loop", 1),
        (300.0, "data", "host-stuck", 2),
    ):  # fmt: skip
        name = f"a rank in code of {leaf_class} whose last event was {pause} s ago"
        there = [stands(2, leaf_class=leaf_class)]
        rows[name] = joined(*HANG, seen(2, pause), stacks=there), (cause, (2,), sure)
        rows[f"{name}, and which is stopped"] = (
            joined(*HANG, seen(2, pause), held(2), stacks=there), ("host-stopped", (2,), 2),
        )  # fmt: skip
    for read in (5.2, 9999.0):  # it says nothing when the record of a process that is gone was read
        lasts = [replace(seen(rank, read), last=NOW + 5 * (rank != 2)) for rank in range(3)]
        rows[f"it is gone, and was read {read} s later"] = (
            joined(*HANG, held(2, "dead"), *lasts, stacks=[stands(2, "running")]),
            ("host-stuck", (2,), 2),
        )
    rows["code that runs too often to be recorded"] = (
        joined(*HANG, seen(2, 300, runs=True), stacks=[stands(2, "running")]),
        ("infinite-loop", (2,), 1),
    )
    check(golden, rows)


def test_a_rank_that_comes_to_its_calls_as_it_always_did_is_slow(golden):
    def late(waited, pause):
        """Rank 2 runs while the others have waited for it so long."""
        call = Call(7, "all_reduce", since=NOW - waited)
        waiting = [
            progress(rank, ALL4, enqueued=7, completed=6, open=(call,), time=NOW)
            for rank in (0, 1, 3)
        ]
        runs = Activity(Process(2), FILE, NOW - 0.1, seen=NOW, alone=NOW - waited, pause=pause)
        return [*waiting, done(2, 6), runs]

    check(golden, {
        "late for a moment": (late(0.5, 0.1), ("moving", (2,), 0)),
        "as late as before": (late(6.0, 5.0), ("moving", (2,), 2)),
        "later than ever before": (late(20.0, 5.0), ("infinite-loop", (2,), 1)),
        "its earlier calls are not known": (late(20.0, None), ("infinite-loop", (2,), 1)),
    })  # fmt: skip


def test_a_job_that_stood_when_it_was_told_to_end_has_its_odd_rank(golden):
    def told(after, *more, pause=0.1, zone=None):
        call = Call(7, "all_reduce", since=NOW)
        waiting = [progress(r, ALL4, enqueued=7, completed=6, open=(call,)) for r in (0, 1)]
        # They clean up in the end.
        lasts = [Activity(Process(r), FILE, NOW + after + 1, pause=pause) for r in (0, 1, 2)]
        stop = Stop("torchrun", FILE, NOW + after + (zone or 0), signal=15, wall=zone is not None)
        return [*waiting, done(2, 6), *lasts, *more, stop]

    well = [Death(Process(r), "exit", FILE, code=0) for r in range(4)]
    before = stands(2, waiting=tuple(map(Process, (0, 1, 3))))
    unknown = ("unknown", (), 0)
    check(golden, {
        "after it had stood": (told(3, *into(7, 3)), ONLY_2),
        "no longer than it does at times": (told(3, *into(7, 3), pause=1.0), unknown),
        "at once": (told(1, *into(7, 3)), unknown),
        "after it had stood, in another zone": (told(3, *into(7, 3), zone=7200), ONLY_2),
        "at once, in another zone": (told(1, *into(7, 3), zone=-16200), unknown),
        "while another rank moved": (told(3, Activity(Process(3), FILE, NOW + 2.5)), unknown),
        "stacks are older than a good end": (joined(*well, stacks=[before]),),
        "of all that waited": (joined(*well[:3], stacks=[before]), ("finished", (2,), 2)),
    })  # fmt: skip


def test_the_first_death_explains_those_who_wait_for_the_dead(golden):
    segfault = Death(Process(2), "signal", FILE, signal=signal.SIGSEGV)
    lost = [Death(Process(r), "exception", FILE, text="RuntimeError", failed="all_reduce")
            for r in (0, 1, 3)]  # fmt: skip
    died_2, died_1 = ("dead", (2,), 2), ("dead", (1,), 2)
    once = stands(3, certainty=1, rule="stacks-awaited")
    timed_out = [replace(fact, timed_out=True) for fact in HANG]
    over = [Death(Process(r), "exit", FILE, code=0, went_on=True) for r in (0, 2, 3)]
    ended = [replace(one, how="signal", code=None, signal=15, went_on=False) for one in over]
    late = [*into(7, 1), *(done(r, 6) for r in (0, 2, 3))]
    call = Call(7, "all_reduce", since=NOW - 0.1)
    moments = [progress(r, ALL4, enqueued=7, open=(call,), time=NOW) for r in range(4)]
    rows = {
        "they wait for it": (joined(*HANG, deaths=[died(2)]), died_2),
        "it beats a rank that seems to be behind":
            (joined(*HANG, deaths=[died(1)]), died_1, ("not-entered", (2,), 0)),
        "it may be a cascade": (joined(*HANG, deaths=[died(1, certainty=0)]), ONLY_2),
        "a rank whose call failed lost somebody": ([segfault, *lost], died_2),
        "ranks whose scripts were over make no more calls, whatever ends them":
            ([*late, *over, *ended, lost[1]], ("finished", (1,), 2)),
        "nor where they live on": ([*late, *over], ("finished", (1,), 2)),
        "one that lives on after its script": ([*HANG, over[1]], ("finished", (2,), 2)),
        "a library aborts a rank as calls differ":
            (joined(*dtypes(0), deaths=[crashed(3)]), ("mismatch", (0,), 1)),
        "and of two sides of one size":
            (joined(*dtypes(0, 1), deaths=[crashed(1)]), ("mismatch", (0, 1, 2, 3), 0)),
        "at once: calls that differ are no wait that may end":
            (joined(*dtypes(0), *moments, deaths=[crashed(0)]), ("mismatch", (0,), 1)),
        "and one of them is in the kernel for a moment":
            (joined(State(Process(0), "uninterruptible", FILE), *dtypes(0), deaths=[crashed(3)]),
             ("mismatch", (0,), 1)),
        "and one of them is stopped":
            (joined(State(Process(0), "stopped", FILE), *dtypes(0), deaths=[crashed(3)]),
             ("host-stopped", (0,), 2)),
        "a launcher ends a rank as calls differ":
            (joined(*dtypes(0), deaths=[crashed(3, signal.SIGTERM)]), ("mismatch", (0,), 1)),
        "a rank is killed though calls differ":
            (joined(*dtypes(0), deaths=[crashed(3, signal.SIGKILL)]), ("dead", (3,), 2),
             ("mismatch", (0,), 0)),
        "behind a death one look counts if calls have timed out":
            (joined(*timed_out, deaths=[died(1)], waits=[], stacks=[once]), died_1,
             ("host-stuck", (3,), 0)),
    }  # fmt: skip
    for rule, certainty, kept in (  # it imports, say, while others wait for it and for the dead one
        ("stacks-awaited", 0, False), ("stacks-awaited", 1, False), ("stacks-awaited", 2, True),
        ("stacks-moving", 0, False), ("stacks-awaited-still", 1, True),
    ):  # fmt: skip
        found = stands(3, certainty=certainty, rule=rule)
        rows[f"{rule} {certainty} behind a death"] = (
            joined(deaths=[died(1)], stacks=[found]), died_1,
            *([("host-stuck", (3,), 0)] if kept else []),
        )  # fmt: skip
    check(golden, rows)


def test_who_exits_as_a_call_failed_is_a_victim_and_who_runs_is_not_gone():
    facts = into(7, 0, 1, 2, 3, backend="gloo")
    facts += [Death(Process(rank), "exit", FILE, code=1, failed="all_reduce") for rank in (0, 2, 3)]
    facts.append(State(Process(1), "running", FILE))
    usual, odd = Call(7, "all_reduce", sizes="64"), Call(7, "all_reduce", sizes="6400")
    found = view([*facts, differ(7, "sizes", (usual, (0, 1, 3)), (odd, (2,)))])
    assert verdicts(verdict.suspects(found)) == [("mismatch", (2,), 1)]
    assert verdicts(deaths.judge(found)) == [("unknown", (), 0)]


def test_a_fault_of_a_device_is_of_the_ranks_that_it_hits(golden):
    sure = several("not-entered", 2)
    of_host = broken(2, rule="fault-of-its-host", certainty=1)
    check(golden, {
        "of one of several suspects": (joined(waits=[several()], devices=[broken(1)]),
                                       ("device", (1,), 2)),
        "of one of several who surely wait":
            (joined(waits=[sure], devices=[broken(1)]), ("not-entered", (1, 2, 3), 2)),
        "of the named rank": (joined(*HANG, devices=[broken(2)]), ("device", (2,), 2)),
        "of its host": (joined(*HANG, devices=[of_host]), ONLY_2),
        "of no known rank":
            (joined(*HANG, devices=[broken(certainty=0, kind="ib-flap", host="node9")]), ONLY_2,
             ("device", (), 0)),
    })  # fmt: skip


def test_a_new_cause_is_one_row_that_fits(monkeypatch):
    def fits(suspect, view):
        return suspect if suspect.cause is causes.NOT_ENTERED and view.finished else None

    row = replace(causes.PAUSED, name="asleep", says=causes._stuck("asleep"), fits=fits)
    monkeypatch.setattr(causes, "TABLE", {"asleep": row, **causes.TABLE})
    assert verdicts(verdict.suspects(view(HANG))) == [ONLY_2]
    ended = Death(Process(2), "exit", FILE, code=0)
    (found,) = verdict.suspects(view([*HANG, ended]))
    assert finding(found).what.startswith("rank 2 is stuck: asleep; ranks 0-1, 3 wait for it")


def test_every_sentence_can_be_made_with_little_and_with_much(golden):
    much = {
        "at": Call(7, "all_reduce"), "group": Group("0", (0, 1, 2, 3)), "leaf": GET,
        "leaf_class": "data", "waiting": (Process(0), Process(1)), "against": (Point("but"),),
    }  # fmt: skip
    killed = Death(Process(2), "signal", FILE, signal=9)
    xid = (Trouble("xid", "Xid 79: fell off the bus", FILE, "n1", "GPU 3"),)
    lines = []
    for cause in causes.TABLE.values():
        if cause.says is None:  # no finding
            continue
        lines.append(f"{cause.name}\n")
        one, two = (Process(2),), (Process(2, "n1"), Process(3, "n1"))
        for certainty, who in ((2, one), (2, two), (2, (Process(pid=7),)), (0, two)):
            for more in ({}, much):
                own = {"death": killed} if cause is causes.DEAD else {}
                made = finding(Suspect(cause, who, "held", certainty, trouble=xid, **own, **more))
                lines.append(f"  {made.what} [{made.who}]\n")
    assert "None" not in "".join(lines)
    golden("".join(lines))


def test_every_sentence_can_be_made_of_a_bare_suspect(golden):
    rules = {causes.UNKNOWN: causes._OF_RULES, causes.CYCLE: ("opposed-messages",)}
    lines = []
    for cause in causes.TABLE.values():
        for rule in ("", *rules.get(cause, ())) if cause.says else ():
            lines.append(f"{cause.name} {rule}".rstrip() + "\n")
            for who in ((), (Process(2),)):
                lines.append(f"  {finding(Suspect(cause, who, rule, 0)).what}\n")
    golden("".join(lines))


def test_the_docs_list_all_causes_in_the_table_s_order():
    docs = (Path(__file__).parents[2] / "docs" / "triage.md").read_text()
    table = docs.partition("| cause | the named rank |\n|---|---|\n")[2].partition("\n\n")[0]
    assert [row.split("`")[1] for row in table.splitlines()] == [*causes.TABLE]


def test_the_schema_has_all_waits_that_sentences_have():
    text = re.search(r'"leaf_class": \{\s*"enum": (\[.*?\])', SCHEMA_FILE.read_text(), re.DOTALL)
    assert {*json.loads(text[1])} == {*causes.DOING, None} - {"leaving"}
