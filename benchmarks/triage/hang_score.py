"""Scores tools on the evidence of DIR: which rank was named, was it right, was the kind right.

Each form of each case is asked alone. `oddrank triage` gets every form, torch's own analyzer the
pickles of the flight recorder.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hang_evidence

TRIAGE = f"{sys.executable} -m oddrank triage --json -"
ODDRANK, TORCH = "oddrank triage", "torch fr_trace"
_SECONDS = 300.0
_FOR_TORCH = ("flight_recorder", "flight_recorder_groups")
# Folders cut from paths in texts: results do not depend on where the jobs were made.
_FOLDERS = re.compile(r"(?<![\w.])/(?:[^/\s:()]+/)+")
OUTCOMES = ("right", "wrong", "unknown", "failed")
# Confidence that counts as naming somebody: DESIGN says that low alone is "unknown".
_COUNTS = ("medium", "high")

# torch's analyzer in one process: DIR... -> a JSON object, its text a folder.
_ANALYZER = """
import io, json, logging, sys
from torch.distributed.flight_recorder import fr_trace
from torch.distributed.flight_recorder.components.fr_logger import FlightRecorderLogger
texts = {}
for folder, prefix in zip(sys.argv[2:], [sys.argv[1]] * len(sys.argv)):
    text = io.StringIO()
    FlightRecorderLogger().logger.handlers = [logging.StreamHandler(text)]
    try:
        fr_trace.main([folder, "--prefix", prefix, "--allow-incomplete-ranks"])
        texts[folder] = [text.getvalue(), ""]
    except BaseException as error:
        texts[folder] = [text.getvalue(), f"{type(error).__name__}: {error}"]
print(json.dumps(texts))
"""


@dataclass(frozen=True)
class Named:
    """The ranks that one finding names with at least medium confidence."""

    ranks: frozenset[int]
    cause: str


@dataclass(frozen=True)
class Answer:
    """A tool's answer on one form of one case. kind: the cause is an accepted one."""

    tool: str
    case: str
    fault: str
    form: str
    outcome: str
    kind: bool
    named: tuple[int, ...]
    text: str


def judge(truth: Mapping[str, Any], said: Sequence[Named]) -> tuple[str, bool]:
    """Returns the outcome, and whether a right answer also has an accepted kind.

    wrong: a rank is named that may not be. A cycle may name all of its ranks, if the culprit is
    among them. No rank named is right in a healthy job, else unknown.
    """
    named = frozenset[int]().union(*(one.ranks for one in said))
    if not named:
        return ("unknown", False) if truth["ranks"] else ("right", True)
    for one in said:
        allowed = {*truth["accept"], *(truth["accept_cycle"] if one.cause == "cycle" else ())}
        if not one.ranks <= allowed:
            return "wrong", False
    if not named & set(truth["accept"]):
        return "wrong", False
    return "right", any(one.cause in truth["kinds"] for one in said if one.ranks)


def named_in(report: Mapping[str, Any], pids: Mapping[int, int]) -> list[Named]:
    """Reads the envelope of `oddrank triage --json -`. pids: pid -> rank, where it names a pid."""
    said = []
    for finding in report.get("findings", []):
        if finding.get("confidence", {}).get("level") in _COUNTS:
            who = finding["who"]
            ranks = set(who.get("ranks") or ())
            if who.get("kind") == "process":
                numbers = map(int, re.findall(r"\d+", who.get("device") or ""))
                ranks |= {pids[pid] for pid in numbers if pid in pids}
            said.append(Named(frozenset(ranks), finding.get("cause", "")))
    return said


def named_by_torch(text: str) -> list[Named]:
    """Reads the lines of torch's analyzer: missing ranks, and culprits of a mismatch."""
    missing = {
        int(rank)
        for found in re.findall(r"^missing ranks: \{([\d, ]*)\}", text, re.MULTILINE)
        for rank in re.findall(r"\d+", found)
    }
    culprits = {int(rank) for rank in re.findall(r"\bCulprit rank (\d+);", text)}
    pairs = ((missing, "not-entered"), (culprits, "mismatch"))
    return [Named(frozenset(ranks), cause) for ranks, cause in pairs if ranks]


def ask(folder: Path, command: Sequence[str], workers: int) -> list[Answer]:
    """Asks the tools about all forms of all cases in the folder."""
    cases = sorted(one.parent for one in folder.glob("*/truth.json"))
    forms = [(case, form) for case in cases for form in hang_evidence.forms_of(case)]
    with ThreadPoolExecutor(workers) as pool:
        answers = list(pool.map(lambda one: _ask_triage(one[0], one[1], command), forms))
    return answers + _ask_torch([one for one in forms if one[1] in _FOR_TORCH])


