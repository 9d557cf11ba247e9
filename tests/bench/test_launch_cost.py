"""The bare loop of the launch benchmark does the same work as oddrank, and nvcc is found."""

import json
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from bench.fake_gpu import compiler, make_fake_gpu
from oddrank.bench.backend import offsets
from oddrank.errors import OddrankError

GPU_BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "gpu"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = spec_from_file_location("nccl_launch_cost", GPU_BENCHMARKS / "nccl_launch_cost.py")
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a fake nvcc into a folder; hides all others but the toolkit's own."""
    for name in ("CUDACXX", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))

    def put(folder: str) -> str:
        file = tmp_path / folder / "nvcc"
        file.parent.mkdir(parents=True)
        file.write_text("#!/bin/sh\n")
        file.chmod(0o755)
        return str(file)

    return put


def test_nvcc_is_looked_for_where_the_build_looks(benchmark, nvcc, tmp_path, monkeypatch):
    in_path = nvcc("path")
    assert benchmark.nvcc() == in_path
    in_home = nvcc("home/bin")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert benchmark.nvcc() == in_home
    monkeypatch.setenv("CUDACXX", "/of/my/own/nvcc")
    assert benchmark.nvcc() == "/of/my/own/nvcc"


def test_without_an_nvcc_it_says_where_it_looked(benchmark, nvcc, monkeypatch):
    toolkit = Path("/usr/local/cuda/bin/nvcc")
    if toolkit.exists():
        assert benchmark.nvcc() == str(toolkit)
        return
    with pytest.raises(OddrankError, match="CUDACXX, CUDA_HOME, PATH, /usr/local/cuda"):
        benchmark.nvcc()


# In a separate process: the fake is both NCCL and CUDA runtime.
LOOP = """
import ctypes, json, sys
sys.path.insert(0, sys.argv[1])
from nccl_launch_cost import BYTES, MEMORY, open_loop
fake, raw = ctypes.CDLL(sys.argv[2]), ctypes.CDLL(sys.argv[3])
fake.fake_window.restype, raw.raw_loop.restype = ctypes.c_size_t, ctypes.c_double
answer = {"step": open_loop(raw, sys.argv[2], sys.argv[4]), "us": raw.raw_loop(200, 0),
          "bytes": BYTES, "memory": MEMORY, "by_nccl": fake.fake_nccl_allocations(),
          "windows": [fake.fake_window(i) for i in range(1, 201)]}
print(json.dumps(answer))
"""


@pytest.mark.needs("cuda-build")
@pytest.mark.parametrize(("allocator", "by_nccl"), [("ncclMemAlloc", 1), ("cudaMalloc", 0)])
def test_the_bare_loop_has_our_kind_of_memory_and_our_windows(tmp_path, allocator, by_nccl):
    fake, built = make_fake_gpu(tmp_path), tmp_path / "raw_loop.so"
    options = ["-shared", "-fPIC", GPU_BENCHMARKS / "nccl_raw_loop.cpp", fake]
    subprocess.run([*compiler(), *options, f"-Wl,-rpath,{tmp_path}", "-o", built], check=True)
    said = subprocess.run(
        [sys.executable, "-c", LOOP, GPU_BENCHMARKS, fake, built, allocator],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    found = json.loads(said)
    assert (found["step"], found["by_nccl"]) == (0, by_nccl)
    assert found["us"] == pytest.approx(5, rel=1e-3)
    first = found["windows"][0]
    places = offsets(found["bytes"], found["memory"])
    assert len(places) == 64
    assert [at - first for at in found["windows"]] == (places * 4)[:200]
