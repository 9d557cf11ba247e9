"""The shadow stack equals the frames after every event, on the Python that runs this."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from oddrank import _native
from oddrank.trace.arm import HOOKS
from patience import PATIENCE

pytestmark = pytest.mark.timeout(300)
# Debian's python3 lacks CPython's tests.
SUITE = find_spec("test") is not None and find_spec("test.test_generators") is not None
PROGRAM = Path(__file__).with_name("hooked_program.py")


def hooked(folder, hook, *modules):
    command = [sys.executable, str(PROGRAM), str(folder / "records"), hook, *modules]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE.seconds(240), check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def lost(rank):
    return _native.core().trace_snapshot(str(rank.file))["lost"]


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
    assert (before, failed, wrong) == (0, 0, 0)
    assert ran > 10
    assert events > 10_000


def test_code_keeps_its_id_in_forked_children_and_after_arming_again(script):
    """Many calls must not fill a child's small dictionary with copies."""
    script("""
        def called(i):
            return i
        def work():
            for i in range(20_000):
                called(i)
        with oddrank.arm():
            work()
            if os.fork() == 0:
                work()
                os._exit(0)
            os.wait()
        with oddrank.arm(packages={"*": "calls"}):
            work()
            work()
    """)
    assert [lost(rank)["codes"] for rank in script.records()] == [0, 0]


def test_code_that_is_made_again_and_again_takes_no_room_from_what_follows(script):
    rank = script.rank("""
        for i in range(20_000):
            eval(f"{i} + 1")
        def made_later():
            os.kill(os.getpid(), signal.SIGKILL)
        made_later()
    """)
    assert script.functions(rank) == ["<module>", "made_later"]
    assert lost(rank)["codes"] == 0


def test_a_function_that_the_dictionary_has_no_room_for_is_shown_as_a_question_mark(script):
    rank = script.rank(
        """
        def known(call):
            call()
        known(lambda: None)
        for i in range(1_000):
            name = f"made{i}" + "x" * (200 - i // 5)  # the last ones find the smallest holes
            exec(f"def {name}(): pass\\n{name}()")
        def made_later():
            known(lambda: os.kill(os.getpid(), signal.SIGKILL))
        made_later()
        """,
        ODDRANK_TRACE_MB="0.25",
    )
    assert script.functions(rank) == ["<module>", "?", "known", "?"]
    assert lost(rank)["codes"] > 0


def test_two_hundred_live_threads_are_all_seen(script):
    rank = script.rank("""
        ready, never = threading.Barrier(201), threading.Event()
        def waits():
            ready.wait()
            never.wait()
        for _ in range(200):
            threading.Thread(target=waits, daemon=True).start()
        ready.wait()
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    assert lost(rank)["threads"] == 0
    assert len(rank.threads) == 201


def test_the_hash_of_a_source_file_is_that_of_what_was_imported(script):
    """The hash holds even if functions are called after the file changed or vanished."""
    (script.folder / "imported.py").write_text("def called():\n    return 1\n")
    before = _native.core().trace_source_hash(str(script.folder / "imported.py"))
    script("""
        import imported
        oddrank.arm()
        with open(imported.__file__, "a") as file:
            file.write("# changed")
        imported.called()
    """)
    (rank,) = script.records()
    _, events, _ = _native.core().trace_history(str(rank.file), 1000)
    hashes = {event[-2] for event in events if "imported.py" in str(event)}
    assert hashes == {before}
