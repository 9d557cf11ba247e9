"""Measures what pytest's plugin costs: its load, and a test in 4 ranks without and with torch.

Load: milliseconds of `import oddrank.run.pytest_plugin` in a Python that has imported pytest,
beside pytest's own import; target <= 5 ms. Tests: CPU seconds of a whole pytest, with all its
processes.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

LOADS = {
    "import pytest": "pytest",
    "import oddrank.run.pytest_plugin": "oddrank.run.pytest_plugin",
}
TESTS = {
    "a test in pytest itself": "def test_it(): pass",
    "a test that imports torch": "def test_it(): import torch.distributed",
    "@ranks(4)": "import pytest\n@pytest.mark.ranks(4)\ndef test_it(ranks): pass",
    "@ranks(4), torch imported": (
        "import pytest\n@pytest.mark.ranks(4)\ndef test_it(ranks): import torch.distributed"
    ),
    "@ranks(4), process_group, all_reduce": (
        "import pytest\n@pytest.mark.ranks(4)\ndef test_it(ranks, process_group):\n"
        "    import torch, torch.distributed as dist\n    dist.all_reduce(torch.ones(1))"
    ),
}


def milliseconds(module: str) -> float:
    """Returns the CPU time of an import in a fresh Python; pytest is imported before others."""
    before = "" if module == "pytest" else "import pytest;"
    code = (
        f"import time; {before} start = time.process_time(); import {module};"
        " print(time.process_time() - start)"
    )
    return float(subprocess.check_output([sys.executable, "-c", code])) * 1e3


def cpu_seconds(folder: Path, text: str) -> float:
    file = folder / "test_it.py"
    file.write_text(text)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)],
        cwd=folder, stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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
        tests: dict[str, Callable[[], float]] = {
            name: partial(cpu_seconds, Path(folder), text) for name, text in TESTS.items()
        }
        start = time.monotonic()
        for test in tests.values():
            test()
        print(f"one round takes {time.monotonic() - start:.0f} s", file=sys.stderr)
        for name, values in harness.paired(tests, arguments.repetitions).items():
            rows.append({"what": name, "unit": "s of CPU", "figure": harness.spread(values)})
    harness.report("ranks_marker", rows, arguments.json)


if __name__ == "__main__":
    main()
