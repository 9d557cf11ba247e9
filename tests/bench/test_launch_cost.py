"""What builds the bare loop that launches are held against."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

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
    """Puts an nvcc into a folder; none is anywhere else but in the toolkit's own place."""
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
