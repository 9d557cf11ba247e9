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
_pydecimal ast asyncio/base_events asyncio/tasks collections/__init__ contextlib ctypes/__init__
dataclasses email/_header_value_parser enum functools html/entities importlib/_bootstrap inspect
logging/__init__ multiprocessing/managers opcode pickle statistics subprocess threading typing
unittest/mock
"""

DATA = os.path.join(os.path.dirname(__file__), "data")
MADE = {
    "empty": "",
    "far": "\n" * 70_000 + "x = 1\n" + "\n" * 300 + "def f():\n" + "\n" * 5000 + "  return 2\n",
    "dict": "d = {\n" + "".join(f"  {i}: f({i}),\n" for i in range(20_000)) + "}\n",
}


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


def sources() -> Iterator[tuple[str, str]]:
    folder = os.path.dirname(os.__file__)
    paths = [f"{DATA}/odd_lines.txt", f"{DATA}/odd_blocks.txt"]
    for name in STANDARD.split():
        found = [f"{folder}/{name}.py", f"{folder}/{name}/__init__.py"]
        paths += [path for path in found if os.path.exists(path)][:1]
    for path in paths:
        with open(path, encoding="utf-8") as file:
            yield path, file.read()
    yield from MADE.items()


def main() -> None:
    print(json.dumps(sys.hexversion))
    for name, text in sources():
        top = compile(text, name, "exec", dont_inherit=True)
        # Templates and dynamo move code to other line numbers, too.
        moved = top.replace(co_firstlineno=100_000)
        for code in (*codes_in(top), moved):
            table = code.co_linetable.hex()
            lines = list(code.co_lines())
            print(json.dumps([table, code.co_firstlineno, len(code.co_code), lines]))


if __name__ == "__main__":
    main()
