"""--html of the commands that have it: each writes its page, and refuses what it can't do."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import forked
from job import job
from patience import until
from processes import captured, typed
from texts import texts

TEXTS = texts(__file__)

pytestmark = pytest.mark.needs("jinja2")

RAISED = (
    "[rank3]: Traceback (most recent call last):\n"
    '[rank3]:   File "train.py", line 9, in main\n[rank3]: ValueError: boom <b>\n'
)


def oddrank(*arguments: object, **environ: str) -> "subprocess.CompletedProcess[str]":
    if "PYTHONPATH" not in environ:
        return typed(*arguments, **environ)
    return captured([sys.executable, "-m", "oddrank", *map(str, arguments)], **environ)


def refused(*arguments: object, **environ: str) -> str:
    """Returns the only line of a call that ran nothing."""
    done = oddrank(*arguments, **environ)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    return done.stderr


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "job.log"
    file.write_text(RAISED)
    return file


def test_triage_writes_its_page_beside_text_and_json(log, tmp_path):
    made = tmp_path / "page.html"
    done = oddrank("triage", log, "--html", made, "--json", tmp_path / "report.json")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("triage: odd\n")
    assert (tmp_path / "report.json").exists()
    text = made.read_text()
    assert "rank 3 raised ValueError: boom &lt;b&gt;, at main (train.py:9)" in text
    assert "<b>" not in text.replace('<b id="verdict">', "").partition("<script")[0]


# PyTorch without SequenceNumber: how far the ranks have come is not known.
UNNUMBERED = (
    "[rank0]: RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running"
    " collective: CollectiveFingerPrint(OpType=ALLREDUCE, TensorShape=[1], TensorDtypes=Float,"
    " TensorDeviceTypes=cpu), but Rank 1 is running collective:"
    " CollectiveFingerPrint(OpType=BROADCAST).\n"
)


def test_triage_writes_its_page_of_calls_without_numbers(log, tmp_path):
    log.write_text(UNNUMBERED)
    made = tmp_path / "page.html"
    done = oddrank("triage", log, "--html", made)
    assert (done.returncode, done.stderr) == (1, "")
    assert made.read_text().count(">?</td>") == 2


BROKEN = "import jinja2\njinja2.Environment.get_template = lambda *_: 1 / 0\n"


@pytest.mark.parametrize(("fail_on", "code"), [("odd", 1), ("none", 0)])
def test_a_page_that_fails_loses_no_verdict(fail_on, code, log, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(BROKEN)
    made, report = tmp_path / "page.html", tmp_path / "report.json"
    words = ("triage", log, "--html", made, "--json", report, "--fail-on", fail_on)
    done = oddrank(*words, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout[:12]) == (code, "triage: odd\n")
    assert done.stderr == f"oddrank: {made} was not written: ZeroDivisionError: division by zero\n"
    assert json.loads(report.read_text())["verdict"] == "odd"
    assert not made.exists()


@pytest.mark.needs("torch")
def test_the_self_test_writes_its_page_with_its_stages(tmp_path):
    made = tmp_path / "page.html"
    verdict = job(
        3, command=("selftest", "--only", "device", "--html", str(made)),
        inject="set:rank=1,stage=environment,name=torch,value=1.0", deadline=60,
    )  # fmt: skip
    assert verdict.names(rank=1, stage="environment"), verdict
    text = made.read_text()
    assert verdict.report is not None
    assert verdict.report["findings"][0]["what"] in text
    assert "<h2>Stages</h2>" in text
    assert f'["{os.uname().nodename}","0-2"]' in text


def run(folder: Path, script: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Runs a script on two ranks under `oddrank run`, which writes page.html."""
    (folder / "train.py").write_text(script)
    return forked.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         "-m", "oddrank", "run", *options, "--html", "page.html", "-o", "saved", "train.py"],
        env={**os.environ, "ODDRANK_DIR": str(folder / "records"), "OMP_NUM_THREADS": "1"},
        cwd=folder, text=True,
    )  # fmt: skip


STUCK = TEXTS["stuck"]
AT_WORK = TEXTS["at work"]


@pytest.mark.needs("torch-build")
def test_run_writes_its_page_when_a_rank_is_stuck(tmp_path):
    run(tmp_path, STUCK, "--stall", "2", "--on-stall", "kill")
    text = (tmp_path / "page.html").read_text()
    assert "rank 1" in text.partition('id="summary">')[2].partition("<")[0]
    assert f"the evidence of {os.uname().nodename} is saved: oddrank triage" in text
    assert "all ranks were ended, as --on-stall kill asks" in text
    assert "decision: same-nodes" in text
    stacks = text.partition("<h2>Stacks</h2>")[2]
    assert "load (" in stacks
    assert "<h2>What happened when</h2>" in text
    assert "<h2>How far the ranks of default_pg (ranks 0-1) have come</h2>" in text
    assert re.search('<tr class="odd"><td[^>]*>1</td>', text)


@pytest.mark.needs("torch-build")
def test_the_page_of_a_job_that_went_well_shows_no_stall(tmp_path):
    """A stall that was none, as the rank was at work, leaves nothing on the page.

    After ten times --stall it would be told, at work or not: far beyond what a starved rank takes.
    """
    done = run(tmp_path, AT_WORK, "--stall", "3")
    assert done.returncode == 0, done.stderr
    made = tmp_path / "page.html"
    until(made.exists)
    until(lambda: 'id="verdict">healthy<' in made.read_text())
    shown = made.read_text().partition("<main>")[2].partition("<script")[0]
    assert "waits" not in shown
    assert "Stacks" not in shown


def test_a_page_that_can_not_be_written_is_refused_before_anything_runs(log, tmp_path, golden):
    rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    lines = [
        refused(*name.split(), "--html", file, *more, **rank)
        for name, *more in (
            ("triage", log),
            ("selftest",),
            ("bench run",),
            ("bench pairs",),
            ("run", "train.py"),
        )
        for file in ("-", tmp_path / "absent/page.html")
    ]
    one = tmp_path / "one"
    lines.append(refused("triage", log, "--html", one, "--json", f"{tmp_path}/x/../one"))
    options = ("--json", one, "--write-exclude", tmp_path / "nodes", "--html", one)
    lines.append(refused("selftest", *options, **rank))
    golden("".join(lines).replace(str(tmp_path), "FOLDER"))


def test_a_device_takes_several_reports(log):
    done = oddrank("triage", log, "--json", "/dev/null", "--html", "/dev/null")
    assert (done.returncode, done.stderr) == (1, "")


def test_without_jinja2_it_says_what_to_install(log, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['jinja2'] = None\n")
    page = tmp_path / "page.html"
    said = refused("triage", log, "--html", page, PYTHONPATH=str(tmp_path))
    assert said == "oddrank: --html needs jinja2: pip install jinja2\n"
    assert not page.exists()
