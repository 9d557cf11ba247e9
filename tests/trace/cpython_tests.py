"""Runs CPython's own tests under the tracer, which checks its stack: MODULE.

Prints the numbers of tests run, tests failed, events, and stacks that differ from the frames.
"""

import contextlib
import io
import json
import sys
import unittest

import oddrank
from oddrank import _native

RULES = {
    "uninstalled": "lines", "test": "lines", "contextlib": "lines", "asyncio": "where",
    "stdlib": "calls", "*": "off",
}  # fmt: skip


def main():
    (name,) = sys.argv[1:]
    core = _native.core()
    with oddrank.arm(RULES, overhead=None):
        core.trace_check(True)
        module = __import__(f"test.{name}", fromlist=["x"])
        suite = unittest.defaultTestLoader.loadTestsFromModule(module)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            run = unittest.TextTestRunner(stream=io.StringIO()).run(suite)
        failed = len(run.failures) + len(run.errors)
        print(json.dumps([run.testsRun, failed, *core.trace_check_result()]))


if __name__ == "__main__":
    main()
