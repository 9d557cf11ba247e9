"""Compiles many modules with any CPython >= 3.10; prints line tables and their true lines.

One JSON text per line: the hexversion, then linetable, first line, length and co_lines() of each
code object.
"""

import json
import os
import sys
import types
from collections.abc import Iterator

# Modules with many kinds of statements; a distribution may lack a few (turtle).
STANDARD = """
_pydecimal _pyio argparse ast asyncio/base_events asyncio/tasks calendar codecs
collections/__init__ concurrent/futures/process configparser contextlib csv ctypes/__init__
dataclasses datetime difflib dis email/_header_value_parser enum functools heapq html/entities
http/client importlib/_bootstrap inspect json/decoder locale logging/__init__
multiprocessing/managers opcode pathlib pickle queue random shutil socket statistics subprocess
tarfile threading traceback turtle typing unittest/mock urllib/request xml/dom/minidom zipfile
"""

ODD = {
    "empty": "",
    "far": "\n" * 70_000 + "x = 1\n" + "\n" * 300 + "def f():\n" + "\n" * 5000 + "  return 2\n",
    "dict": "d = {\n" + "".join(f"  {i}: f({i}),\n" for i in range(20_000)) + "}\n",
    "lines": """
a = (1 +
     b(2,

       c) * d
     [0])
s = f'''{a
}{b!r}
{c:>{width}}'''
x = \\
    y \\
    .z \\
    (1)
f = lambda a, *, b=(
    1): (a,
    lambda: b)
v = [p
     for p
     in q(
         1)
     if p
     for r in p] + [{k: [
         v] for k, v in w} for w in x]
g = (e
     for e in y) if 0 else z
""",
    "blocks": """
@one(
    1)
@two
def f(a=1,
      *b, c=2) -> int:
    '''Doc.'''
    try:
        with a as b, \\
             c:
            for x in y:
                if x: continue
                elif b: break
            else:
                return 1
    except (A,
            B) as e:
        raise C from e
    except D: pass
    else:
        del a
    finally:
        while 1:
            yield x
            if a and \\
               not b or (
               c): return

@d
class C(B,
        metaclass=M):
    x: int = 1
    async def g(self):
        async with self as s:
            async for i in s:
                yield (await i)
        [j async for j in
         s]
    def h(self):
        global G
        nonlocal_ = 1
        def k():
            nonlocal nonlocal_
            assert (nonlocal_
                    ), 'no'
        return super().h(
            *[1], **{})
def one_line(): return 1; pass
match f:
    case [1, *_] if (
            a): pass
    case {'k': C(x=1)
          } | None:
        b
if 0: never
""",
}


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


def sources() -> Iterator[tuple[str, str]]:
    folder = os.path.dirname(os.__file__)
    for name in STANDARD.split():
        for path in (f"{folder}/{name}.py", f"{folder}/{name}/__init__.py"):
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    yield path, file.read()
                break
    yield from ODD.items()


def main() -> None:
    print(json.dumps(sys.hexversion))
    for name, text in sources():
        top = compile(text, name, "exec", dont_inherit=True)
        # Templates and dynamo move code to other line numbers, too.
        moved = top.replace(co_firstlineno=100_000)
        for code in (*codes_in(top), moved):
            table = code.co_linetable.hex()
            print(
                json.dumps([table, code.co_firstlineno, len(code.co_code), list(code.co_lines())])
            )


if __name__ == "__main__":
    main()
