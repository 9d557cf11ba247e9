"""The shadow stack is that of the frames after every event, on the Python that runs this."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from oddrank.trace.arm import HOOKS

pytestmark = pytest.mark.timeout(300)
# Debian's python3 comes without it.
SUITE = find_spec("test") is not None and find_spec("test.test_generators") is not None
PROGRAM = Path(__file__).with_name("hooked_program.py")


def hooked(folder, hook, *modules):
    command = [sys.executable, str(PROGRAM), str(folder / "records"), hook, *modules]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("hook", HOOKS)
def test_generators_exceptions_coroutines_threads_and_code_that_comes_and_goes(tmp_path, hook):
    ((events, wrong),) = hooked(tmp_path, hook)
    assert events > 10_000
    assert wrong == 0
    (record,) = (tmp_path / "records" / "job").iterdir()
    assert record.stat().st_size == 4 << 20
    assert record.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(not SUITE, reason="no CPython test suite here")
@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("module", ["test_generators", "test_coroutines", "test_contextlib"])
def test_cpythons_own_tests_pass_and_every_stack_is_right(tmp_path, module, hook):
    (_, before), (ran, failed, events, wrong) = hooked(tmp_path, hook, module)
    assert before == 0
    assert ran > 10
    assert failed == 0
    assert events > 10_000
    assert wrong == 0
