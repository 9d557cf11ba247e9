"""SIGTERM ends every command, except jobs of many ranks, which report it."""

import sys

from processes import captured

SHOW = """
import signal, sys
sys.argv = ["oddrank", *sys.argv[1:]]
import oddrank.__main__
print(signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


def blocks_sigterm(line: str) -> bool:
    done = captured([sys.executable, "-c", SHOW, *line.split()], check=True)
    return done.stdout.strip() == "True"


def test_a_job_of_many_ranks_holds_sigterm_back_from_its_first_instruction():
    for line in (
        "selftest", "selftest --quick", "bench run --sizes 8", "bench pairs --size 1M",
    ):  # fmt: skip
        assert blocks_sigterm(line), line


def test_all_other_commands_leave_sigterm_as_it_is():
    for line in (
        "", "--help", "selftest --help", "bench", "bench compare a.json b.json",
        "bench plot a.json -o a.png", "bench run --dry-run", "bench run --sizes 8:1G -h",
        "bench pairs --help", "doctor", "trace where --watch", "run train.py",
    ):  # fmt: skip
        assert not blocks_sigterm(line), line
