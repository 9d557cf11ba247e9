"""Runs under the tracer and compares its stack with the frames after every event: FOLDER HOOK.

Has what random_programs.py cannot make: iterators with a throw() of their own, deep unwinding,
finalizers, code objects whose addresses are used again, threads at once. Prints (events, wrong
stacks); then for each given test module of CPython: tests run, tests failed, events, wrong stacks.
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


def counter(n):
    try:
        for i in range(n):  # noqa: UP028 (the loop is what is tested)
            yield i
    finally:
        del n


class Catcher:
    def __iter__(self):
        return self

    def __next__(self):
        return "next"

    def throw(self, *_):
        return "caught"


def handing_on():
    yield from Catcher()


def deep(n):
    if n:
        deep(n - 1)
    raise KeyError(n)


class Loud:
    def __init__(self, depth):
        self.inner = Loud(depth - 1) if depth else None

    def __del__(self):
        sorted([3, 1, 2], key=lambda x: -x)


def everything():
    zero = handing_on()
    next(zero)
    assert zero.throw(ValueError("x")) == "caught"
    assert next(zero) == "next"
    with contextlib.suppress(KeyError):
        deep(300)
    Loud(5)
    for i in range(200):  # code objects die and others reuse their addresses
        exec(compile(f"def f{i}():\n  return {i}\nf{i}()", f"<made {i}>", "exec"), {})


def main():
    folder, hook, *modules = sys.argv[1:]
    paths = sysconfig.get_paths()
    stdlib, site = [paths["stdlib"] + "/"], [paths["purelib"] + "/", paths["platlib"] + "/"]
    suspended = counter(3)  # starts before the tracer, continues under it
    next(suspended)
    core.trace_arm(
        [folder], "job", 4 << 20, (0, 0, 1, 0), False, "host", "program", RULES, stdlib, site, hook
    )
    if core.trace_object() is not None:
        threading.settrace(core.trace_object())
    core.trace_check(True)
    next(suspended)
    everything()
    threads = [threading.Thread(target=everything) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(core.trace_check_result()))
    for name in modules:
        module = __import__(f"test.{name}", fromlist=["x"])
        suite = unittest.defaultTestLoader.loadTestsFromModule(module)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            run = unittest.TextTestRunner(stream=io.StringIO()).run(suite)
        failed = len(run.failures) + len(run.errors)
        print(json.dumps([run.testsRun, failed, *core.trace_check_result()]))
    core.trace_disarm()


if __name__ == "__main__":
    main()
