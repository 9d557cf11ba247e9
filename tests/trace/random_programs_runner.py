"""Runs programs of random_programs.py with and without the tracer: FOLDER HOOK, one program a line.

Prints a line for each: output without, output with, events compared, wrong stacks.
"""

import asyncio
import contextlib
import functools
import gc
import json
import sys
import threading
import warnings

from oddrank import _native

with contextlib.suppress(ImportError):
    import greenlet

core = _native.core()
FUEL = 200  # most calls of a program's functions


class Odd(Exception):
    pass


class Odder(Odd):
    pass


class World:
    """The output of a run, and its remaining calls."""

    def __init__(self, arm):
        self.said, self.fuel, self.arm = [], FUEL, arm


world = World(None)


def say(what):
    world.said.append(what if isinstance(what, (int, str, list, type(None))) else kind(what))


def kind(what):
    return type(what).__name__


def burn():
    world.fuel -= 1
    if world.fuel < 0:
        raise Odd("tired")


def lack():
    raise Odd("nothing left")


def arm():
    world.arm()


def by_hand(make, n, moves):
    thing = make(n)
    step = {
        "n": lambda: thing.send(None),
        "s": lambda: thing.send(1),
        "t": lambda: thing.throw(Odd("thrown")),
        "h": lambda: throw_while_handling(thing),
        "c": thing.close,
    }
    for move in moves:
        try:
            say(step[move]())
        except StopIteration as stop:
            say(stop.value)
            break
        except (Exception, GeneratorExit) as error:
            say(kind(error))


def throw_while_handling(thing):
    try:
        raise KeyError
    except KeyError:
        return thing.throw(Odder("thrown"))


def in_thread(function, n):
    def body():
        attempt(function, n)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()


async def together(make, n):
    for result in await asyncio.gather(make(n), make(n), return_exceptions=True):
        say(result)


async def cancelled(make, n):
    task = asyncio.get_running_loop().create_task(make(n))
    await asyncio.sleep(0)
    task.cancel()
    try:
        say(await task)
    except asyncio.CancelledError:
        say("cancelled")


async def agen_by_hand(make, n):
    agen = make(n)
    try:
        say(await agen.__anext__())
        say(await agen.athrow(Odd("thrown")))
    except StopAsyncIteration:
        say("stop")
    finally:
        await agen.aclose()


async def collect(agen):
    async for value in agen:
        say(value)


def hop(value):
    """Switches to the parent greenlet, which may switch back."""
    parent = greenlet.getcurrent().parent
    return parent.switch(value) if parent is not None else None


def greens(function, n, moves):
    inner = greenlet.greenlet(function)
    for at, move in enumerate(moves):
        if inner.dead:
            break
        if move == "t":
            say(inner.throw(Odd("thrown")))
        else:
            say(inner.switch(at) if inner else inner.switch(n))


class Manager:
    def __init__(self, number, swallows):
        self.number, self.swallows = number, swallows

    def __enter__(self):
        say(self.number)

    def __exit__(self, error, *rest):
        say(f"exit {error and error.__name__}")
        return self.swallows and error is not None and issubclass(error, Odd)


@contextlib.contextmanager
def manager(number, swallows):
    say(number)
    try:
        yield number
    except Odd:
        if not swallows:
            raise
    finally:
        say("exit")


@contextlib.asynccontextmanager
async def amanager(number, swallows):
    with manager(number, swallows):
        await asyncio.sleep(0)
        yield


def attempt(function, n):
    try:
        say(function(n))
    except BaseException as error:
        say(f"failed {kind(error)}")


HELPERS = dict(globals())


def functions_of(program):
    """Compiles a program's functions, each in a module named after its level."""
    modules = {
        level: {**HELPERS, "__name__": f"odd_{level}"}
        for level in ("off", "where", "calls", "lines")
    }
    made = {}
    for index, (_, level, text) in enumerate(program["functions"]):
        exec(compile(text, f"<f{index}>", "exec"), modules[level])
        made[f"f{index}"] = modules[level][f"f{index}"]
    for names in modules.values():
        names.update(made)
    return list(made.values())


def run(program, arm):
    global world
    world = World(arm)
    mine = world
    functions = functions_of(program)
    ways = {
        "plain": lambda function: function,
        "generator": lambda function: lambda n: by_hand(function, n, "nsntnnn"),
        "coroutine": lambda function: lambda n: asyncio.run(function(n)),
        "agen": lambda function: lambda n: asyncio.run(collect(function(n))),
    }
    for at, ((way, _, _), function) in enumerate(zip(program["functions"], functions, strict=True)):
        if at == program["arm"]:
            arm()
        attempt(ways[way](function), program["n"])
    world = World(None)  # receives the output of objects still in cycles
    return mine.said


def armed_by(program, folder):
    """Returns arm(); its first call starts the tracer, which checks itself."""
    levels = [(f"odd_{level}", level) for level in ("off", "where", "calls", "lines")]
    rules = [*levels, ("__main__", program["helpers"]), ("asyncio", "where"),
             ("contextlib", "calls"), ("*", "off")]  # fmt: skip

    @functools.cache
    def arm_once():
        core.trace_arm(
            [folder], "job", 4 << 20, (0, 0, 1, 0), False, "host", "program", rules, [], []
        )
        if core.trace_object() is not None:
            threading.settrace(core.trace_object())

    return arm_once


def main():
    (folder,) = sys.argv[1:]
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda unraisable: say(f"unraisable {kind(unraisable.exc_value)}")
    threading.excepthook = sys.unraisablehook
    gc.disable()  # the collector would end generators at other times
    for line in sys.stdin:
        program = json.loads(line)
        plain = run(program, lambda: None)
        gc.collect()
        core.trace_check(True)
        before = core.trace_check_result()
        armed = run(program, armed_by(program, folder))
        threading.settrace(None)
        core.trace_disarm()
        events, wrong = (
            now - then for now, then in zip(core.trace_check_result(), before, strict=True)
        )
        gc.collect()
        print(json.dumps([plain, armed, events, wrong]), flush=True)


if __name__ == "__main__":
    main()
