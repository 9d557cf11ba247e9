"""Every cause of a stage's failure gives one finding that the report's schema accepts."""

import json
import signal
from dataclasses import replace
from typing import get_args

import jsonschema
import pytest

import reports
from oddrank.control import culprits, findings
from oddrank.control.root import OddClaim, RankState, StageRound
from oddrank.control.stages import RunState
from oddrank.report import SCHEMA_FILE, Report

CONDITIONS = {
    "never-came": "missing",
    "killed": "dead",
    "exited": "dead",
    "ended": "dead",
    "stopped": "stuck",
    "raised": "broken",
    "uninterruptible": "stuck",
    "no-progress": "stuck",
    "node-lost": "dead",
    "link-cut": "broken",
    "guard-lost": "broken",
    "no-address": "unknown",
    "all-raised": "unknown",
    "all-wait": "unknown",
    "never-joined": "missing",
    "unreachable-root": "broken",
    "lost-each-other": "broken",
    "launcher-gone": "unknown",
}
TORCHRUN = {"launcher": "torchrun", "launcher_pid": 5, "local_world": 2}


def run(**facts):
    """Returns a run of four ranks on two nodes; rank 2 has `facts`."""
    states = {r: RankState(r, f"node{r // 2}", r // 2, r % 2, 7, "ok") for r in range(4)}
    known = {"host": "node1", "node": 1, "local_rank": 0, "pid": 7, "contact": "ok"}
    states[2] = RankState(2, **{**known, "stage": "device", **facts})
    return RunState(4, states)


def told(culprit, seen, **facts):
    over = StageRound("device", {}, seen.states, "fault", **facts)
    found = findings.of_round(over, [culprit], seen)
    report = Report.of("selftest", {"size": 4}, reports.DATA, found, complete=False)
    envelope = json.loads(json.dumps(report.envelope()))
    jsonschema.validate(envelope, json.loads(SCHEMA_FILE.read_text()))
    return found


def test_the_table_of_conditions_knows_every_cause():
    # Each other WORLD_SIZE gives a finding of its own.
    assert set(get_args(culprits.Cause)) == {*CONDITIONS, "other-world"}


@pytest.mark.parametrize("cause", CONDITIONS)
def test_a_cause_is_one_finding_with_its_ranks_and_stage(cause):
    ranks = {
        "all-raised": (),
        "all-wait": (),
        "no-address": (),
        "node-lost": (2, 3),
        "link-cut": (2, 3),
        "lost-each-other": (2, 3),
        "launcher-gone": (),
    }.get(cause, (2,))
    culprit = culprits.Culprit(cause, ranks, "device", victims=(0, 1))
    seen = run(
        signal=signal.SIGKILL, exit_code=1, failed="ValueError: no", step="verify", orphaned=True,
        parting="silent for 5000 ms", unreached="node1: no answer", **TORCHRUN,
    )  # fmt: skip
    seen.states[3] = replace(seen.states[3], sigterm=True, sigterm_by=5, **TORCHRUN)
    (finding,) = told(culprit, seen)
    assert (finding.condition, finding.cause) == (CONDITIONS[cause], cause)
    assert (finding.who.ranks, finding.stage) == (ranks, "device")
    assert "stage device" in finding.what or cause == "never-came"  # always in join


def test_a_sentence_says_who_where_and_how():
    culprit = culprits.Culprit("stopped", (2,), "device")
    (finding,) = told(culprit, run(state="stopped"))
    assert finding.what == "rank 2 (node1, local rank 0) is stuck: stopped in stage device"


def test_a_rank_that_never_joined_is_told_with_its_place_and_its_launcher():
    seen = run(contact="never", host="", node=-1, local_rank=-1)
    seen.states[3] = replace(seen.states[3], sigterm=True, sigterm_by=5, **TORCHRUN)
    (finding,) = told(culprits.Culprit("never-joined", (2,), "join"), seen)
    assert finding.what == (
        "rank 2 (node1, local rank 0) never joined: its launcher, torchrun (pid 5), ended the job"
        " in stage join, as it does when a rank dies"
    )


@pytest.mark.parametrize("of_root", [True, False])
def test_a_launcher_that_has_gone_takes_the_store_with_it_on_rank_0s_node_alone(of_root):
    seen = run(orphaned=not of_root, **TORCHRUN)
    seen.master = ("10.0.0.1", 29500)
    seen.states[0] = replace(seen.states[0], orphaned=of_root, **TORCHRUN)
    (finding,) = told(culprits.Culprit("launcher-gone", (), "device"), seen)
    store = ", and with it the store at 10.0.0.1:29500" if of_root else ""
    assert finding.what == (
        f"torchrun (pid 5) on node{int(not of_root)} has gone{store}; no rank is at fault"
        " (stage device)"
    )


def test_two_nodes_that_lost_each_other_both_live():
    seen = run(contact="gave-up", parting="silent for 5012 ms")
    (finding,) = told(culprits.Culprit("lost-each-other", (2, 3), "device"), seen)
    assert finding.what == (
        "node1 and node0 lost each other in stage device: node0 was silent for 5012 ms for node1;"
        " both live"
    )
    assert "ping -c 3 -M do -s 1472 node0  (on node1)" in finding.next[0]


@pytest.mark.parametrize(
    ("cause", "facts"),
    [
        ("killed", {"signal": signal.SIGKILL}),
        ("killed", {"signal": signal.SIGBUS}),
        ("exited", {"exit_code": 0}),
        ("raised", {"failed": "ValueError: no"}),
        ("ended", {}),
        ("uninterruptible", {}),
        ("no-progress", {}),
        ("guard-lost", {"contact": "closed"}),
    ],
)
def test_what_to_look_at_says_on_which_host(cause, facts):
    (finding,) = told(culprits.Culprit(cause, (2,), "device"), run(**facts))
    assert any(one.endswith("  (on node1)") for one in finding.next)


@pytest.mark.parametrize(("cause", "ranks"), [("raised", (2,)), ("all-raised", ())])
def test_an_exception_is_told_with_the_place_where_it_was_raised(cause, ranks):
    seen = run(failed="ValueError: no", raised_at="stages/device.py:40")
    seen.states[0] = seen.states[2]
    (finding,) = told(culprits.Culprit(cause, ranks, "device"), seen)
    assert finding.evidence[0].source == "stages/device.py:40"


@pytest.mark.parametrize(
    ("facts", "limits", "cause"),
    [({}, "only 64 files", "open-files"), ({"resolver_slow": True}, "", "resolver")],
)
def test_what_keeps_healthy_ranks_away_is_told_and_they_are_not_named(facts, limits, cause):
    seen = run(contact="never")
    seen.states[0] = RankState(0, "node0", 0, 0, 7, "ok", **facts)
    culprit = culprits.Culprit("never-came", (2,), "join")
    (finding,) = told(culprit, seen, limits=limits)
    assert (finding.condition, finding.cause, finding.who.ranks) == ("unknown", cause, ())


NETWORK = ("10.0.0.1", 29500)


def missing(*ranks, master=NETWORK, nodes=2):
    seen = run()
    seen.master, seen.nodes = master, nodes
    seen.states |= {rank: RankState(rank) for rank in ranks}
    (finding,) = told(culprits.Culprit("never-came", ranks, "join"), seen)
    return finding


def test_where_nobody_but_rank_0_came_nobody_found_the_way():
    alone = missing(1, 2, 3)
    assert alone.what == "ranks 1-3 never joined; only rank 0 did"
    assert alone.confidence.why == "only rank 0 joined; they may only be slow to start"
    one, two = missing(3), missing(2, 3)
    assert one.what == "rank 3 never joined; the other ranks did"
    assert two.what == "ranks 2-3 never joined; the other ranks did"
    assert one.confidence.why == "others found the way; it may only be slow to start"


def test_what_to_type_for_who_never_came_has_the_address_of_rank_0():
    assert missing(2, 3).next == (
        "were they started?",
        "nc -zv 10.0.0.1 29500  (on their hosts: is rank 0's port reached?)",
        "if their import of torch is slow: --deadline 300",
    )
    assert missing(3).next[0] == "was it started?"
    assert "(on its host:" in missing(3).next[1]


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "::1"])
@pytest.mark.parametrize("ranks", [(1, 2, 3), (2, 3)])
def test_a_loopback_address_keeps_the_ranks_of_other_hosts_away(address, ranks):
    found = missing(*ranks, master=(address, 29500))
    assert found.what.endswith(f"; MASTER_ADDR {address} is reachable from node0 only")
    assert found.next[1].startswith("export MASTER_ADDR=node0 ")


