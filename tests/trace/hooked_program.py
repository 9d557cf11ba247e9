"""Runs under the tracer and compares its stack with the frames after every event: FOLDER HOOK.

Prints (events, wrong stacks) of its own programs; then for each given test module of CPython: tests
run, tests failed, events, wrong stacks.
"""

import asyncio
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
    except ValueError:
        yield "caught"
    finally:
        del n


def delegating():
    yield from counter(5)


class Catcher:
    def __iter__(self):
        return self

    def __next__(self):
        return "next"

    def throw(self, *_):
        return "caught"


def handing_on():
    yield from Catcher()


def generators():
    zero = handing_on()
    next(zero)
    assert zero.throw(ValueError("x")) == "caught"
    assert next(zero) == "next"
    one = delegating()
    next(one), next(one)
    assert one.throw(ValueError("x")) == "caught"
    one.close()
    two = counter(3)
    next(two)
    two.close()
    assert list(i * i for i in range(3)) == [0, 1, 4]
    [counter(2) for _ in range(3)]


def deep(n):
    if n:
        deep(n - 1)
    raise KeyError(n)


class Loud:
    def __init__(self, depth):
        self.inner = Loud(depth - 1) if depth else None

    def __del__(self):
        sorted([3, 1, 2], key=lambda x: -x)


def exceptions():
    with contextlib.suppress(KeyError):
        deep(300)
    exec("a = 1\ndef q():\n  return a\nq()", {})
    Loud(5)


async def sleeper(k):
    await asyncio.sleep(0)
    if k == 3:
        raise RuntimeError
    return k


async def ticks():
    for i in range(3):
        yield i


async def coroutines():
    await asyncio.gather(*(sleeper(k) for k in range(6)), return_exceptions=True)
    async for _ in ticks():
        pass
    task = asyncio.create_task(asyncio.sleep(10))
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def everything():
    generators()
    exceptions()
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
    asyncio.run(coroutines())
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
