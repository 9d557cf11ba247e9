"""Lines of a record's line tables equal those of this CPython, at each byte."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

from oddrank import _native

# Modules with many kinds of statements; a distribution may lack a few (turtle).
STANDARD = """
_pydecimal ast asyncio/base_events asyncio/tasks collections/__init__ contextlib ctypes/__init__
dataclasses email/_header_value_parser enum functools html/entities importlib/_bootstrap inspect
logging/__init__ multiprocessing/managers opcode pickle statistics subprocess threading typing
unittest/mock
"""

DATA = Path(__file__).with_name("data")
MADE = {
    "empty": "",
    "far": "\n" * 70_000 + "x = 1\n" + "\n" * 300 + "def f():\n" + "\n" * 5000 + "  return 2\n",
    "dict": "d = {\n" + "".join(f"  {i}: f({i}),\n" for i in range(20_000)) + "}\n",
}


def codes_in(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def sources() -> Iterator[tuple[str, str]]:
    folder = Path(os.__file__).parent
    paths = [DATA / "odd_lines.txt", DATA / "odd_blocks.txt"]
    for name in STANDARD.split():
        found = [folder / f"{name}.py", folder / name / "__init__.py"]
        paths += [path for path in found if path.exists()][:1]
    for path in paths:
        yield str(path), path.read_text("utf-8")
    yield from MADE.items()


def test_each_byte_of_bytecode_has_the_line_that_python_says():
    core = _native.core()
    nowhere = seen = 0
    for name, text in sources():
        top = compile(text, name, "exec", dont_inherit=True)
        # Templates and dynamo move code to other line numbers, too.
        for code in (*codes_in(top), top.replace(co_firstlineno=100_000)):
            # The line of each byte of the code, and of some bytes beyond its end.
            expected: list[int | None] = [None] * (len(code.co_code) + 3)
            for start, end, line in code.co_lines():
                expected[start:end] = [line] * (end - start)
            assert core.trace_lines(code, list(range(len(expected)))) == expected, code
            nowhere += expected.count(None) - 3
            seen += 1
    assert seen > 2500
    assert nowhere > 100, "some code should have no line"
