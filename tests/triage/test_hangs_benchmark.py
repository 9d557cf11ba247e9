"""The benchmark of hangs: its table, its jobs, its scorer; and the demo of a hang."""

import ast
import json
import random
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "triage"))
import hang_evidence
import hang_job
import hang_score
import hang_watchdog
from hang_score import Named
from hang_table import BY_NAME, FAULTS, Case, Layout, plan

from oddrank.triage import causes
from texts import texts

ROOT = Path(__file__).parents[2]
BENCHMARK = ROOT / "benchmarks" / "triage"
CAUSES = set(causes.TABLE)


def texts_and_functions(name):
    tree = ast.parse((BENCHMARK / name).read_text())
    nodes = list(ast.walk(tree))
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    return functions, {node.value for node in nodes if isinstance(node, ast.Constant)}


def test_each_fault_has_a_culprit_a_cause_and_something_that_happens():
    hooks, _ = texts_and_functions("training_hooks.py")
    _, points = texts_and_functions("small_training.py")
    for fault in FAULTS:
        assert bool(fault.act) != bool(fault.signal), fault.name
        assert fault.act in hooks | {""}, fault.name
        assert fault.point in points, fault.name
        assert {fault.kind, *fault.also} <= CAUSES - {"unknown"}, fault.name
        for layout in fault.layouts:
            ranks = fault.who(layout, random.Random(1))
            assert ranks, fault.name
            assert 4 <= layout.world <= 8, fault.name
            assert set(ranks) <= set(fault.may(layout, ranks)) <= set(range(layout.world))


def test_a_seed_chooses_the_same_jobs_and_another_one_others():
    first, again, other = (plan((), 2, 5, seed) for seed in (1, 1, 2))
    assert first == again
    assert [json.dumps(case.truth()) for case in first] == [json.dumps(c.truth()) for c in again]
    assert [case.truth() for case in first] != [case.truth() for case in other]
    assert len({case.name for case in first}) == len(first) == 2 * len(FAULTS) + 5
    assert [case.fault for case in plan(["lock", "healthy"], 1, 1, 1)] == ["lock", "healthy"]


def truth(**more):
    return {"ranks": [2], "accept": [2], "accept_cycle": [], "kinds": ["lock"], **more}


def test_an_answer_is_right_wrong_or_unknown():
    def lock(*ranks, kind="lock"):
        return Named(frozenset(ranks), kind)

    cycle, nobody = {"accept_cycle": [1, 2]}, {"ranks": [], "accept": []}
    for facts, said, outcome, kind in (
        ({}, [], "unknown", False), ({}, [lock(2)], "right", True),
        ({}, [lock(2, kind="dead")], "right", False), ({}, [lock(1, 2)], "wrong", False),
        ({}, [lock(2), lock(0, kind="dead")], "wrong", False),
        ({"accept": [1, 2]}, [lock(1)], "right", True),
        (cycle, [lock(1, 2, kind="cycle")], "right", False), (cycle, [lock(1, 2)], "wrong", False),
        (cycle, [lock(1, kind="cycle")], "wrong", False), (nobody, [], "right", True),
        (nobody, [lock(0, kind="slow")], "wrong", False),
    ):  # fmt: skip
        assert hang_score.judge(truth(**facts), said) == (outcome, kind), (facts, said)


# Prints a report about the rank in the name of its argument's folder; "none" names nobody.
FAKE = texts(__file__)["fake"]


def test_the_scorer_counts_a_known_set_of_answers_right(tmp_path):
    fake = tmp_path / "fake.py"
    fake.write_text(FAKE)
    culprit, other = [2, "lock", "high"], [1, "lock", "medium"]
    said = {
        "a-000": ("records", [culprit]), "b-000": ("records", [[2, "dead", "medium"]]),
        "c-000": ("records", [culprit, other]), "d-000": ("records", [[1, "lock", "low"]]),
        "e-000": ("records", None), "f-000": ("torchrun", [other]),
    }  # fmt: skip
    for case, (form, answer) in said.items():
        folder = tmp_path / "cases" / case / form
        folder.mkdir(parents=True)
        (folder / "said").write_text(json.dumps(answer))
        facts = truth(fault=case[0])
        (folder.parent / "truth.json").write_text(json.dumps(facts))
    answers = hang_score.ask(tmp_path / "cases", [sys.executable, str(fake)], 2)
    outcomes = {one.case: one.outcome for one in answers}
    assert outcomes == {
        "a-000": "right", "b-000": "right", "c-000": "wrong", "d-000": "unknown",
        "e-000": "failed", "f-000": "wrong",
    }  # fmt: skip
    records, torchrun = hang_score.count(answers)
    assert records == {
        "tool": "oddrank triage", "form": "records", "jobs": "fault", "count": 5, "right": 2,
        "wrong": 1, "unknown": 1, "failed": 1, "kind": 1,
    }  # fmt: skip
    assert (torchrun["form"], torchrun["wrong"]) == ("torchrun", 1)
    table = hang_score.markdown([records, torchrun])
    assert "| records | oddrank triage | 5 | 2 | 1 | 1 | 1 | 1 | - |" in table


