"""SIGTERM ends every command, except jobs of many ranks, which report it."""

import subprocess
import sys

import pytest

SHOW = """
import signal, sys
sys.argv = ["oddrank", *sys.argv[1:]]
import oddrank.__main__
print(signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


def blocks_sigterm(*arguments: str) -> bool:
    done = subprocess.run(
        [sys.executable, "-c", SHOW, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip() == "True"


@pytest.mark.parametrize(
    "line",
    ["selftest", "selftest --quick", "bench run --sizes 8", "bench pairs --size 1M"],
)
def test_a_job_of_many_ranks_holds_sigterm_back_from_its_first_instruction(line):
    assert blocks_sigterm(*line.split())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--help",
        "selftest --help",
        "bench",
        "bench compare a.json b.json",
        "bench plot a.json -o a.png",
        "bench run --dry-run",
        "bench run --sizes 8:1G -h",
        "bench pairs --help",
        "doctor",
        "trace where --watch",
        "run train.py",
    ],
)
def test_all_other_commands_leave_sigterm_as_it_is(line):
    assert not blocks_sigterm(*line.split())
