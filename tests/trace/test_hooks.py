"""The shadow stack equals the frames after every event, on the Python that runs this."""

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from oddrank import _native
from patience import PATIENCE
from processes import captured

pytestmark = pytest.mark.timeout(300)
# Debian's python3 lacks CPython's tests.
needs_suite = pytest.mark.skipif(
    find_spec("test") is None or find_spec("test.test_generators") is None,
    reason="no CPython test suite here",
)
PROGRAM = Path(__file__).with_name("cpython_tests.py")


def lost(rank):
    return _native.core().trace_snapshot(str(rank.file))["lost"]


@needs_suite
@pytest.mark.parametrize("module", ["test_generators", "test_coroutines", "test_contextlib"])
def test_cpythons_own_tests_pass_and_every_stack_is_right(tmp_path, module):
    done = captured(
        [sys.executable, str(PROGRAM), module], limit=PATIENCE.seconds(240),
        ODDRANK_DIR=str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ran, failed, events, wrong = json.loads(done.stdout)
    assert (failed, wrong) == (0, 0)
    assert ran > 10
    assert events > 10_000


def test_code_keeps_its_id_in_forked_children_and_after_arming_again(script, source):
    """Many calls must not fill a child's small dictionary with copies."""
    script(source)
    assert [lost(rank)["codes"] for rank in script.records()] == [0, 0]


def test_a_function_that_the_dictionary_has_no_room_for_is_shown_as_a_question_mark(script, source):
    rank = script.rank(source, ODDRANK_TRACE_MB="0.25")
    assert script.functions(rank) == ["<module>", "?", "known", "?"]
    assert lost(rank)["codes"] > 0


def test_two_hundred_live_threads_are_all_seen(script, source):
    rank = script.rank(source)
    assert lost(rank)["threads"] == 0
    assert len(rank.threads) == 201


# CPython's own tests that give the same results under the recorder: `make soak`.
MODULES = (
    "test_generators", "test_coroutines", "test_exceptions", "test_threading", "test_asyncio",
    "test_fork1", "test_dis", "test_inspect", "test_doctest", "test_sys_settrace",
    "test_contextlib", "test_asyncgen", "test_pickle", "test_traceback",
)  # fmt: skip
# Expected differences: first version, reason.
DIFFERS = {
    "test_dis": (
        (3, 11), "it shows specialised opcodes, which tracing prevents or instruments",
    ),
    "test_doctest": (
        (3, 10), "it leaves pdb's tests out under a tracer, or pdb stops a bit later",
    ),
}  # fmt: skip
SLOW = ("test_asyncio", "test_pickle")  # minutes each; left out of REPEATS=1


def result_of(folder, *command):
    """Returns (tests run, "OK ..." or "FAILED (failures=1)")."""
    done = captured(
        [sys.executable, "-m", *command], cwd=folder, limit=PATIENCE.seconds(500),
        ODDRANK_DIR=str(folder / "records"),
    )  # fmt: skip
    ran = re.search(r"^Ran (\d+) tests?", done.stderr, re.MULTILINE)
    assert ran, done.stderr[-3000:]
    return int(ran[1]), done.stderr.strip().splitlines()[-1]


@pytest.mark.soak
@pytest.mark.timeout(1200)
@needs_suite
@pytest.mark.parametrize("module", MODULES)
def test_the_same_tests_pass_and_fail(module, tmp_path, repeats):
    if module in SLOW and repeats == 1:
        pytest.skip("takes minutes: make soak REPEATS=2 runs it")
    suite = ("unittest", "-q", f"test.{module}")
    levels = "test=lines,stdlib=calls,*=off"
    (tmp_path / "armed.py").write_text(
        "import runpy, sys, oddrank\n"
        f"oddrank.arm({levels!r})\n"
        "del sys.argv[0]\n"
        "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)\n"
    )
    plain = result_of(tmp_path, *suite)
    armed = result_of(tmp_path, "armed", *suite)
    assert plain[0] > 0
    version, reason = DIFFERS.get(module, ((99,), ""))
    if sys.version_info >= version and armed != plain:
        pytest.xfail(reason)
    assert armed == plain
