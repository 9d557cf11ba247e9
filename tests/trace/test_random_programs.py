"""Random programs do the same under the tracer, and its stack equals the frames at every event."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, note, settings

from patience import PATIENCE
from random_programs import programs
from texts import texts

RUNNER = Path(__file__).with_name("random_programs_runner.py")
EXAMPLES = int(os.environ.get("ODDRANK_TEST_PROGRAMS", "25"))
A_FILE = 100  # programs whose code objects fit into a record


class Runner:
    """Runs programs in a process, and starts a new one after every A_FILE programs."""

    def __init__(self, folder):
        self.folder = folder
        self.ran = self.events = 0
        self.process = None

    def __call__(self, program):
        if self.process is None or self.ran % A_FILE == 0:
            self.start()
        self.ran += 1
        self.process.stdin.write(json.dumps(program) + "\n")
        self.process.stdin.flush()
        plain, armed, events, wrong = json.loads(self.process.stdout.readline() or "null")
        self.events += events
        return plain, armed, wrong

    def start(self):
        self.end()
        self.process = subprocess.Popen(
            [sys.executable, str(RUNNER), str(self.folder / str(self.ran))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=(self.folder / "stderr").open("w"),
        )  # fmt: skip

    def end(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.stdout.close()
            self.process.wait(PATIENCE.limit)


@pytest.fixture
def runner(tmp_path):
    runner = Runner(tmp_path)
    yield runner
    runner.end()


# What the random ones lack: a generator that began before arm(), an iterator with a throw() of its
# own, deep unwinding, finalizers, code objects whose addresses are used again, threads at once.
ODD = texts(__file__)["odd"]


def prove(runner, strategy):
    @settings(max_examples=EXAMPLES)
    @example({"functions": [("plain", "lines", ODD)], "helpers": "lines", "n": 1, "arm": 1})
    @given(strategy)
    def same(program):
        for _, level, text in program["functions"]:
            note(f"# {level}\n{text}")
        plain, armed, wrong = runner(program)
        assert armed == plain
        assert wrong == 0

    same()
    assert runner.events > 10 * EXAMPLES


def test_calls_generators_exceptions_coroutines_and_threads(runner):
    prove(runner, programs())


@pytest.mark.needs("greenlet")
def test_greenlets_that_switch_and_throw_too(runner):
    prove(runner, programs(greenlets=True))
