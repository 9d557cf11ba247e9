"""Runs CPython's own tests under the tracer, which checks its stack: FOLDER HOOK MODULE.

Prints the numbers of tests run, tests failed, events, and stacks that differ from the frames.
"""

import contextlib
import io
import json
import sys
import sysconfig
import threading
import unittest

from oddrank import _native

core = _native.core()
RULES = [
    ("uninstalled", "lines"),
    ("test", "lines"),
    ("contextlib", "lines"),
    ("asyncio", "where"),
    ("stdlib", "calls"),
    ("*", "off"),
]


def main():
    folder, hook, name = sys.argv[1:]
    paths = sysconfig.get_paths()
    stdlib, site = [paths["stdlib"] + "/"], [paths["purelib"] + "/", paths["platlib"] + "/"]
    core.trace_arm(
        [folder], "job", 4 << 20, (0, 0, 1, 0), False, "host", "program", RULES, stdlib, site, hook
    )
    if core.trace_object() is not None:
        threading.settrace(core.trace_object())
    core.trace_check(True)
    module = __import__(f"test.{name}", fromlist=["x"])
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        run = unittest.TextTestRunner(stream=io.StringIO()).run(suite)
    failed = len(run.failures) + len(run.errors)
    print(json.dumps([run.testsRun, failed, *core.trace_check_result()]))
    core.trace_disarm()


if __name__ == "__main__":
    main()