def test_a_loopback_address_is_not_blamed_where_others_came_or_may_all_be_here():
    came = missing(3, master=("127.0.0.1", 29500))
    assert "MASTER_ADDR" not in came.what + str(came.evidence)
    typed = missing(1, 2, 3, master=("127.0.0.1", 29500), nodes=1)
    assert "MASTER_ADDR" not in typed.what
    assert typed.evidence[1].text == "MASTER_ADDR 127.0.0.1 is reachable from node0 only"


def test_a_rank_that_came_twice_is_told():
    claim = OddClaim(2, False, "rank 2 (node1, pid 9) came although that rank was already here")
    culprit = culprits.Culprit("never-came", (3,), "join")
    found = told(culprit, run(), odd=(claim,))
    assert [f.cause for f in found] == ["never-came", "claimed-twice"]
    assert found[1].what == claim.text


@pytest.mark.parametrize(
    ("missing", "named"), [((3,), []), ((2, 3), [("never-came", (2,))])], ids=str
)
def test_a_rank_of_another_world_did_come(missing, named):
    claim = OddClaim(3, True, "rank 3 (node1, pid 9) says that the world has 8 ranks; the root 4")
    seen = run()
    seen.states |= {rank: RankState(rank) for rank in missing}
    came = {rank: b"" for rank in seen.states if rank not in missing}
    over = StageRound("join", came, seen.states, "deadline", other_worlds=(3,), odd=(claim,))
    found = findings.of_round(over, culprits.culprits(over), seen)
    assert [(f.cause, f.who.ranks) for f in found] == [*named, ("other-world", ())]
    assert found[-1].what == claim.text


