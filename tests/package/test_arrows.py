"""Who may know whom: one table for C++ folders, one for Python packages, against real includes."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

# csrc folder -> the folders whose headers it may include (its own always).
CPP = {
    "base": set(),
    "cuda": {"base"},
    "control": {"base"},
    "printing": {"base"},
    "trace": {"base"},
    "bench": {"base", "cuda"},
    "selftest": {"base", "cuda", "bench"},
    "modules": {"base", "cuda", "control", "printing", "trace", "bench", "selftest"},
}

# Leaves, which every subject may use, and what each of them may use itself.
PYTHON_LEAVES = {
    "errors": set(),
    "_version": set(),
    "_native": {"errors", "_build"},
    "job": {"errors", "_native"},
    "launch": {"errors", "job"},
    "finding": {"errors", "_version"},
    "render": {"errors", "finding"},
    "peers": {"_native", "errors"},
    "control": {"errors", "_native", "launch", "finding", "job"},
}
# Subject -> the other subjects that it may use (all leaves always).
PYTHON_SUBJECTS: dict[str, set[str]] = {
    "printing": set(),
    "trace": set(),
    "bench": set(),
    "selftest": {"bench"},
    "doctor": set(),
}


def included_folders(folder: Path) -> set[tuple[str, str]]:
    found = set()
    for file in sorted(folder.rglob("*")):
        if file.suffix in {".cpp", ".hpp", ".cu"}:
            for name in re.findall(r'^\s*#include "([^"/]+)/', file.read_text(), re.MULTILINE):
                found.add((name, str(file.relative_to(ROOT))))
    return found


def imported_parts(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module == "oddrank":
                found |= {alias.name for alias in node.names}
            elif node.module.startswith("oddrank."):
                found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("oddrank.")}
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{file}: relative import"
    return found


def test_every_include_follows_an_arrow_of_the_table():
    wrong = [
        f"{file} includes {name}/"
        for folder in sorted((ROOT / "csrc").iterdir())
        if folder.is_dir() and folder.name != "cmake"
        for name, file in included_folders(folder)
        if name != folder.name and name not in CPP[folder.name]
    ]
    assert not wrong


def test_every_import_follows_an_arrow_of_the_table():
    leaves = set(PYTHON_LEAVES)
    package = ROOT / "python" / "oddrank"
    wrong = []
    for file in sorted(package.rglob("*.py")):
        part = file.relative_to(package).parts[0].removesuffix(".py")
        if part in PYTHON_LEAVES:
            allowed = PYTHON_LEAVES[part] | {part}
        elif part in PYTHON_SUBJECTS:
            allowed = leaves | PYTHON_SUBJECTS[part] | {part}
            if file.name == "command.py":  # the options that commands share
                allowed |= {"cli"}
        else:  # __init__, __main__, cli: the way in, may know every subject
            allowed = {"cli", *leaves}
        wrong += [
            f"{file.relative_to(ROOT)} imports oddrank.{name}"
            for name in imported_parts(file) - allowed
            if not name.startswith("__")
        ]
    assert not wrong


def test_the_tables_know_every_folder():
    cpp = {f.name for f in (ROOT / "csrc").iterdir() if f.is_dir()} - {"cmake"}
    python = {f.name for f in (ROOT / "python" / "oddrank").iterdir() if f.is_dir()} - {
        "__pycache__"
    }
    assert cpp <= set(CPP)
    assert python <= set(PYTHON_SUBJECTS) | set(PYTHON_LEAVES)


def test_only_commands_import_click_and_only_render_imports_rich():
    package = ROOT / "python" / "oddrank"
    for file in package.rglob("*.py"):
        text = file.read_text()
        if file.name not in {"command.py", "cli.py"}:
            assert not re.search(r"^\s*(import|from) click\b", text, re.MULTILINE), file
        if file.name != "render.py":
            assert not re.search(r"^\s*(import|from) rich\b", text, re.MULTILINE), file
        if file.name != "_native.py":
            native = r"^\s*(from|import) .*\b_(core|cuda|torch)\b"
            assert not re.search(native, text, re.MULTILINE), file


def test_no_function_has_the_name_of_a_package():
    package = ROOT / "python" / "oddrank"
    packages = {f.name for f in package.iterdir() if f.is_dir()}
    for file in package.rglob("*.py"):
        names = {
            n.name for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.FunctionDef)
        }
        assert not (names & packages), f"{file}: {names & packages}"
