"""Takes a GPU's place for `make gpu-check DRY=1`: proves scripts, paths and files, not figures.

environ(folder): programs and libraries of a GPU machine that do nothing, for all parts.
dry_gpu.py SCRIPT ARGUMENTS...: runs a benchmark of benchmarks/gpu on little data in the host's
memory. Each call of a kernel is compared with its declaration in _cuda.pyi.
"""

import ast
import inspect
import os
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from texts import texts

ROOT = Path(__file__).parents[1]
PROGRAMS = texts(__file__)
# A benchmark's constants -> their values in a dry run.
SMALL = {
    "BYTES": 1 << 16, "ROWS": 32, "PASSES": 1, "RUNS": 100,
    "BACKEND": "auto", "SIZES": ("8", "32K", 64), "BUDGET": 1,
}  # fmt: skip
# Runs no program: with the kernels' tests it proves the command line and the code's syntax.
SANITIZER = PROGRAMS["sanitizer"]
NVIDIA_SMI = "#!/bin/sh\necho 'GPU 0: a fake (UUID: GPU-fake)'\n"
NCCL_TESTS = PROGRAMS["nccl tests"]
# As nccl-tests': wants nccl.h, libnccl.so and an architecture, and makes programs one by one.
NCCL_TESTS_MAKEFILE = PROGRAMS["nccl tests makefile"]
NVCC = PROGRAMS["nvcc"]


def environ(folder: Path) -> dict[str, str]:
    """Makes the programs and libraries in `folder`; returns the variables that point there."""
    programs = folder / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    texts = {"compute-sanitizer": SANITIZER.replace("{python}", sys.executable)}
    source = folder / "nccl-tests" / "src"
    source.mkdir(parents=True, exist_ok=True)
    (source / "Makefile").write_text(NCCL_TESTS_MAKEFILE)
    _program(source / "perf", NCCL_TESTS)
    found = {"NCCL_TESTS_HOME": str(source.parent), "ODDRANK_DRY_GPU": str(folder)}
    from nvml import fake_nvml

    fake_nvml.build(folder)
    for name, text in texts.items():
        _program(programs / name, text)
    _program(with_a_gpu(folder) / "nvidia-smi", NVIDIA_SMI)
    found["LD_LIBRARY_PATH"] = f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
    found["PATH"] = f"{programs}:{os.environ['PATH']}"
    return found


def with_a_gpu(folder: Path) -> Path:
    """Returns a folder for PATH in which nvidia-smi lists a GPU: tests marked gpu then run."""
    made = folder / "listed"
    made.mkdir(parents=True, exist_ok=True)
    return made


