"""Tracebacks that a process handled: its later lines show that it did not end by them."""

import pytest

from oddrank.triage import verdict
from oddrank.triage.evidence import launcher, tracebacks
from oddrank.triage.facts import Death
from oddrank.triage.view import view
from triage.facts_of import Texts

RAISED = (
    "Traceback (most recent call last):\n"
    '  File "/w/push.py", line 31, in push\n'
    "    sock.connect(addr)\n"
    "OSError: [Errno 113] no way to the metrics\n"
)


def of(rank, text):
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


def deaths(tmp_path, text):
    found = Texts(tmp_path, tracebacks.KIND).facts(text)
    return [fact for fact in found if isinstance(fact, Death)]


def culprits(tmp_path, text):
    found = [f for k in (launcher, tracebacks) for f in Texts(tmp_path, k.KIND).facts(text)]
    return [[p.rank for p in s.processes] for s in verdict.suspects(view(found))]


@pytest.mark.parametrize(
    "later",
    [
        "step 20 loss 2.1\nstep 30 loss 2.0\n",
        " iteration       12/  100000 | loss: 2\n iteration       13/  100000 | loss: 2\n",
        "global_step=20\nglobal_step=21\n",
        "training finished\n",
        "Finished training.\n",
    ],
)
def test_a_rank_that_goes_on_has_handled_its_exception(tmp_path, later):
    text = of(0, "step 10 loss 2.3\n" + RAISED + "trying again\n" + later)
    assert [death.went_on for death in deaths(tmp_path, text)] == [True]
    assert culprits(tmp_path, text) == []


@pytest.mark.parametrize(
    "later",
    [
        "saving what there is at step 20\n",
        "training finished with an error\n",
        "Epoch 3:  20%|##   | 2/10 [00:01<00:04]\nEpoch 4:  20%|##   | 2/10 [00:01<00:04]\n",
        "wandb: step 20 loss 2\nwandb: step 30 loss 2\n",
        "",
    ],
)
def test_last_words_behind_an_exception_are_no_steps(tmp_path, later):
    assert culprits(tmp_path, of(0, RAISED + later)) == [[0]]


def test_steps_of_other_ranks_prove_nothing(tmp_path):
    text = of(0, RAISED) + of(1, "step 20\nstep 30\ntraining finished\n")
    assert culprits(tmp_path, text) == [[0]]


def test_steps_that_were_written_late_do_not_hide_an_end_that_the_launcher_tells(tmp_path):
    failed = "E1 api.py] failed (exitcode: 1) local_rank: 0 (pid: 9) of binary: python\n"
    assert culprits(tmp_path, of(0, RAISED + "step 8\nstep 9\n") + failed) == [[0]]


def test_without_prefixes_only_much_later_lines_or_the_end_of_training_prove_it(tmp_path):
    def lines(*times):
        return "".join(f"2026-11-23 03:{t} INFO step {n}\n" for n, t in enumerate(times, 1))

    soon = lines("00:01") + RAISED + lines("00:02", "00:03", "00:04")
    late = lines("00:01") + RAISED + lines("00:02", "05:03")
    assert [death.went_on for death in deaths(tmp_path, soon)] == [False]
    assert [death.went_on for death in deaths(tmp_path, late)] == [True]
    assert [death.went_on for death in deaths(tmp_path, RAISED + "step 8\nstep 9\n")] == [False]
    assert [d.went_on for d in deaths(tmp_path, RAISED + "training finished\n")] == [True]


def test_the_exception_that_ended_a_rank_is_told_and_not_the_one_before(tmp_path):
    text = of(0, RAISED + "step 8\nstep 9\n" + RAISED.replace("OSError", "KeyError"))
    assert [(d.text[:8], d.went_on) for d in deaths(tmp_path, text)] == [("KeyError", False)]
