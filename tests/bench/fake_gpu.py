"""Compiles programs against fake_gpu.cpp, a fake GPU and NCCL."""

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

from bench.nccl_process import real_nccl

HERE = Path(__file__).parent


def compiler() -> list[str]:
    """Returns the compiler with the include folders of CUDA and NCCL."""
    headers = [
        os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/include",
        Path(real_nccl()).parents[1] / "include",
    ]
    runtime = find_spec("nvidia.cu13")
    for place in (runtime and runtime.submodule_search_locations) or ():
        headers.append(Path(place) / "include")
    flags = ["-std=c++20", "-pthread", *(f"-isystem{place}" for place in headers)]
    return [os.environ.get("CXX", "c++"), *flags]


def make_fake_gpu(folder: Path, *flags: str) -> Path:
    """Builds one library for both, libnccl.so.2. flags: -DWITHOUT_WINDOWS: an older NCCL."""
    made = folder / "libnccl.so.2"
    options = ["-shared", "-fPIC", "-Wl,-soname,libnccl.so.2"]
    subprocess.run([*compiler(), *flags, *options, HERE / "fake_gpu.cpp", "-o", made], check=True)
    return made
