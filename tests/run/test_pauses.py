"""Real ranks that wait on purpose for longer than --stall: no verdict, no kill, no evidence."""

import shutil
import time
from pathlib import Path

import pytest

from debugger.programs import talk
from oddrank.debugger import channel
from oddrank.trace import ranks
from oddrank.triage import report as triage
from patience import until
from run.watched_job import LONGEST, watched_job

pytestmark = [pytest.mark.job, pytest.mark.needs("torch-build"), pytest.mark.timeout(600)]
PAUSING = Path(__file__).with_name("pausing.py")
# Starved ranks that stand for so long while they end would be told as a stall.
STALL = 6.0
SHORTEST = 1.5 * STALL  # a pause of these tests


def records(job):
    return sorted(job.folder.glob("records/*/rank*.trace"))


def pauses(job):
    """Returns how each rank waits on purpose now; None: it does not."""
    return [rank.pause and rank.pause.kind for rank in ranks.read(records(job))[0]]


def waits(job, kinds):
    until(lambda: pauses(job) == kinds or job.ended(), normal=LONGEST)
    assert pauses(job) == kinds, job.output[-3000:]


def copied(job, target):
    """Copies the records as they are now: what a person would keep of the job."""
    target.mkdir()
    for file in records(job):
        shutil.copy(file, target)
    return target


def triaged(folder):
    made = triage.made(triage.read([str(folder)]))
    return made.verdict, made.summary


def ends_well(job):
    """Checks that nothing was said or done."""
    assert job.ends() == [0], job.output[-3000:]
    assert job.report["verdict"] == "healthy"
    assert [one["event"] for one in job.history] == ["end"], job.output[-3000:]
    run = job.report["data"]["run"]
    assert (run["evidence"], run["killed"]) == (None, False)


def test_a_breakpoint_is_no_stall_before_the_debugger_comes_and_at_its_prompt(tmp_path):
    with watched_job(
        "breakpoint", 1, steps=40, ranks=3, stall=STALL, on_stall="collect", script=PAUSING
    ) as job:
        waits(job, ["waits", "breakpoint", "waits"])
        time.sleep(SHORTEST)
        verdict, summary = triaged(copied(job, tmp_path / "copy"))
        assert verdict == "healthy"
        assert summary.startswith("rank 1 stands in a breakpoint (pausing.py:")
        assert summary.endswith("; ranks 0, 2 wait for it")
        (session,) = channel.sessions([job.folder / "records"])
        # The first step lets the others go on, to the collective in which they wait for it.
        talk(session, f"n\n!import time; time.sleep({2 * STALL})\nc\n")
        ends_well(job)
