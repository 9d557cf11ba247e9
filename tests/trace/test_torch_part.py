"""If _torch is absent or does not fit, one clear line says so and nothing is loaded."""

import subprocess
import sys

import pytest

from oddrank import _native


def answer_of(code: str) -> str:
    """Runs code in a fresh interpreter; returns the error's text and whether _torch was mapped."""
    program = f"""
import sys, types
from oddrank import _native
from oddrank.errors import MissingPartError
torch = types.ModuleType("torch")
{code}
try:
    _native.torch()
except MissingPartError as error:
    print(error)
print("mapped" if "/_torch." in open("/proc/self/maps").read() else "not mapped")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout


BUILT_AGAINST_212 = """
_native.build_report = lambda: {"_torch": {"reason": "", "advice": "", "torch": "2.12.0+cu130"}}
"""


def test_another_minor_version_is_told_before_the_module_is_loaded():
    text = answer_of(
        BUILT_AGAINST_212 + 'torch.__version__ = "2.13.1"; sys.modules["torch"] = torch'
    )
    assert "torch 2.12.0+cu130" in text
    assert "torch 2.13.1" in text
    assert "pip install --no-cache-dir --force-reinstall --no-deps oddrank" in text
    assert "not mapped" in text


def test_a_torch_that_is_gone_is_named_with_the_version_to_install():
    text = answer_of(BUILT_AGAINST_212 + 'sys.modules["torch"] = None')
    assert "torch cannot be imported" in text
    assert "pip install 'torch==2.12.*'" in text
    assert "not mapped" in text


def test_a_part_that_was_not_built_says_why_and_what_to_type():
    text = answer_of(
        '_native.build_report = lambda: {"_torch": {"reason": "torch 1.13.1 is too old",'
        ' "advice": "Install torch >= 2.11"}}'
    )
    assert text.startswith("oddrank._torch is missing: torch 1.13.1 is too old. Install torch")
    assert "not mapped" in text


@pytest.mark.needs("torch-build")
def test_another_patch_version_or_build_of_the_same_minor_fits():
    minor = ".".join(_native.torch().build_info["torch"].split(".")[:2])
    text = answer_of(
        f'_native.build_report = lambda: {{"_torch": {{"reason": "", "torch": "{minor}.99+x"}}}}'
    )
    assert text == "mapped\n"


@pytest.mark.needs("torch-build")
def test_the_build_report_names_the_torch_that_the_module_was_compiled_with():
    built_with = _native.torch().build_info["torch"]
    assert _native.build_report()["_torch"]["torch"] == built_with
