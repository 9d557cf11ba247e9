"""The symbols that the compiled modules import and export."""

import re
import subprocess

import pytest

from oddrank import _native

SYSTEM = re.compile(
    r"(libstdc\+\+|libgcc_s|libm|libc|libpthread|libdl|librt|ld-linux[-a-z0-9_]*)\.so\.\d+"
)
MODULES = [pytest.param("core"), pytest.param("cuda", marks=pytest.mark.needs("cuda-build"))]


def lines(*command: str) -> list[str]:
    return subprocess.check_output(command, text=True).splitlines()


@pytest.mark.parametrize("name", MODULES)
def test_a_module_needs_system_libraries_only(name: str):
    dynamic = lines("readelf", "-d", getattr(_native, name)().__file__)
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", "\n".join(dynamic))
    assert "libc.so.6" in needed
    assert [library for library in needed if not SYSTEM.fullmatch(library)] == []
    assert not [line for line in dynamic if "RPATH" in line or "RUNPATH" in line]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_exports_its_init_function_and_nothing_else(name: str):
    exported = lines("nm", "-D", "--defined-only", getattr(_native, name)().__file__)
    assert [line.split()[-1] for line in exported] == [f"PyInit__{name}"]
