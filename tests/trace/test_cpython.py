"""CPython's own tests give the same results under the recorder: `make soak`, many minutes."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from oddrank.trace.arm import HOOKS

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        find_spec("test") is None or find_spec("test.test_generators") is None,
        reason="no CPython test suite here",
    ),
]
MODULES = (
    "test_generators", "test_coroutines", "test_exceptions", "test_threading", "test_asyncio",
    "test_fork1", "test_dis", "test_inspect", "test_doctest", "test_sys_settrace",
    "test_contextlib", "test_asyncgen", "test_pickle", "test_traceback",
)  # fmt: skip
# Expected differences: first version, hooks, reason.
DIFFERS = {
    "test_dis": (
        (3, 11), HOOKS, "it shows specialised opcodes, which tracing prevents or instruments",
    ),
    "test_doctest": (
        (3, 10), HOOKS, "it leaves pdb's tests out under a tracer, or pdb stops a bit later",
    ),
    "test_threading": (
        (3, 12), ("settrace",), "it asks a new thread for its trace function, which is ours then",
    ),
}  # fmt: skip
SLOW = ("test_asyncio", "test_pickle")  # minutes each; left out of REPEATS=1


def result_of(folder, *command):
    """Returns (tests run, "OK ..." or "FAILED (failures=1)")."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        env={**os.environ, "ODDRANK_DIR": str(folder / "records")},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    ran = re.search(r"^Ran (\d+) tests?", done.stderr, re.MULTILINE)
    assert ran, done.stderr[-3000:]
    return int(ran[1]), done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("module", MODULES)
def test_the_same_tests_pass_and_fail(module, hook, tmp_path, repeats):
    if module in SLOW and repeats == 1:
        pytest.skip("takes minutes: make soak REPEATS=2 runs it")
    suite = ("unittest", "-q", f"test.{module}")
    levels = "test=lines,stdlib=calls,*=off"
    recorded = ("oddrank", "run", "--no-watch", "--hook", hook, "--packages", levels, "-m")
    plain = result_of(tmp_path, *suite)
    armed = result_of(tmp_path, *recorded, *suite)
    assert plain[0] > 0
    version, hooks, reason = DIFFERS.get(module, ((99,), (), ""))
    if sys.version_info >= version and hook in hooks and armed != plain:
        pytest.xfail(reason)
    assert armed == plain
