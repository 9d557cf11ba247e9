"""Checks includes and imports against tables: which folder or package may use which."""

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from texts import rows

ROOT = Path(__file__).parents[2]


def table(name: str) -> dict[str, list[str]]:
    return {key: words.split() for key, words in rows(__file__, name)}


# csrc folder -> the folders whose headers it may include (its own always).
CPP = table("csrc")
# Leaves: every subject may use them. Leaf -> the leaves that it may use itself.
PYTHON_LEAVES = table("leaves")
# Subject -> the other subjects that it may use (all leaves always).
PYTHON_SUBJECTS = table("subjects")
# File name -> why several packages have one. All others occur once.
NAMES_OF_SEVERAL = table("names of several")


@cache
def nodes_of(file: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(file.read_text())))


def included_folders(folder: Path) -> set[tuple[str, str]]:
    found = set()
    for file in sorted(folder.rglob("*")):
        if file.suffix in {".cpp", ".hpp", ".cu"}:
            for name in re.findall(r'^\s*#include "([^"/]+)/', file.read_text(), re.MULTILINE):
                found.add((name, str(file.relative_to(ROOT))))
    return found


def imported_parts(file: Path) -> set[str]:
    found = set()
    for node in nodes_of(file):
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
            allowed = {part, *PYTHON_LEAVES[part]}
        elif part in PYTHON_SUBJECTS:
            allowed = {part, *leaves, *PYTHON_SUBJECTS[part]}
            if file.name == "command.py":  # options that all commands share
                allowed |= {"cli"}
        else:  # __main__ and cli; __init__ lists public names of every subject
            allowed = {"cli", *leaves, *(PYTHON_SUBJECTS if part == "__init__" else ())}
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


def imported_modules(nodes: Iterable[ast.AST]) -> set[str]:
    """Returns a.b and a, for `import a.b`; a and a.b, for `from a import b`; for all depths."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    split = (name.split(".") for name in names)
    return {".".join(parts[: i + 1]) for parts in split for i in range(len(parts))}


def test_only_commands_import_click_and_only_render_imports_rich():
    importers: dict[str, set[str]] = {}
    for file in (ROOT / "python" / "oddrank").rglob("*.py"):
        for module in imported_modules(nodes_of(file)):
            importers.setdefault(module, set()).add(file.name)
    assert importers["click"] == {"command.py", "cli.py"}
    assert importers["rich"] == {"render.py"}


NATIVE = {f"oddrank._{part}" for part in ("core", "cuda", "torch")}


def test_no_file_imports_a_compiled_module_by_name():
    inside = ast.parse("def f():\n    from oddrank import _core")
    assert imported_modules(ast.walk(inside)) & NATIVE
    for file in (ROOT / "python" / "oddrank").rglob("*.py"):
        assert not imported_modules(nodes_of(file)) & NATIVE, file


def test_no_function_has_the_name_of_a_package():
    package = ROOT / "python" / "oddrank"
    packages = {f.name for f in package.iterdir() if f.is_dir()}
    functions: dict[str, Path] = {}
    for file in package.rglob("*.py"):
        for node in nodes_of(file):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions[node.name] = file
    assert {"trace", "launch"} <= packages
    assert "arm" in functions
    # `oddrank bench run` and NicerTrace.run() are verbs that users type.
    packages -= {"run"}
    assert {name: functions[name] for name in packages & functions.keys()} == {}


def test_no_two_files_of_csrc_have_one_name():
    files = [f for f in (ROOT / "csrc").rglob("*") if f.suffix in {".cpp", ".hpp", ".cu"}]
    names = [file.name for file in files]
    assert {"bind_trace.cpp", "net.hpp", "gpu_memory.cu"} <= set(names)
    assert [str(file) for file in files if names.count(file.name) > 1] == []


def test_python_files_have_one_name_only_where_they_are_the_same_thing():
    """In the folders of the self-test the same name means the same stage or tested thing."""
    package = ROOT / "python" / "oddrank"
    files = [file.relative_to(package) for file in package.rglob("*.py")]
    names = [file.stem for file in files if file.parts[0] != "selftest"]
    twice = {name for name in names if names.count(name) > 1}
    assert sorted(twice - set(NAMES_OF_SEVERAL)) == []
