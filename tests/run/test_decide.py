"""What to do after a verdict: each rule of the table, and the history of attempts."""

import json
from dataclasses import replace

import pytest

from oddrank import exclude
from oddrank.finding import Who
from oddrank.report import Report
from oddrank.run.decide import ATTEMPTS, REFUSED, Attempt, attempts, decide, note, signature
from oddrank.switches.agreement import RefusedError
from oddrank.triage import causes
from oddrank.triage.facts import Process, Source, Trouble
from oddrank.triage.findings import finding as finding_of
from oddrank.triage.suspects import Suspect
from reports import finding
from texts import rows

HOSTS = {0: "node1", 1: "node1", 2: "node2", 3: "node2"}
NOW = Attempt("run-7", 1000.0, 0, "dead: raised KeyError", 100, "rank 2 raised KeyError")


def report(*findings):
    return Report.of("run", {"size": 4}, {}, findings, complete=True)


def decided(*findings, told=False, earlier=(), now=NOW):
    return decide(report(*findings), HOSTS, told=told, earlier=earlier, now=now)


def named(cause, condition="stuck", rank=2, **changes):
    return finding(rank, condition, cause, who=Who("rank", (rank,), HOSTS.get(rank)), **changes)


REFUSAL = f"rank 0 (node1) raised {REFUSED} at <module> (train.py:8)"
# What is found, what else is known, what to do, and which nodes to leave out.
RULES = [
    ([named("device", drains_node=True)], {}, "exclude", ("node2",)),
    ([named("gpu-stopped", drains_node=True)], {}, "exclude", ("node2",)),
    ([named("device", rank=7, drains_node=True)], {}, "same-nodes", ()),  # its host is not known
    ([named("not-entered")], {}, "same-nodes", ()),
    ([named("mismatch")], {}, "same-nodes", ()),
    ([named("moving")], {}, "wait", ()),
    ([named("dead", "dead", what=REFUSAL)], {}, "do-not-restart", ()),
    # An end from outside, and an unknown cause.
    ([named("device", drains_node=True)], {"told": True}, "same-nodes", ()),
    ([named("device", "unknown", drains_node=True)], {}, "same-nodes", ()),
    ([], {}, "same-nodes", ()),
]


def test_a_cause_decides(golden):
    assert f"{RefusedError.__module__}.{RefusedError.__qualname__}" == REFUSED
    why = []
    for findings, known, action, nodes in RULES:
        made = decided(*findings, **known)
        row = (*(one.cause for one in findings), *known)
        assert (made.action, made.nodes) == (action, nodes), row
        why.append(f"{' '.join(row)} {made.action}: {made.why}")
    golden("\n".join(why))


def earlier(*steps, **changes):
    return [replace(NOW, began=float(i), step=step, **changes) for i, step in enumerate(steps)]


# Steps of the attempts before, of this one, and whether a fourth one is tried.
PROGRESS = [[*map(json.loads, row)] for row in rows(__file__, "progress")]


def test_the_same_end_without_progress_is_not_tried_a_fourth_time(golden):
    dead = named("dead", "dead")
    why = set()
    for steps, step, goes_on in PROGRESS:
        made = decided(dead, earlier=earlier(*steps), now=replace(NOW, step=step))
        assert made.action == ("same-nodes" if goes_on else "do-not-restart"), (steps, step)
        why |= set() if goes_on else {made.why}
    for name in ("oom", ""):  # another end, or nobody was named
        assert decided(dead, earlier=earlier(100, 100, signature=name)).action == "same-nodes"
    unnamed = {"earlier": earlier(100, 100, signature=""), "now": replace(NOW, signature="")}
    assert decided(dead, **unnamed).action == "same-nodes"
    assert ATTEMPTS == 3
    golden("\n".join(sorted(why)))


def test_a_signature_has_no_ranks_and_no_numbers():
    one = named("dead", "dead", what="rank 2 (node2) raised KeyError: 4711; ranks 0-1 wait for it")
    other = named("dead", "dead", 0, what="rank 0 (node1) raised KeyError: 12; ranks 1-3 wait")
    assert signature(report(one)) == signature(report(other)) == "dead: raised KeyError: #"
    assert signature(report()) == ""


def test_attempts_are_read_again_in_order_and_broken_files_decide_nothing(tmp_path):
    folder, later = tmp_path / "history", replace(NOW, job="run-8", began=2000.0, step=None)
    restarted = replace(NOW, restart=1)
    for attempt in (later, restarted, NOW):
        note(folder, attempt)
    broken = {"1": '{"schema": "oddrank.attempt/1"}', "2": "[1]", "3": '{"schema": "x"}'}
    whole = next(folder.glob("attempt-run-8*")).read_text()
    wrong = {"began": "yesterday", "step": "3", "restart": None, "signature": []}
    broken |= {name: json.dumps(json.loads(whole) | {name: value}) for name, value in wrong.items()}
    broken |= {"4": whole.replace("attempt/1", "attempt/2"), "5": whole + " " * (1 << 16)}
    for name, text in broken.items():
        (folder / f"attempt-{name}-1.json").write_text(text)
    assert attempts(folder) == [NOW, restarted, later]
    assert attempts(tmp_path / "nowhere") == []
    assert not list(folder.glob(".*"))


XID = Trouble("xid", "Xid 79", Source("k"), "node2", "GPU 0000:9b:00", "79", fatal=True)
OWN = replace(XID, whose="application")
# A cause, how it was found, the trouble that it comes from, and whether it is the node's.
DRAINS = [
    ("gpu-stopped", "r", (), True),
    ("host-stuck", "held", (), True),
    ("host-stuck", "stacks-awaited", (), False),
    ("host-stopped", "held", (), False),
    ("unreachable", "no-answer", (), True),
    ("device", "fault-of-its-gpu", (XID,), True),
    ("application", "error-of-its-program", (OWN,), False),
]


@pytest.mark.parametrize(("cause", "how", "trouble", "drains"), DRAINS)
def test_triage_says_which_findings_are_of_a_node(cause, how, trouble, drains):
    made = finding_of(Suspect(causes.TABLE[cause], (Process(2, "node2"),), how, 2, trouble=trouble))
    assert made.drains_node == drains
    listed = exclude.text(report(made), HOSTS).splitlines()
    assert [line for line in listed if line[0] != "#"] == (["node2"] if drains else [])
