"""Breaks the product in random places, one at a time, and counts which breaks no test finds.

`python tests/mutants.py --count 50 triage run control trace` changes python/oddrank/<subject>, runs
the subject's tests that call the changed function, and restores the file. With `csrc/trace/read` it
changes C++: the C++ tests run, and if they find nothing, trace's Python tests on a build with the
break. Prints each survivor as a diff. Tests that start jobs are left out without --jobs.
Start it in a checkout without uncommitted changes, from which oddrank is installed with -e.
"""

import argparse
import ast
import difflib
import random
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
_FLIPPED: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}  # fmt: skip
# In C++: text between spaces, as clang-format writes it, a number, or a condition.
_CPP_FLIPPED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
    "+": "-", "-": "+", "*": "+", "+=": "-=", "-=": "+=", "true": "false", "false": "true",
}  # fmt: skip
_CPP = re.compile(
    r"(?<= )(?:<=?|>=?|==|!=|&&|\|\||[+-]=?|\*)(?= )|\b(?:true|false|\d+)\b"
    r"|(?<=if \()[^;]+(?=\) (?:\{|return|throw|continue|break))"
)
# Limits stay, and first values of fields and variables, which are mostly overwritten.
_NO_CODE = re.compile(
    r"\s*(?:#|//|template|static_assert)|.*(?:constexpr|\boperator\b)|\s+[\w:]+ \w+ = [\w:]+;"
)
# Texts that only users read: golden files and readers judge them.
_NO_LOGIC = ("command.py", "__init__.py")


def changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str, object]]:
    """Yields (node, field, new value) of each break that this module allows.

    Decorators stay, and the limits above a module's functions: no test asserts their number.
    """
    kept = [part for node in ast.walk(tree) for part in getattr(node, "decorator_list", ())]
    for line in tree.body:
        calls = any(isinstance(part, ast.Call | ast.Lambda) for part in ast.walk(line))
        if isinstance(line, ast.Assign | ast.AnnAssign) and not calls:
            kept.append(line)
    left_alone = {part for node in kept for part in ast.walk(node)}
    for node in ast.walk(tree):
        if node in left_alone:
            continue
        if isinstance(node, ast.Compare):
            yield node, "ops", [_flipped(node.ops[0]), *node.ops[1:]]
        elif isinstance(node, ast.BoolOp | ast.BinOp) and type(node.op) in _FLIPPED:
            yield node, "op", _flipped(node.op)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, "operand", ast.UnaryOp(op=ast.Not(), operand=node.operand)
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield node, "value", node.value + 1
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield node, "value", not node.value
        elif isinstance(node, ast.If):
            yield node, "test", ast.Constant(value=False)
        elif isinstance(node, ast.Return) and not isinstance(node.value, ast.Constant | None):
            yield node, "value", ast.Constant(value=None)


def _flipped(operator: ast.AST) -> ast.AST:
    return _FLIPPED.get(type(operator), type(operator))()


def mutant(source: str, choose: random.Random) -> tuple[str, str] | None:
    """Returns the source with one break, and the function it is in; None if there is nothing."""
    tree = ast.parse(source)
    found = list(changes(tree))
    if not found:
        return None
    node, field, value = choose.choice(found)
    before = ast.unparse(tree)
    setattr(node, field, value)
    after = ast.unparse(ast.fix_missing_locations(tree))
    return (after, _place(tree, node)) if after != before else None


def cpp_mutant(source: str, choose: random.Random) -> str:
    """Returns a source of C++ with one break, which may not compile."""
    lines = source.splitlines(keepends=True)
    found = [
        (number, at)
        for number, line in enumerate(lines) if not _NO_CODE.match(line)
        for at in _CPP.finditer(line.partition("//")[0])
        if line[: at.start()].count('"') % 2 == 0
    ]  # fmt: skip
    number, at = choose.choice(found)
    old = at[0]
    new = _CPP_FLIPPED.get(old) or (str(int(old) + 1) if old.isdigit() else "false")
    lines[number] = lines[number][: at.start()] + new + lines[number][at.end() :]
    return "".join(lines)


