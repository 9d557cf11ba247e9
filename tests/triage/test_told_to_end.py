"""Jobs that somebody told to end: nobody is blamed, and where ranks stood is said if known."""

import pytest

from oddrank.triage.evidence import launcher, stacks, tracebacks
from oddrank.triage.facts import Frame, Stack, Stop
from oddrank.triage.next_steps import next_steps
from oddrank.triage.verdict import suspects
from oddrank.triage.view import view
from triage.facts_of import Texts, item_of
from triage.told import check

AGENT = "W0203 08:30:11.250000 900 torch/distributed/elastic/"
TOLD = AGENT + "agent/server/api.py:753] Received {} death signal, shutting down workers\n"
ITS_OWN = (
    "Traceback (most recent call last):\n"
    '  File "/env/torch/distributed/launcher/api.py", line 374, in launch_agent\n'
    "    result = agent.run()\n"
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 900 got signal: 15\n"
)
SLURM = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-23T03:10:11{} ***\n"
KINDS = (launcher, tracebacks, stacks)


@pytest.fixture
def said(tmp_path):
    """Returns a function: the facts of a log."""
    return lambda *parts: [
        fact for kind in KINDS for fact in Texts(tmp_path, kind.KIND).facts("".join(parts))
    ]


def closing(*pids, name="SIGTERM"):
    where = AGENT + "multiprocessing/api.py:1028] "
    return "".join(f"{where}Sending process {pid} closing signal {name}\n" for pid in pids)


def lines(rank, *several):
    return "".join(f"[rank{rank}]: {line}\n" for line in several)


def interrupted(rank, function):
    return lines(
        rank, "Traceback (most recent call last):", '  File "/w/t.py", line 9, in main',
        f'  File "/w/t.py", line {rank + 1}, in {function}', "KeyboardInterrupt",
    )  # fmt: skip


def failed(rank):
    """A signal waits for the end of a collective: the interrupt comes from behind it."""
    return lines(
        rank, "Traceback (most recent call last):",
        '  File "/env/torch/distributed/c10d_logger.py", line 83, in wrapper',
        '  File "/env/torch/distributed/distributed_c10d.py", line 3252, in all_reduce',
        "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.1]:99", "",
        "During handling of the above exception, another exception occurred:", "",
        "Traceback (most recent call last):", '  File "/w/t.py", line 9, in main',
        '  File "/env/torch/distributed/c10d_logger.py", line 85, in wrapper',
        '  File "/env/torch/distributed/c10d_logger.py", line 53, in _message',
        "KeyboardInterrupt",
    )  # fmt: skip


def test_a_job_that_was_told_to_end_has_no_culprit(said, golden):
    nobody = ("unknown", (), 0)
    raised = lines(3, "Traceback (most recent call last):", '  File "t.py", line 4, in f',
                   "ValueError: no")  # fmt: skip
    end = closing(11, 12)
    killed = "srun: error: n1: tasks 0-3: Terminated\n"
    ctrl_c = TOLD.format("Signals.SIGINT"), closing(11, 12, 13, name="SIGINT")
    rows = {
        "by 15": (said("step 3\n", TOLD.format("15"), end, ITS_OWN), nobody),
        "by SIGINT": (said("step 3\n", TOLD.format("Signals.SIGINT"), end, ITS_OWN), nobody),
        "by 2": (said("step 3\n", TOLD.format("2"), end, ITS_OWN), nobody),
        "the launcher's own traceback": (said(ITS_OWN), nobody),
        "what ends the launcher afterwards is no rank":
            (said(ITS_OWN, "Fatal Python error: Aborted\n"), nobody),
        "a rank that died before is still the culprit":
            (said(raised, TOLD.format(15), end), ("dead", (3,), 2)),
        "SLURM at its time limit": (said(SLURM.format(" DUE TO TIME LIMIT"), killed), nobody),
        "SLURM for another job": (said(SLURM.format(" DUE TO PREEMPTION"), killed), nobody),
        "SLURM for no known reason": (said(SLURM.format(""), killed), nobody),
        "ctrl-c shows where ranks stood":
            (said(*ctrl_c, interrupted(1, "tidy"), failed(0), failed(2)), ("host-stuck", (1,), 0)),
    }  # fmt: skip
    check(golden, rows)
    steps = []
    for name, (facts, _) in rows.items():
        (suspect,) = suspects(seen := view(facts))
        steps.append("\n  ".join([name, *next_steps(suspect, seen)]))
    golden("\n".join(steps), "next")


def test_an_interrupt_inside_a_failed_collective_stood_in_it(said):
    (found,) = (f for f in said(failed(0)) if isinstance(f, Stack))
    assert [frame.function for frame in found.frames] == ["all_reduce", "wrapper", "main"]
    assert found.frames[-1] == Frame("main", "/w/t.py", 9)


def test_a_stop_has_its_line_time_and_signal(said):
    (stop,) = (f for f in said("x\n", TOLD.format(15)) if isinstance(f, Stop))
    assert (stop.what, stop.signal, stop.source.line, stop.wall) == ("torchrun", 15, 2, True)
    assert stop.time % 86400 == pytest.approx(8 * 3600 + 30 * 60 + 11.25)
    odd = TOLD.format("Signals.\N{SUPERSCRIPT TWO}")
    (stop,) = (f for f in said(odd) if isinstance(f, Stop))
    assert (stop.what, stop.signal) == ("torchrun", None)


def test_a_job_without_any_word_of_its_end_is_healthy(tmp_path):
    path = tmp_path / "quiet.log"
    path.write_text("step 3\nstep 4\n")
    assert not any(kind.KIND.sniff(item_of(path)) for kind in (launcher, tracebacks))