def _ask_triage(case: Path, form: str, command: Sequence[str]) -> Answer:
    try:
        done = subprocess.run(
            [*command, str(case / form)], capture_output=True, text=True, timeout=_SECONDS,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        report = json.loads(done.stdout)
        said = named_in(report, hang_evidence.ranks_of_pids(case))
        return _answer(ODDRANK, case, form, said, str(report.get("summary", "")))
    except subprocess.TimeoutExpired:
        return _failed(ODDRANK, case, form, f"no answer after {_SECONDS:g} s")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return _failed(ODDRANK, case, form, f"{error}; {done.stderr[-500:]}")


def _ask_torch(forms: Sequence[tuple[Path, str]]) -> list[Answer]:
    if not forms:
        return []
    folders = [str(case / form) for case, form in forms]
    command = [sys.executable, "-c", _ANALYZER, hang_evidence.DUMP_NAME, *folders]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_SECONDS * len(folders), check=True
    )
    texts = json.loads(done.stdout.splitlines()[-1])
    answers = []
    for case, form in forms:
        text, error = texts[str(case / form)]
        if error:
            answers.append(_failed(TORCH, case, form, error))
        else:
            answers.append(_answer(TORCH, case, form, named_by_torch(text), text[:300]))
    return answers


def _answer(tool: str, case: Path, form: str, said: Sequence[Named], text: str) -> Answer:
    truth = hang_evidence.read_truth(case)
    outcome, kind = judge(truth, said)
    named = tuple(sorted(frozenset[int]().union(*(one.ranks for one in said))))
    return Answer(tool, case.name, truth["fault"], form, outcome, kind, named, text)


def _failed(tool: str, case: Path, form: str, why: str) -> Answer:
    fault = hang_evidence.read_truth(case)["fault"]
    return Answer(tool, case.name, fault, form, "failed", False, (), why)


def count(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Returns a row for each tool, form, and jobs with a fault or without one."""
    rows = []
    for tool in (ODDRANK, TORCH):
        for form in hang_evidence.FORMS:
            for healthy in (False, True):
                some = [
                    one
                    for one in answers
                    if (one.tool, one.form, one.fault == "healthy") == (tool, form, healthy)
                ]
                if some:
                    outcomes = {name: sum(a.outcome == name for a in some) for name in OUTCOMES}
                    kinds = sum(one.kind for one in some)
                    jobs = {"jobs": "healthy" if healthy else "fault", "count": len(some)}
                    rows.append({"tool": tool, "form": form, **jobs, **outcomes, "kind": kinds})
    return rows


def by_fault(answers: Sequence[Answer]) -> dict[str, dict[str, str]]:
    """Returns, for oddrank, fault -> form -> outcome of its jobs: right (with kind), ..."""
    found: dict[str, dict[str, list[str]]] = {}
    for one in answers:
        if one.tool == ODDRANK and one.fault != "healthy":
            word = one.outcome if one.outcome != "right" or one.kind else "right, other kind"
            found.setdefault(one.fault, {}).setdefault(one.form, []).append(word)
    return {
        fault: {form: "; ".join(sorted(set(words))) for form, words in forms.items()}
        for fault, forms in found.items()
    }


def describe(answer: Answer) -> str:
    named = ", ".join(map(str, answer.named)) or "nobody"
    text = _FOLDERS.sub("", answer.text)
    return f"{answer.tool}: {answer.case}/{answer.form}: named {named}: {text}"[:400]


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table for docs: jobs with a fault, and in the last column the healthy ones."""
    lines = [
        "| evidence | tool | jobs | right rank | right kind | wrong name | unknown | failed"
        " | named in healthy jobs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    healthy = {(row["tool"], row["form"]): row for row in rows if row["jobs"] == "healthy"}
    for row in rows:
        if row["jobs"] == "fault":
            calm = healthy.get((row["tool"], row["form"]))
            named = f"{calm['wrong']} of {calm['count']}" if calm else "-"
            cells = [row[name] for name in ("count", "right", "kind", "wrong", "unknown", "failed")]
            form = row["form"].replace("_", " ")
            lines.append(f"| {form} | {row['tool']} | {' | '.join(map(str, cells))} | {named} |")
    return "\n".join(lines)
