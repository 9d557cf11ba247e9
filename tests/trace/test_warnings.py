"""Warnings of arm(), at the line of the user's code that called it."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest


def warnings_of(done):
    """Returns (line of the script, its text, message) of each warning."""
    found = re.findall(r"script\.py:(\d+): RuntimeWarning: (.*)\n  (.*)\n", done.stderr)
    assert done.stderr.count("RuntimeWarning") == len(found), done.stderr
    return [(int(line), source, message) for line, message, source in found]


FAULTS = {
    "a size that is none": ({"ODDRANK_TRACE_MB": "much"}, "ODDRANK_TRACE_MB='much' is no size"),
    "a launcher that contradicts itself": (
        {"RANK": "7", "WORLD_SIZE": "2", "LOCAL_RANK": "7", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
        "oddrank records this process as rank 7: ",
    ),
}


@pytest.mark.parametrize(("environ", "says"), FAULTS.values(), ids=FAULTS.keys())
def test_a_warning_is_at_the_line_that_arms(environ, says, script):
    done = script(
        """
        import oddrank
        def at_the_top():
            return oddrank.arm()
        armed = at_the_top()
        armed.disarm()
        def in_a_block():
            with armed:
                pass
        in_a_block()
        @oddrank.arm
        def function():
            pass
        function()
        """,
        **environ,
    )
    found = warnings_of(done)
    assert all(message.startswith(says) for _, _, message in found)
    # Python 3.10 calls a decorator at the line of the decorated function.
    decorated = (11, "@oddrank.arm") if sys.version_info >= (3, 11) else (12, "def function():")
    assert [(line, source) for line, source, _ in found] == [
        (4, "return oddrank.arm()"), (8, "with armed:"), decorated, (14, "function()"),
    ]  # fmt: skip


def test_a_tool_that_has_the_hook_is_told_at_the_line_that_arms(script):
    if script.hook != "settrace":
        pytest.skip("sys.monitoring has a place for every tool")
    done = script(
        """
        import sys
        import oddrank
        sys.settrace(lambda frame, event, argument: None)
        oddrank.arm()
        """
    )
    ((line, _, message),) = warnings_of(done)
    assert line == 5
    assert message.startswith("oddrank records no lines: ")


def test_a_folder_that_cannot_be_used_is_named_and_so_is_the_one_taken_instead(script):
    blocked = script.folder / "blocked"
    blocked.write_text("no folder")
    job = f"test-{os.getpid()}"
    done = script(
        """
        import oddrank
        print(oddrank.arm().path)
        """,
        ODDRANK_DIR=str(blocked),
        ODDRANK_JOB=job,
    )
    path = Path(done.stdout.strip())
    try:
        assert path.is_file()
        assert blocked not in path.parents
        ((line, _, message),) = warnings_of(done)
        assert line == 3
        said = f"ODDRANK_DIR={blocked}: the folder must have room, and only you may write to it"
        assert message == f"oddrank cannot use {said}. The record is {path}"
    finally:
        if path.parent.name == job:
            shutil.rmtree(path.parent)
