"""Whom logs of launchers, tracebacks and watchdogs name: data/judged/, and its golden files."""

import json
import os
import random
import re
from pathlib import Path

import pytest

from oddrank.inputs import Notes
from oddrank.triage import report
from oddrank.triage.next_steps import next_steps
from triage.facts_of import item_of
from triage.told import told, verdicts

WRITTEN = 1_795_478_400  # 2026-11-24: dates without a year are before that
DATA = Path(__file__).with_name("data") / "judged"


def brief(found):
    """Returns cause, ranks and certainty of each suspect as the files of logs have them."""
    said = []
    for cause, ranks, certainty in verdicts(found):
        who = ",".join("?" if rank is None else str(rank) for rank in ranks)
        said.append(f"{cause} {who or '-'} {certainty}")
    return "; ".join(said) or "nothing"


@pytest.mark.parametrize("name", [file.stem for file in sorted(DATA.iterdir())])
def test_each_log_names_who_it_tells_of(tmp_path, name, golden):
    """`=== NAME => CAUSE RANKS CERTAINTY; ...` begins a log. `?`: an unknown rank; `-`: none."""
    said, wrong = [], []
    logs = re.split("(?m)^=== ", (DATA / f"{name}.txt").read_text())[1:]
    for number, (head, _, log) in enumerate(part.partition("\n") for part in logs):
        path = tmp_path / str(number)
        path.write_text(log)
        os.utime(path, (WRITTEN, WRITTEN))
        found = report.judged([item_of(path, "job.log")], Notes())
        title, expected = head.split(" => ")
        if (made := brief(found.suspects)) != expected:
            wrong.append(f"{title}: {made}, not {expected}")
        steps = [f"  {line}" for one in found.suspects for line in next_steps(one, found.view)]
        said += [title, told(found.suspects).rstrip("\n") or "  nobody", *steps]
    assert not wrong, "\n".join(wrong)
    golden("\n".join(said))


ENVELOPES = {
    "grep -n": lambda number, line: f"{number}:{line}",
    "grep -Hn": lambda number, line: f"job.out:{number}:{line}",
    "a quotation": lambda _, line: f"> {line}",
    "cat -n": lambda number, line: f"{number:6d}\t{line}",
    "JSON": lambda _, line: json.dumps({"severity": "INFO", "message": line}),
}
JUNK = ("", "}", "{", "3: ", "[rank7]: ", "Traceback (most recent call last):", "\x1b[31m",
        "KeyError: 1", "\r", "a" * 300, "--", "²", "Killed")  # fmt: skip


def test_an_envelope_changes_no_verdict_of_a_changed_text(tmp_path):
    """And no change makes triage raise: pieces of two logs, with lines cut, mixed and made up."""
    dice = random.Random(7)
    rows = [part for file in sorted(DATA.iterdir())
            for part in re.split("(?m)^=== ", file.read_text())[1:]]  # fmt: skip
    logs = [row.partition("\n")[2].splitlines() for row in rows]
    words = [word for log in logs for line in log for word in line.split()]

    def verdict(kind, number, lines):
        path = tmp_path / f"{number}-{kind}"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        try:
            made = report.made(report.read([str(path)]))
        except report.OddrankError:  # nothing in it tells of anything
            return None
        return made.verdict, [(f.cause, f.who.ranks if f.who else None) for f in made.findings]

    for number in range(250):
        lines = [line for log in dice.sample(logs, 2) for line in log[dice.randrange(len(log)) :]]
        for _ in range(dice.randrange(6)):
            at = dice.randrange(len(lines))
            line = lines[at]
            junk, word = dice.choice(JUNK), dice.choice(line.split() or [" "])
            changed = (line[: dice.randrange(len(line) + 1)], junk + line, junk,
                       line.replace(word, dice.choice(words), 1))  # fmt: skip
            lines[at] = dice.choice(changed)
        if len(lines) < 2:
            lines *= 2
        name = dice.choice(sorted(ENVELOPES))
        wrapped = [ENVELOPES[name](at, line) for at, line in enumerate(lines, 7)]
        assert verdict("wrapped", number, wrapped) == verdict("bare", number, lines), (name, lines)
