"""Jobs that somebody told to end: nobody is blamed, and where ranks stood is said if known."""

import pytest

from oddrank.triage import verdict
from oddrank.triage.evidence import Item, launcher, stacks, tracebacks
from oddrank.triage.facts import Frame, Stack, Stop
from oddrank.triage.findings import finding
from oddrank.triage.next_steps import next_steps
from oddrank.triage.view import view
from triage.facts_of import Texts, item_of

AGENT = "W0203 08:30:11.250000 900 torch/distributed/elastic/"
TOLD = AGENT + "agent/server/api.py:753] Received {} death signal, shutting down workers\n"
ITS_OWN = (
    "Traceback (most recent call last):\n"
    '  File "/env/torch/distributed/launcher/api.py", line 374, in launch_agent\n'
    "    result = agent.run()\n"
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 900 got signal: 15\n"
)


def closing(*pids, name="SIGTERM"):
    where = AGENT + "multiprocessing/api.py:1028] "
    return "".join(f"{where}Sending process {pid} closing signal {name}\n" for pid in pids)


def facts(tmp_path, text):
    kinds = (launcher, tracebacks, stacks)
    return [fact for kind in kinds for fact in Texts(tmp_path, kind.KIND).facts(text)]


def one(tmp_path, text):
    seen = view(facts(tmp_path, text))
    (suspect,) = verdict.suspects(seen)
    return suspect, finding(suspect, next_steps(suspect, seen))


@pytest.mark.parametrize(
    ("word", "name"), [("15", "SIGTERM"), ("Signals.SIGINT", "SIGINT"), ("2", "SIGINT")]
)
def test_a_job_that_torchrun_was_told_to_end_has_no_culprit(tmp_path, word, name):
    suspect, said = one(tmp_path, "step 3\n" + TOLD.format(word) + closing(11, 12) + ITS_OWN)
    assert (suspect.cause, suspect.processes, suspect.certainty) == ("unknown", (), 0)
    expected = f"torchrun was told to end ({name}) at 08:30:11; its log does not say why"
    assert said.what == expected
    assert any("py-spy" in line for line in said.next)


def test_the_launchers_own_traceback_is_enough(tmp_path):
    _, said = one(tmp_path, ITS_OWN)
    assert said.what == "torchrun was told to end (SIGTERM); its log does not say why"


def test_what_ends_the_launcher_afterwards_is_no_rank(tmp_path):
    suspect, _ = one(tmp_path, ITS_OWN + "Fatal Python error: Aborted\n")
    assert suspect.rule == "told-to-end"


def test_a_rank_that_died_before_is_still_the_culprit(tmp_path):
    raised = (
        "[rank3]: Traceback (most recent call last):\n"
        '[rank3]:   File "t.py", line 4, in f\n[rank3]: ValueError: no\n'
    )
    suspect, _ = one(tmp_path, raised + TOLD.format(15) + closing(11, 12))
    assert (suspect.cause, [p.rank for p in suspect.processes]) == ("dead", [3])


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (" DUE TO TIME LIMIT", "SLURM ended the job at 03:10:11 at its time limit: nobody is"),
        (" DUE TO PREEMPTION", "SLURM ended the job at 03:10:11 (preemption): nobody is to"),
        ("", "SLURM cancelled the job at 03:10:11; its log does not say why"),
    ],
)
def test_a_job_that_slurm_ended_has_no_culprit(tmp_path, why, said):
    line = f"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-23T03:10:11{why} ***\n"
    suspect, found = one(tmp_path, line + "srun: error: n1: tasks 0-3: Terminated\n")
    assert (suspect.cause, suspect.processes) == ("unknown", ())
    assert found.what.startswith(said)
    assert any(step.startswith("sacct") for step in found.next)


def interrupted(rank, function, *before):
    lines = (
        *before,
        "Traceback (most recent call last):",
        '  File "/w/t.py", line 9, in main',
        f'  File "/w/t.py", line {rank + 1}, in {function}',
        "KeyboardInterrupt",
    )
    return "".join(f"[rank{rank}]: {line}\n" for line in lines)


FAILED = (
    "Traceback (most recent call last):",
    '  File "/env/torch/distributed/c10d_logger.py", line 83, in wrapper',
    '  File "/env/torch/distributed/distributed_c10d.py", line 3252, in all_reduce',
    "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.1]:99",
    "",
    "During handling of the above exception, another exception occurred:",
    "",
)


def failed(rank):
    """A signal waits for the end of a collective: the interrupt comes from behind it."""
    lines = (
        *FAILED,
        "Traceback (most recent call last):",
        '  File "/w/t.py", line 9, in main',
        '  File "/env/torch/distributed/c10d_logger.py", line 85, in wrapper',
        '  File "/env/torch/distributed/c10d_logger.py", line 53, in _message',
        "KeyboardInterrupt",
    )
    return "".join(f"[rank{rank}]: {line}\n" for line in lines)


def test_tracebacks_of_ctrl_c_are_where_ranks_stood_and_no_deaths(tmp_path):
    text = (
        TOLD.format("Signals.SIGINT") + closing(11, 12, 13, name="SIGINT")
        + interrupted(1, "tidy") + failed(0) + failed(2)
    )  # fmt: skip
    suspect, said = one(tmp_path, text)
    assert suspect.cause != "dead"
    assert [p.rank for p in suspect.processes] == [1]
    assert said.next[0].startswith("if it hung: py-spy dump")
    assert said.what == "rank 1 may be stuck in tidy (t.py:2); ranks 0, 2 wait for it in all_reduce"


def test_an_interrupt_inside_a_failed_collective_stood_in_it(tmp_path):
    found = [f for f in facts(tmp_path, failed(0)) if isinstance(f, Stack)]
    assert [frame.function for frame in found[0].frames] == ["all_reduce", "wrapper", "main"]
    assert found[0].frames[-1] == Frame("main", "/w/t.py", 9)


def test_a_stop_has_its_line_and_time(tmp_path):
    (stop,) = (f for f in facts(tmp_path, "x\n" + TOLD.format(15)) if isinstance(f, Stop))
    assert (stop.what, stop.signal, stop.source.line, stop.wall) == ("torchrun", 15, 2, True)
    assert stop.time is not None


def test_a_job_without_any_word_of_its_end_is_healthy(tmp_path):
    path = tmp_path / "quiet.log"
    path.write_text("step 3\nstep 4\n")
    item: Item = item_of(path)
    assert not any(kind.KIND.sniff(item) for kind in (launcher, tracebacks))


def test_a_signal_with_an_odd_digit_is_unknown(tmp_path):
    (stop,) = Texts(tmp_path, launcher.KIND).facts(
        "Received Signals.\N{SUPERSCRIPT TWO} death signal, shutting down workers\n"
    )
    assert (stop.what, stop.signal) == ("torchrun", None)