def test_a_named_pid_counts_as_its_rank_and_low_confidence_names_nobody():
    def finding(level, **who):
        return {"who": who, "cause": "lock", "confidence": {"level": level}}

    report = {
        "findings": [
            finding("high", kind="process", ranks=[], device="pids 70, 80"),
            finding("medium", kind="rank", ranks=[3]),
            finding("low", kind="rank", ranks=[4]),
            finding("high", kind="link", ranks=[], device="ib6"),
        ]
    }
    pids, three, link = hang_score.named_in(report, {70: 0, 80: 1})
    assert (pids.ranks, three.ranks, link.ranks) == ({0, 1}, {3}, frozenset())


def test_names_are_read_from_what_torchs_analyzer_prints():
    text = (
        "Not all ranks joining collective, sequence number: 7\nmissing ranks: {3, 5}\n"
        "error msg: Culprit rank 2; Error type: COLLECTIVE_TYPE_MISMATCH\n"
    )
    assert hang_score.named_by_torch(text) == [
        Named(frozenset({3, 5}), "not-entered"),
        Named(frozenset({2}), "mismatch"),
    ]
    assert hang_score.named_by_torch("No errors found for this collective entry") == []


def entry(name, seq, *, retired):
    return {
        "process_group": (name, ""), "collective_seq_id": seq, "retired": retired,
        "profiling_name": "gloo:all_reduce", "input_sizes": [[2, 3], [4]],
    }  # fmt: skip


def test_watchdog_lines_have_the_rank_in_the_group_and_the_oldest_open_operation(golden):
    groups = {
        "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 5, 9]"},
        "4": {"name": "4", "desc": "data", "ranks": "[5, 9]"},
    }
    over, *waits = entry("4", 6, retired=True), *(entry("4", seq, retired=False) for seq in (7, 8))
    ranks = {
        rank: {"dump": {"entries": [over, *more], "pg_status": {}}, "groups": groups, "pair": None,
               "time": 1e9}
        for rank, more in {9: waits, 5: []}.items()
    }  # fmt: skip
    said = "".join(hang_watchdog.lines(ranks, newest=True))
    golden(re.sub(r"(?m)\[E\d+ \S+|(?<=bugs).*", "", said))  # times are local
    assert hang_watchdog.lines({5: ranks[5]}, newest=True) == []


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """Makes three small cases for real."""
    folder = tmp_path_factory.mktemp("hangs")
    chosen = [
        Case("missing-collective-000", "missing-collective", Layout(4), (1,), 0, 1, 1),
        Case("stopped-000", "stopped", Layout(4, pp=2), (2,), 1, 0, 1),
        Case("raised-000", "raised", Layout(4), (3,), 1, 0, 1),
    ]
    made = {case.fault: hang_job.run_case(case, folder / case.name) for case in chosen}
    return folder, made


@pytest.mark.job
@pytest.mark.needs("torch")
@pytest.mark.timeout(600)
class TestRealCases:
    def test_the_stopped_rank_is_stopped_while_evidence_is_saved(self, cases):
        folder, made = cases
        states = made["stopped"]["states"]
        assert states[2] == "T"
        assert {states[rank] for rank in (0, 1, 3)} == {"S"}
        assert not made["stopped"]["moved"]
        stacks = sorted(file.name for file in (folder / "stopped-000/faulthandler").iterdir())
        dumps = sorted(file.name[-1] for file in (folder / "stopped-000/flight_recorder").iterdir())
        assert stacks == ["rank0.txt", "rank1.txt", "rank3.txt"]
        assert dumps == ["0", "1", "3"]
        assert len(list((folder / "stopped-000/records").rglob("rank*.trace"))) == 4

    def test_truth_and_all_forms_are_there_and_torchs_analyzer_is_scored(self, cases):
        folder, made = cases
        for name, facts in made.items():
            case = folder / f"{name}-000"
            assert hang_evidence.read_truth(case)["kind"] == BY_NAME[name].kind
            together = {one.name for one in (case / "all").iterdir()}
            assert together <= set(facts["forms"])
            assert {"records", "flight_recorder", "torchrun"} <= together
        answers = hang_score.ask(folder, ["true"], 2)
        ours = [one for one in answers if one.tool == hang_score.ODDRANK]
        theirs = {one.case: one for one in answers if one.form == "flight_recorder_groups"
                  if one.tool == hang_score.TORCH}  # fmt: skip
        assert {one.outcome for one in ours} == {"failed"}  # `true` prints no report
        assert 1 in theirs["missing-collective-000"].named
