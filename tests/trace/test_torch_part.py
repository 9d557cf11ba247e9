"""If _torch is absent or does not fit, one clear line says so and nothing is loaded."""

import re
import sys

import pytest

import forked
from oddrank import _native
from texts import texts


def answer_of(code: str) -> str:
    """Runs code in a process; returns the error's text and whether _torch was mapped."""
    program = texts(__file__)["answer"].replace("CODE", code)
    done = forked.run([sys.executable, "-c", program], text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


BUILT = '_native.build_report = lambda: {{"_torch": {{"reason": "", "torch": "{}"}}}}\n'
FOR_212 = BUILT.format("2.12.0+cu130")
FAULTS = {
    "another minor version": FOR_212 + 'torch.__version__ = "2.13.1"; sys.modules["torch"] = torch',
    "no torch": FOR_212 + 'sys.modules["torch"] = None',
    "not built": '_native.build_report = lambda: {"_torch": {"reason": "torch 1.13.1 is too old",'
    ' "advice": "Install torch >= 2.11"}}',
}


def test_what_does_not_fit_is_told_before_the_module_is_loaded(golden):
    said = {name: answer_of(code) for name, code in FAULTS.items()}
    assert all(text.endswith("\nnot mapped\n") for text in said.values())
    text = "\n".join(f"{name}: {text}" for name, text in said.items())
    # From a checkout or a wheel: no index has oddrank.
    assert "--no-deps oddrank" not in text
    golden(re.sub(r"(?<=--no-deps )\S+", "SOURCE", text))


@pytest.mark.needs("torch-build")
def test_another_patch_version_or_build_of_the_same_minor_fits():
    built_with = _native.torch().build_info["torch"]
    assert _native.build_report()["_torch"]["torch"] == built_with
    minor = ".".join(built_with.split(".")[:2])
    assert answer_of(BUILT.format(f"{minor}.99+x")) == "mapped\n"