def waiting(*ranks, **facts):
    seen = run(**facts)
    for rank in ranks:
        seen.states[rank] = replace(seen.states[rank], waiting=True)
    return seen


def test_who_did_not_wait_when_a_signal_ended_the_job_is_where_to_look_and_not_named():
    behind = culprits.Culprit("no-progress", (2,), "collectives", victims=(0, 1, 3))
    (finding,) = findings.ended_early([behind], waiting(0, 1, 3, step="verify"))
    assert finding.what == (
        "ranks 0-1, 3 were waiting for the others in stage collectives when a signal ended the"
        " job; rank 2 (node1, local rank 0) was not: look there first"
    )
    assert (finding.condition, finding.who.ranks) == ("unknown", ())
    assert any("py-spy" in one and one.endswith("(on node1)") for one in finding.next)
    ended = Report.of("selftest", {"size": 4}, {}, [finding], complete=False)
    assert (ended.verdict, ended.exit_code()) == ("incomplete", 3)


def test_two_who_did_not_wait_are_one_finding():
    behind = [culprits.Culprit("no-progress", (rank,), "device") for rank in (2, 3)]
    (finding,) = findings.ended_early(behind, waiting(0))
    assert finding.what.startswith("rank 0 was waiting for the others in stage device when")
    assert finding.what.endswith("; ranks 2-3 (node1) were not: look there first")


@pytest.mark.parametrize(
    ("cause", "ranks", "waiters"),
    [("no-progress", (2,), ()), ("all-wait", (), (0, 1, 2, 3)), ("never-came", (3,), (0, 1))],
)
def test_where_nobody_waited_or_nobody_stood_still_there_is_nothing_to_look_at(
    cause, ranks, waiters
):
    behind = culprits.Culprit(cause, ranks, "device")
    assert findings.ended_early([behind], waiting(*waiters)) == []
