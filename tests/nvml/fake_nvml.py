"""The NVIDIA driver's library without a driver, for tests: built once, asked in a process.

A library is never unloaded, and what the fake says is in the environment: hence the process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from processes import captured
from texts import texts

_ASK = texts(__file__)["ask"]


def build(folder: Path, *, old: bool = False) -> str:
    """The library's file. old: of a driver with the former names."""
    library = folder / "libnvidia-ml.so.1"
    flags = ["-DFORMER_NAMES"] if old else []
    source = Path(__file__).with_name("fake_nvml.cpp")
    command = [os.environ.get("CXX", "c++"), "-shared", "-fPIC", *flags, source, "-o", library]
    subprocess.run(command, check=True)
    return str(library)


def ask(function: str, library: str, uuid: str, **fake: Any) -> Any:
    """What machine.nvml's function gives, or the text of its error; fake: see fake_nvml.cpp."""
    environ = {f"FAKE_{name}": str(value) for name, value in fake.items()}
    line = [sys.executable, "-c", _ASK, function, uuid, library]
    done = captured(line, check=True, **environ)
    return json.loads(done.stdout)
