"""A Python with another torch, which ODDRANK_TEST_OTHER_TORCH names, and which finds this oddrank.

oddrank's dependencies lie behind that Python's own packages.
"""

import os
import sys
from importlib import import_module
from pathlib import Path

import oddrank
from oddrank import _native


def command(folder: Path, code: str) -> list[str]:
    """Returns the command that runs code there; its arguments follow. folder: a new one."""
    package = folder / "oddrank"
    package.mkdir(parents=True)
    parts = [_native.core(), _native.torch(), import_module("oddrank._build")]
    here = Path(oddrank.__file__).parent.iterdir()
    for file in {*here, *(Path(str(part.__file__)) for part in parts)}:
        (package / file.name).symlink_to(file)
    places = [str(folder), *(path for path in sys.path if path.endswith("-packages"))]
    python = os.environ["ODDRANK_TEST_OTHER_TORCH"]
    return [python, "-c", f"import sys; sys.path += {places}\n{code}"]


def environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