def fake_nccl(folder: Path) -> tuple[str, str]:
    """Builds a fake GPU with its NCCL; returns its library and a compiler that links with it."""
    from bench import fake_gpu

    for part in ("lib", "include"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    library = fake_gpu.make_fake_gpu(folder / "lib")
    text = NVCC.replace("{library}", str(library)).replace("{folder}", str(library.parent))
    nvcc = folder / "bin" / "nvcc"
    _program(nvcc, text.replace("{compiler}", " ".join(map(str, fake_gpu.compiler()))))
    return str(library), str(nvcc)


def _program(file: Path, text: str) -> None:
    file.write_text(text.lstrip())
    file.chmod(0o755)


def declared() -> dict[str, inspect.Signature]:
    """Returns name -> signature of the functions in _cuda.pyi."""
    tree = ast.parse((ROOT / "python/oddrank/_cuda.pyi").read_text())
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            made: dict[str, Any] = {}
            node.returns = None
            parts = node.args
            for argument in (*parts.posonlyargs, *parts.args, *parts.kwonlyargs):
                argument.annotation = None
            exec(compile(ast.Module([node], []), "_cuda.pyi", "exec"), made)
            found[node.name] = inspect.signature(made[node.name])
    return found


class Cuda:
    """Replaces `_cuda`: every call must fit its declaration; all work takes a millisecond."""

    build_info: dict[str, str] = {"compiler": "none: a dry run"}  # noqa: RUF012

    def __init__(self) -> None:
        self._declared = declared()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        signature, answer = self._declared[name], getattr(self, f"_{name}")

        def call(*arguments: Any, **options: Any) -> Any:
            return answer(**signature.bind(*arguments, **options).arguments)

        return call

    def _devices(self) -> list[dict[str, Any]]:
        return [
            {"index": 0, "name": "a fake", "memory_bytes": 1 << 20, "compute_capability": (9, 0)}
        ]

    def _nccl_unique_id(self) -> bytes:
        return bytes(128)

    def _verify_memory(self, bytes: int, **_: Any) -> dict[str, Any]:
        took = {"write_seconds": 1e-3, "read_seconds": 1e-3}
        return {"bytes": bytes, **took, "passes": 6, "mismatches": {"count": 0}}

    def _memory_info(self, device: int) -> tuple[int, int]:
        return 1 << 20, 1 << 20

    def _time_copies(self, repeats: int, **_: Any) -> list[float]:
        return [1e-3] * repeats

    def _time_device_memory(self, bytes: int, repeats: int, **_: Any) -> dict[str, Any]:
        return {"bytes": bytes, **dict.fromkeys(("read", "write", "copy"), [1e-3] * repeats)}

    def _gpu_fill(self, **_: Any) -> None: ...

    def _gpu_digest(self, **_: Any) -> None: ...

    def _gpu_check(self, places: Any, **_: Any) -> list[tuple[int, int, float, float]]:
        return [(0, 0, 0.0, 0.0)] * len(places)


class Native:
    """Replaces the back end nccl."""

    allocator = "ncclMemAlloc"

    def __init__(self, *_: Any, **options: Any) -> None: ...

    def reserve(self, size: int) -> None: ...

    def prepare(self, case: Any) -> Any:
        block = SimpleNamespace(block=lambda n, **_: ([5.0] * n, 5.0))
        return SimpleNamespace(mean=lambda n: 5.0, _native=block)


class Event:
    """Replaces a CUDA event."""

    def __init__(self, **_: Any) -> None: ...

    def record(self) -> None: ...

    def elapsed_time(self, end: "Event") -> float:
        return 1.0


def _on_the_host(torch: Any) -> None:
    """Puts torch's tensors of a GPU into the host's memory."""
    torch.cuda = SimpleNamespace(
        Event=Event, is_available=lambda: True, mem_get_info=lambda: (1 << 20, 1 << 20),
        synchronize=lambda: None, empty_cache=lambda: None, get_device_name=lambda index: "a fake",
    )  # fmt: skip
    for name in ("zeros", "empty", "randn"):
        made = getattr(torch, name)
        setattr(
            torch, name, lambda *sizes, made=made, device="", **options: made(*sizes, **options)
        )


def main(script: str) -> None:
    import torch

    from oddrank import _native
    from oddrank.bench import native
    from oddrank.selftest.probes import gpu

    _on_the_host(torch)
    cuda = Cuda()
    _native.cuda = lambda: cuda
    native.Native = Native  # type: ignore[misc,assignment]
    gpu.products = lambda device, wanted, **_: {name: [1.0] * n for name, n in wanted.items()}
    folder = Path(os.environ["ODDRANK_DRY_GPU"])
    if Path(script).stem == "nccl_launch_cost":
        library, os.environ["CUDACXX"] = fake_nccl(folder)
        _native.load_nccl = lambda: {"path": library, "version_text": "a fake"}
    elif Path(script).stem == "against_nccl_tests":
        wheel = folder / "wheel"
        for file in (wheel / "lib" / "libnccl.so.2", wheel / "include" / "nccl.h"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        _native.load_nccl = lambda: {"path": str(wheel / "lib" / "libnccl.so.2")}
    spec = spec_from_file_location(Path(script).stem, script)
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    for name, value in SMALL.items():
        usual = getattr(made, name, None)
        if usual is not None:
            setattr(made, name, min(usual, value) if isinstance(value, int) else value)
    if hasattr(made, "CASES"):  # the fake GPU has no other collective
        made.CASES = {"all_reduce": made.CASES["all_reduce"]}
    made.harness.end(made.main, Path(script).stem)


if __name__ == "__main__":
    here = sys.argv[1]
    sys.argv = [here, *sys.argv[2:], "--repetitions", "1"]
    main(here)
