"""Breaks the product in random places, one at a time, and counts which breaks no test finds.

`python tests/mutants.py --count 50 triage run control trace` changes python/oddrank/<subject>, runs
the tests of the subject that start no jobs, and restores the file. Prints each survivor as a diff.
Start it in a checkout without uncommitted changes, from which oddrank is installed with -e.
"""

import argparse
import ast
import difflib
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
_FLIPPED: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}  # fmt: skip
# What only users read: golden files and readers judge it.
_NO_LOGIC = ("command.py", "__init__.py")


def changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str, object]]:
    """Yields (node, field, new value) of each break that this module allows."""
    for node in ast.walk(tree):
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
        elif isinstance(node, ast.Return) and node.value is not None:
            yield node, "value", ast.Constant(value=None)


def _flipped(operator: ast.AST) -> ast.AST:
    return _FLIPPED.get(type(operator), type(operator))()


def mutant(source: str, choose: random.Random) -> str | None:
    """Returns the source with one break, or None if there is nothing to break in it."""
    tree = ast.parse(source)
    found = list(changes(tree))
    if not found:
        return None
    node, field, value = choose.choice(found)
    before = ast.unparse(tree)
    setattr(node, field, value)
    after = ast.unparse(ast.fix_missing_locations(tree))
    return after if after != before else None


def survives(subject: str, file: Path, text: str, seconds: float) -> bool:
    """Runs the subject's tests on a changed file, which is restored whatever happens."""
    original = file.read_text()
    pytest = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "--dist", "loadgroup"]
    try:
        file.write_text(text)
        done = subprocess.run(
            [*pytest, "-p", "no:cacheprovider", "-m", "not job", f"tests/{subject}"],
            cwd=ROOT, capture_output=True, timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    finally:
        file.write_text(original)
    return done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("subjects", nargs="+", help="folders of python/oddrank and of tests")
    parser.add_argument("--count", type=int, default=50, help="mutants of each subject")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=float, default=600.0, help="of one mutant's tests")
    given = parser.parse_args()
    choose, tried, left = random.Random(given.seed), 0, 0
    print(f"seed {given.seed}")
    for subject in given.subjects:
        files = sorted((ROOT / "python/oddrank" / subject).rglob("*.py"))
        files = [file for file in files if file.name not in _NO_LOGIC]
        weights = [file.stat().st_size for file in files]
        for _ in range(given.count):
            text = None
            while text is None:
                (file,) = choose.choices(files, weights)
                text = mutant(file.read_text(), choose)
            tried += 1
            if survives(subject, file, text, given.seconds):
                left += 1
                plain = ast.unparse(ast.parse(file.read_text())).splitlines()
                name = str(file.relative_to(ROOT))
                diff = difflib.unified_diff(plain, text.splitlines(), name, name, n=2, lineterm="")
                print(*diff, sep="\n")
            print(f"{subject}: {tried - left} of {tried} mutants died", flush=True)


if __name__ == "__main__":
    main()
