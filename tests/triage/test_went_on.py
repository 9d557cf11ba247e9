"""Tracebacks that a process handled: its later lines show that it did not end by them."""

import pytest

from oddrank.triage.evidence import launcher, tracebacks
from oddrank.triage.facts import Death
from oddrank.triage.verdict import suspects
from oddrank.triage.view import view
from triage.facts_of import Texts

RAISED = (
    "Traceback (most recent call last):\n"
    '  File "/w/push.py", line 31, in push\n'
    "    sock.connect(addr)\n"
    "OSError: [Errno 113] no way to the metrics\n"
)
FAILED = "E1 api.py] failed (exitcode: 1) local_rank: 0 (pid: 9) of binary: python\n"
TWICE = RAISED + "step 8\nstep 9\n" + RAISED.replace("OSError", "KeyError")


def of(rank, text):
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


def dated(*times):
    return "".join(f"2026-11-23 03:{t} INFO step {n}\n" for n, t in enumerate(times, 1))


WENT_ON = ("step 20 loss 2.1\nstep 30 loss 2.0\n", "global_step=20\nglobal_step=21\n",
           " iteration       12/  100000 | loss: 2\n iteration       13/  100000 | loss: 2\n",
           "training finished\n", "Finished training.\n")  # fmt: skip
LAST_WORDS = ("saving what there is at step 20\n", "training finished with an error\n", "",
              "Epoch 3:  20%|##   | 2/10 [00:01<00:04]\nEpoch 4:  20%|##   | 2/10 [00:01<00:04]\n",
              "wandb: step 20 loss 2\nwandb: step 30 loss 2\n")  # fmt: skip
ROWS = {
    **{f"then {more!r}": (of(0, "step 10 loss 2.3\n" + RAISED + "trying again\n" + more), True, [])
       for more in WENT_ON},
    **{f"last {more!r}": (of(0, RAISED + more), False, [[0]]) for more in LAST_WORDS},
    "steps of another rank": (of(0, RAISED) + of(1, WENT_ON[0] + WENT_ON[3]), False, [[0]]),
    "steps that were written late": (of(0, RAISED + "step 8\nstep 9\n") + FAILED, True, [[0]]),
    "nobody's lines, soon": (dated("00:01") + RAISED + dated("00:02", "00:04"), False, [[]]),
    "nobody's lines, late": (dated("00:01") + RAISED + dated("00:02", "05:03"), True, []),
    "nobody's lines without times": (RAISED + "step 8\nstep 9\n", False, [[]]),
    "nobody's end of training": (RAISED + "training finished\n", True, []),
    "the one that ended it comes later": (of(0, TWICE), False, [[0]]),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_whether_a_rank_went_on_behind_its_exception(tmp_path, name):
    text, went_on, culprits = ROWS[name]
    kinds = (tracebacks, launcher)
    ends, told = ([f for k in ks for f in Texts(tmp_path, k.KIND).facts(text)]
                  for ks in (kinds[:1], kinds))  # fmt: skip
    assert [death.went_on for death in ends if isinstance(death, Death)] == [went_on]
    assert [[p.rank for p in s.processes] for s in suspects(view(told))] == culprits
    if text == of(0, TWICE):
        assert [death.text[:8] for death in ends] == ["KeyError"]
