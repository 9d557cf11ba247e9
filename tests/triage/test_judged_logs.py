"""Whom logs of launchers, tracebacks and watchdogs name: data/judged/, and its golden files."""

import os
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
