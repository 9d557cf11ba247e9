"""A native call in a daemon thread never disturbs the end of Python."""

import sys

from processes import captured

BUSY_WHILE_PYTHON_ENDS = """
import threading
from oddrank import _native
core = _native.core()
def call_without_end(has_called):
    while True:
        core.sum_up_repeats([[1.0, 2.0]] * 2000, False)
        has_called.set()
calls = [threading.Event() for _ in range(3)]
for has_called in calls:
    threading.Thread(target=call_without_end, args=(has_called,), daemon=True).start()
for has_called in calls:
    has_called.wait()
"""


def test_python_ends_well_while_daemon_threads_are_in_native_calls():
    # Before 3.14 Python ends a thread that wants the GIL back by unwinding its stack.
    done = captured([sys.executable, "-c", BUSY_WHILE_PYTHON_ENDS], limit=60)
    assert (done.returncode, done.stderr) == (0, "")