def _functions(tree: ast.AST) -> dict[str, ast.FunctionDef]:
    return {f"{n.name}:{n.lineno}": n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def _place(tree: ast.Module, node: ast.AST) -> str:
    """Names the innermost function whose body has the node; "": it is run when imported."""
    within = [
        (function.lineno, name)
        for name, function in _functions(tree).items()
        if any(node is part for line in function.body for part in ast.walk(line))
    ]
    return max(within, default=(0, ""))[1]


_TELL = """
def oddrank_mutants_tell(place, told=set()):
    import contextlib, os
    test, _, when = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")
    line = f"{place}\\t{test if when == '(call)' else test.partition('::')[0]}\\n"
    if line not in told:
        told.add(line)
        with contextlib.suppress(OSError), open(%r, "a") as out:  # some tests leave no descriptor
            out.write(line)
"""


def _telling(source: str, file: Path, out: Path) -> str:
    """Returns a source whose functions log their calling tests to `out`."""
    tree = ast.parse(source)
    for name, function in _functions(tree).items():
        told = ast.parse(f"oddrank_mutants_tell({f'{file} {name}'!r})").body
        function.body[ast.get_docstring(function) is not None : 0] = told
    first = sum(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body)
    first += ast.get_docstring(tree) is not None
    tree.body[first:first] = ast.parse(_TELL % str(out)).body
    return ast.unparse(ast.fix_missing_locations(tree))


def callers(subject: str, files: list[Path], which: str) -> dict[str, list[str]]:
    """Runs the subject's tests once; returns each function's tests, the most special first.

    A fixture's calls count for all tests of its file, an import's calls for all tests.
    """
    sources = {file: file.read_text() for file in files}
    with TemporaryDirectory() as folder:
        out = Path(folder, "told")
        try:
            for file, source in sources.items():
                file.write_text(_telling(source, file, out))
            done = _pytest([f"tests/{subject}"], 3600.0, "-q", which)
        finally:
            for file, source in sources.items():
                file.write_text(source)
        # Some notice the log, by frames or files: these tests try no mutant.
        failed = re.findall(r"^FAILED (.+?)(?: - .*)?$", done.stdout, re.M)
        if done.returncode > 1 or len(failed) > 5 or not out.exists():
            sys.exit(f"tests/{subject} fails without a break:\n{done.stdout[-2000:]}")
        told = [line.split("\t") for line in out.read_text().splitlines()]
        told = [(place, test) for place, test in told if test not in failed]
    width, found = Counter(test for _, test in told), defaultdict(set)
    for place, test in told:
        found[place].add(test or f"tests/{subject}")
    return {place: sorted(tests, key=width.__getitem__) for place, tests in found.items()}


def passes(tests: list[str], seconds: float, which: str) -> bool:
    with suppress(subprocess.TimeoutExpired):
        return not _pytest(tests, seconds, "-x", which).returncode
    return False


def _pytest(
    tests: list[str], seconds: float, how: str, which: str
) -> "subprocess.CompletedProcess[str]":
    few = len(tests) < 30 and all("::" in test for test in tests)
    pytest = [sys.executable, "-m", "pytest", how, "-m", which, "-p", "no:cacheprovider"]
    return subprocess.run(
        [*pytest, "-n", "0" if few else "4", *tests],
        cwd=ROOT, capture_output=True, timeout=seconds, check=False, text=True,
    )  # fmt: skip


def survives(tests: list[str], file: Path, text: str, seconds: float, which: str) -> bool:
    """Runs tests on a changed file, which is always restored."""
    original = file.read_text()
    try:
        file.write_text(text)
        return not tests or passes(tests, seconds, which)
    finally:
        file.write_text(original)


def cpp_survives(file: Path, text: str, seconds: float, which: str) -> bool | None:
    """Runs tests on a changed file, which is restored; None: it does not compile."""
    original, ctest = file.read_text(), [".ci/ctest", sys.executable]
    try:
        file.write_text(text)
        if _ends(*ctest, "-N", seconds=seconds):
            return None
        if _ends(*ctest, "--stop-on-failure", seconds=seconds):
            return False
        if _build(seconds):
            return False  # the module can't be imported
        return passes([f"tests/{file.relative_to(ROOT).parts[1]}"], seconds, which)
    finally:
        file.write_text(original)


def _ends(*command: str, seconds: float) -> int:
    """Returns a command's exit code, 124 after so many seconds. No pipe: a child may keep it."""
    with suppress(subprocess.TimeoutExpired):
        return subprocess.run(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=seconds, check=False,
        ).returncode  # fmt: skip
    return 124


def _build(seconds: float) -> int:
    return _ends("make", "-s", f"{sys.prefix}/.built", f"VENV={sys.prefix}", seconds=seconds)


def _show(file: Path, text: str, plain: str) -> None:
    name = str(file.relative_to(ROOT))
    lines = plain.splitlines(), text.splitlines()
    print(*difflib.unified_diff(*lines, name, name, n=2, lineterm=""), sep="\n")


def of_cpp(folder: str, given: argparse.Namespace, choose: random.Random, which: str) -> None:
    """Tries mutants of a folder of C++."""
    files = sorted([*(ROOT / folder).rglob("*.cpp"), *(ROOT / folder).rglob("*.hpp")])
    tried = left = 0
    while tried < given.count:
        (file,) = choose.choices(files, [file.stat().st_size for file in files])
        text = cpp_mutant(file.read_text(), choose)
        survived = cpp_survives(file, text, given.seconds, which)
        if survived is None:
            continue
        tried, left = tried + 1, left + survived
        if survived:
            _show(file, text, file.read_text())
        print(f"{folder}: {tried - left} of {tried} mutants died", flush=True)
    _build(given.seconds)  # the last build may have a break in it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("subjects", nargs="+", help="folders of python/oddrank, or csrc/...")
    parser.add_argument("--count", type=int, default=50, help="mutants of each subject")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=float, default=600.0, help="of one mutant's tests")
    parser.add_argument("--jobs", action="store_true", help="also with tests that start jobs")
    given = parser.parse_args()
    which = "not soak and not gpu" if given.jobs else "not job"
    choose, tried, left = random.Random(given.seed), 0, 0
    print(f"seed {given.seed}")
    for subject in given.subjects:
        if subject.startswith("csrc"):
            of_cpp(subject, given, choose, which)
            continue
        files = sorted((ROOT / "python/oddrank" / subject).rglob("*.py"))
        files = [file for file in files if file.name not in _NO_LOGIC]
        weights = [file.stat().st_size for file in files]
        known = callers(subject, files, which)
        for _ in range(given.count):
            made = None
            while made is None:
                (file,) = choose.choices(files, weights)
                made = mutant(file.read_text(), choose)
            text, place = made
            tests = known.get(f"{file} {place}", []) if place else [f"tests/{subject}"]
            tried += 1
            if survives(tests, file, text, given.seconds, which):
                left += 1
                _show(file, text, ast.unparse(ast.parse(file.read_text())))
            print(f"{subject}: {tried - left} of {tried} mutants died", flush=True)


if __name__ == "__main__":
    main()
