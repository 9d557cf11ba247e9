"""The hand-written stubs and the compiled modules have the same names."""

import ast
import inspect
from pathlib import Path

import pytest

import oddrank
from oddrank import _native

MODULES = [
    pytest.param("core"),
    pytest.param("cuda", marks=pytest.mark.needs("cuda-build")),
    pytest.param("torch", marks=pytest.mark.needs("torch-build")),
]


def names_of(body: list[ast.stmt], prefix: str = "") -> set[str]:
    """Returns functions, classes with their methods, and variables; not the stub's imports."""
    found = set()
    for node in body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            found.add(prefix + node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(prefix + node.target.id)
        elif isinstance(node, ast.ClassDef):
            found |= {prefix + node.name, *names_of(node.body, f"{prefix}{node.name}.")}
    return found


def names_in(thing: object, prefix: str = "") -> set[str]:
    """Returns the exported names, without special methods: pybind11 adds __init__ to each class."""
    found = set()
    for name, value in vars(thing).items():
        if name.startswith("_"):
            continue
        found.add(prefix + name)
        if inspect.isclass(value):
            found |= names_in(value, f"{prefix}{name}.")
    return found


@pytest.mark.parametrize("name", MODULES)
def test_a_stub_names_what_its_module_exports(name: str):
    stub = Path(oddrank.__file__).with_name(f"_{name}.pyi")
    stubbed = names_of(ast.parse(stub.read_text()).body)
    exported = names_in(getattr(_native, name)())
    assert exported - stubbed == set(), f"add these to {stub.name}"
    assert stubbed - exported == set(), f"{stub.name} has these, the module does not"
