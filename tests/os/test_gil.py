"""A native call in a daemon thread never disturbs the end of Python."""

import sys

from processes import captured
from texts import texts

BUSY_WHILE_PYTHON_ENDS = texts(__file__)["busy while python ends"]


def test_python_ends_well_while_daemon_threads_are_in_native_calls():
    # Before 3.14 Python ends a thread that wants the GIL back by unwinding its stack.
    done = captured([sys.executable, "-c", BUSY_WHILE_PYTHON_ENDS])
    assert (done.returncode, done.stderr) == (0, "")
