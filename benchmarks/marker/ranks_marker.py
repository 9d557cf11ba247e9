"""Measures the cost of pytest's plugin: its load, and a test in 4 ranks beside other ways.

Load: milliseconds of `import oddrank.marker.plugin` in a Python that has imported pytest,
beside pytest's own import; target <= 5 ms. Tests: each inits a process group and makes an
all_reduce, and is measured after the first one of its session; target <= 1 s and <= 1 s of CPU.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

MORE = 4  # tests after the first
LOADS = {
    "import pytest": "pytest",
    "import oddrank.marker.plugin": "oddrank.marker.plugin",
}
_SUM = "    x = torch.ones(1)\n    dist.all_reduce(x)\n    assert x.item() == 4\n"
_IMPORTS = "import pytest, torch\nimport torch.distributed as dist\n"
MARKED = (
    f"{_IMPORTS}@pytest.mark.ranks(4{{}})\n@pytest.mark.parametrize('number', range({{}}))\n"
    f"def test_sum(ranks, process_group, number):\n{_SUM}"
)
# A test written without a plugin.
SPAWNED = f"""
{_IMPORTS}
import torch.multiprocessing as mp

def sums(rank, port):
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{{{{port}}}}", rank=rank, world_size=4)
{_SUM}    dist.destroy_process_group()

@pytest.mark.parametrize('number', range({{}}))
def test_sum(number):
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(sums, (port,), nprocs=4)
"""
ISOLATED = """
import pytest, torch

@pytest.mark.mpi(ranks=4)
@pytest.mark.parametrize('number', range({}))
def test_sum(mpi_ranks, comm, number):
    x = torch.ones(1)
    assert comm.allreduce(x.item()) == 4
"""
# Name -> a file of that many tests in 4 ranks.
FILES: dict[str, Callable[[int], str]] = {
    "@ranks(4)": partial(MARKED.format, ""),
    "@ranks(4, fresh=True)": partial(MARKED.format, ", fresh=True"),
    "mp.spawn, by hand": SPAWNED.format,
}
if find_spec("pytest_isolate_mpi"):
    FILES["pytest-isolate-mpi"] = ISOLATED.format


def milliseconds(module: str) -> float:
    """Returns the CPU time of an import in a fresh Python; pytest is imported before others."""
    before = "" if module == "pytest" else "import pytest;"
    code = (
        f"import time; {before} start = time.process_time(); import {module};"
        " print(time.process_time() - start)"
    )
    return float(subprocess.check_output([sys.executable, "-c", code])) * 1e3


def seconds(folder: Path, text: str) -> tuple[float, float]:
    """Returns wall and CPU seconds of a pytest on this file, with all its processes."""
    file = folder / "test_it.py"
    file.write_text(text)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)],
        cwd=folder, stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def each(folder: Path, tests: Callable[[int], str]) -> tuple[float, float]:
    """Returns wall and CPU seconds of each test after the first one of a session."""
    first, all_ = seconds(folder, tests(1)), seconds(folder, tests(1 + MORE))
    return (all_[0] - first[0]) / MORE, (all_[1] - first[1]) / MORE


def main() -> None:
    arguments = harness.parser(__doc__ or "", default_repetitions=5).parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    rows = []
    loads: dict[str, Callable[[], float]] = {
        name: partial(milliseconds, module) for name, module in LOADS.items()
    }
    for load in loads.values():
        load()  # byte code written, files in the page cache
    for name, values in harness.paired(loads, arguments.repetitions).items():
        rows.append({"what": name, "unit": "ms of CPU", "figure": harness.spread(values)})
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pytest.ini").write_text("[pytest]\n")
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in FILES}
        for _ in range(arguments.repetitions):
            for name, tests in FILES.items():
                found[name].append(each(Path(folder), tests))
        for name, pairs in found.items():
            for unit, values in zip(("s", "s of CPU"), zip(*pairs, strict=True), strict=True):
                what = f"{name}: each test after the first"
                rows.append({"what": what, "unit": unit, "figure": harness.spread(list(values))})
    harness.report("ranks_marker", rows, arguments.json)


if __name__ == "__main__":
    main()
