"""SIGTERM ends every command, except jobs of many ranks, which report it."""

import sys

from processes import captured
from texts import texts

SHOW = texts(__file__)["show"]


def blocks_sigterm(line: str) -> bool:
    done = captured([sys.executable, "-c", SHOW, *line.split()], check=True)
    return done.stdout.strip() == "True"


JOBS = ["selftest", "selftest --quick", "bench run --sizes 8", "bench pairs --size 1M"]
OTHERS = [
    "", "--help", "selftest --help", "bench", "bench compare a.json b.json",
    "bench plot a.json -o a.png", "bench run --sizes 8:1G -h",
    "bench pairs --help", "doctor", "trace where", "run train.py",
]  # fmt: skip


def test_jobs_of_many_ranks_alone_hold_sigterm_back_from_their_first_instruction():
    for line in (*JOBS, *OTHERS):
        assert blocks_sigterm(line) == (line in JOBS), line
