"""Runs code in a fresh process: NCCL is loaded once per process and never unloaded."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from oddrank import _native
from processes import captured
from texts import texts

_BEGIN = texts(__file__)["begin"]


def real_nccl() -> str:
    """Returns libnccl.so.2 of the nvidia-nccl wheel that `_cuda` was built with."""
    file = _native.nccl_wheel()
    assert file, "no nvidia-nccl wheel: pip install nvidia-nccl-cu13"
    return file


def in_process(code: str, **environ: str) -> tuple[Any, str]:
    """Runs the code in a fresh process; returns its variable `answer` and its output."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL", "ODDRANK_NCCL"))}
    done = captured(
        [sys.executable, "-c", f"{_BEGIN}\n{code}\nprint(json.dumps(answer))"],
        env={**clean, **environ},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    printed, _, answer = done.stdout.rstrip("\n").rpartition("\n")
    return json.loads(answer), printed


def make_fake(folder: Path, *flags: str) -> Path:
    """Builds libnccl.so.2 from fake_nccl.cpp, once for all folders."""
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / "libnccl.so.2"
    made.write_bytes(_library(flags))
    return made


@cache
def _library(flags: tuple[str, ...]) -> bytes:
    command = [os.environ.get("CXX", "c++"), "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2"]
    with TemporaryDirectory() as folder:
        made, source = Path(folder, "made"), Path(__file__).with_name("fake_nccl.cpp")
        subprocess.run([*command, *flags, source, "-o", made], check=True)
        return made.read_bytes()
