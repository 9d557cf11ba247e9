"""The keeper outlives all that its rank leaves, ends as the rank did, and forwards signals."""

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from patience import PATIENCE, until
from processes import lives
from texts import texts

RANK = texts(__file__)["rank"]

# Not one long sleep: a signal just before the system call would run no Python handler.
WAIT = "while True: time.sleep(0.05)"
BLOCK = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])"
LAST = "os.setsid(); time.sleep(1); print('last', flush=True); os._exit(0)"


def start(rest: str, deadline: float = 300, before: str = "") -> tuple[Any, int]:
    """Starts a keeper whose rank runs `rest`; returns the keeper and the rank's pid."""
    program = RANK.format(rest=rest, deadline=deadline, before=before)
    keeper = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return keeper, int(keeper.stdout.readline() or 0)  # nothing if it has ended before


@pytest.mark.parametrize(
    ("rest", "code", "said"),
    [
        ("sys.exit(0)", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("os.abort()", -signal.SIGABRT, ""),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        # A session of its own that the rank has left.
        (f"if os.fork() == 0:\n {LAST}\nos.kill(os.getpid(), 9)", -signal.SIGKILL, "last\n"),
    ],
)
def test_it_ends_as_its_rank_did_and_after_all_that_the_rank_has_left(rest, code, said):
    keeper, rank = start(rest)
    assert keeper.wait(PATIENCE.limit) == code
    assert keeper.stdout.read() == said
    assert rank != keeper.pid


def test_a_launchers_signal_reaches_the_rank_and_names_its_sender():
    keeper, _ = start(WAIT)
    keeper.send_signal(signal.SIGTERM)
    assert keeper.wait(PATIENCE.limit) == 7
    # Held back since the start:
    before = f"{BLOCK}\nos.kill(os.getpid(), signal.SIGTERM)"
    keeper, _ = start(f"{BLOCK.replace('BLOCK', 'UNBLOCK')}\n{WAIT}", before=before)
    assert keeper.wait(PATIENCE.limit) == 7
    # The keeper, which passes it on, is not its sender:
    keeper, _ = start("print(signal.sigwaitinfo([signal.SIGTERM]).si_pid)", before=BLOCK)
    keeper.send_signal(signal.SIGTERM)
    assert keeper.wait(PATIENCE.limit) == 0
    assert int(keeper.stdout.read()) == os.getpid()


def test_killed_it_takes_its_rank_along_and_it_waits_for_nobody_beyond_the_deadline():
    keeper, rank = start(WAIT)
    keeper.kill()
    keeper.wait(PATIENCE.limit)
    until(lambda: not lives(rank))
    keeper, _ = start(WAIT, deadline=0.2)
    assert keeper.wait(PATIENCE.limit) == -signal.SIGKILL
