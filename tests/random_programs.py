"""Makes random small programs for the tracer: calls, generators, exceptions, coroutines.

Each function of a program is plain, a generator, a coroutine or an asynchronous generator, and is
recorded at its own level. trace/random_programs_runner.py has the helpers that they call.
"""

from hypothesis import strategies as st

LEVELS = ("off", "where", "calls", "lines")
KINDS = ("plain", "generator", "coroutine", "agen")
_ERRORS = ("Odd", "Odder", "Exception", "GeneratorExit", "BaseException")
_MOVES = "nnsttthc"  # next, send, throw, throw within a handler, close
_DEEPEST = 3


class _Writer:
    """Draws the statements of one function; hypothesis makes every choice and can shrink it."""

    def __init__(self, draw, kinds, index, greenlets):
        self.draw, self.kinds, self.index, self.greenlets = draw, kinds, index, greenlets
        self.kind = kinds[index]
        self.number = 100 * index

    def one_of(self, choices):
        return self.draw(st.sampled_from(choices))

    def another(self, *kinds):
        """Returns a call of a later function of these kinds, else a recursive call, else None."""
        able = [i for i in range(self.index, len(self.kinds)) if self.kinds[i] in kinds]
        return f"f{self.one_of(able)}" if able else None

    def block(self, depth):
        lines = []
        for _ in range(self.draw(st.integers(1, 3))):
            lines += self.statement(depth)
        return ["    " + line for line in lines]

    def statement(self, depth):
        self.number += 1
        simple = ["say", "call", "call", "raise", "leave", "arm", "inner", "by_hand", "thread"]
        simple += {
            "plain": [],
            "generator": ["yield", "hold", "hold", "delegate", "delegate"],
            "coroutine": ["wait", "wait", "task"],
            "agen": ["wait", "yield"],
        }[self.kind]
        simple += ["hop", "greens"] if self.greenlets else []
        nested = ["handle", "handle", "finally", "manage", "loop", "guard"]
        name = self.one_of(simple if depth >= _DEEPEST else simple + nested)
        return getattr(self, "_" + name)(depth)

    def _say(self, _):
        return [f"say({self.number})"]

    def _call(self, _):
        name = self.another("plain")
        forms = ("say({0}(n - 1))", "say([{0}(n - 1) for _ in range(2)])",
                 "say((lambda m: {0}(m))(n - 1))", "sorted([2], key=lambda m: len([{0}(n - 1)]))",
                 "exec('say({0}(n - 1))')", "say(list(map({0}, [n - 1, n - 2])))")  # fmt: skip
        return [f"if n > 0: {self.one_of(forms).format(name)}"] if name else ["pass"]

    def _raise(self, _):
        error = self.one_of(("Odd", "Odder", "KeyError"))
        return [f"if n % 2 == {self.one_of((0, 1))}: raise {error}({self.number})"]

    def _leave(self, _):
        value = "" if self.kind == "agen" else f" {self.number}"
        return [f"if n == {self.one_of((0, 1, 2))}: return{value}"]

    def _arm(self, _):
        return ["arm()"]

    def _inner(self, _):
        name = self.another("generator")
        forms = ("for v in {0}(n - 1): say(v)", "for v in {0}(n - 1): break",
                 "say(sum(1 for _ in {0}(n - 1)))", "say([v for v in {0}(n - 1)])",
                 "{0}(n - 1).close()", "say(next({0}(n - 1), None))")  # fmt: skip
        if not name:
            return ["pass"]
        return ["if n > 0:", "    " + self.one_of(forms).format(name)]

    def _by_hand(self, _):
        name = self.another("generator", "coroutine")
        moves = "".join(self.draw(st.lists(st.sampled_from(_MOVES), min_size=1, max_size=5)))
        return [f"if n > 0: by_hand({name}, n - 1, {moves!r})"] if name else ["pass"]

    def _thread(self, _):
        name = self.another("plain")
        return [f"if n > 0: in_thread({name}, n - 1)"] if name else ["pass"]

    def _yield(self, _):
        if self.kind == "agen":
            return [f"yield {self.number}"]
        return [f"say((yield {self.number}))"]

    def _hold(self, _):
        again = f"    say((yield {self.number}))"
        return ["try:", again, "except Odd as error:", "    say(kind(error))", again]

    def _delegate(self, _):
        name = self.another("generator")
        return [f"if n > 0: say((yield from {name}(n - 1)))"] if name else ["yield from [1, 2]"]

    def _wait(self, _):
        coroutine, agen = self.another("coroutine"), self.another("agen")
        forms = ["await asyncio.sleep(0)"]
        if coroutine:
            forms += [f"if n > 0: say(await {coroutine}(n - 1))"] * 3
        if agen:
            forms += [f"async for v in {agen}(n - 1 if n > 0 else lack()): say(v)"] * 3
            forms += [f"if n > 0: await agen_by_hand({agen}, n - 1)"]
        return [self.one_of(forms)]

    def _task(self, _):
        name = self.another("coroutine")
        forms = ("await together({0}, n - 1)", "await cancelled({0}, n - 1)")
        return [f"if n > 0: {self.one_of(forms).format(name)}"]

    def _hop(self, _):
        return [f"say(hop({self.number}))"]

    def _greens(self, _):
        name = self.another("plain")
        moves = "".join(self.draw(st.lists(st.sampled_from("sst"), min_size=1, max_size=4)))
        return [f"if n > 0: greens({name}, n - 1, {moves!r})"] if name else ["pass"]

    def _handle(self, depth):
        head = f"except {self.one_of(_ERRORS)} as error:"
        tail = ["else:", *self.block(depth + 1)] if self.draw(st.booleans()) else []
        again = ["    raise"] if self.one_of((0, 0, 0, 1)) else []
        handler = [head, "    say(kind(error))", *self.block(depth + 1), *again]
        return ["try:", *self.block(depth + 1), *handler, *tail]

    def _finally(self, depth):
        return ["try:", *self.block(depth + 1), "finally:", *self.block(depth + 1)]

    def _manage(self, depth):
        how = f"({self.number}, {self.one_of((True, False))})"
        forms = [f"with Manager{how}:", f"with manager{how}:"]
        if self.kind in ("coroutine", "agen"):
            forms += [f"async with amanager{how}:"]
        return [self.one_of(forms), *self.block(depth + 1)]

    def _loop(self, depth):
        end = ["    if n == 1: break"] if self.draw(st.booleans()) else []
        return [f"for i{depth} in range(2):", *self.block(depth + 1), *end]

    def _guard(self, depth):
        return [f"if n != {self.one_of((0, 1, 2))}:", *self.block(depth + 1)]


@st.composite
def programs(draw, greenlets=False):
    """{"functions": [(kind, level, text)], "helpers": level, "n": argument, "arm": when}."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=6))
    functions = []
    for index, kind in enumerate(kinds):
        head = "async def" if kind in ("coroutine", "agen") else "def"
        body = _Writer(draw, kinds, index, greenlets).block(0)
        # Never runs; makes the function a generator in any case.
        kept = ["    if n > 99: yield"] if kind in ("generator", "agen") else []
        text = "\n".join([f"{head} f{index}(n):", "    burn()", *kept, *body])
        functions.append((kind, draw(st.sampled_from(LEVELS)), text))
    return {
        "functions": functions,
        "helpers": draw(st.sampled_from(LEVELS)),
        "n": draw(st.integers(1, 3)),
        "arm": draw(st.integers(0, len(kinds))),
    }
