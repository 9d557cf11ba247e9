"""What a test needs and whether it is here: `@pytest.mark.needs("mpi")`, `pytest --require=mpi`.

A skip is a hole in the tests: --require turns the skips of the named things into failures.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec

import pytest
from hypothesis import HealthCheck, settings

from samples import SAMPLES
from slurm import Cluster, two_nodes

# The machine is shared with ranks under test: how long one example takes proves nothing.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


def _module(name: str) -> Callable[[], bool]:
    return lambda: find_spec(name) is not None


def _programs(*names: str) -> Callable[[], bool]:
    return lambda: all(shutil.which(name, path=_system_path()) for name in names)


def _succeeds(*command: str, saying: str = "") -> Callable[[], bool]:
    def probe() -> bool:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0 and saying in done.stdout

    return probe


def _system_path() -> str:
    more = ("/usr/sbin", "/sbin", "/usr/local/cuda/bin")
    return os.pathsep.join([os.environ.get("PATH", os.defpath), *more])


# Name -> whether it is here. A thing that tests may need is one row.
PROBES: dict[str, Callable[[], bool]] = {
    "torch": _module("torch"),
    "torch-build": _module("oddrank._torch"),
    "cuda-build": _module("oddrank._cuda"),
    "gpu": _succeeds("nvidia-smi", "-L"),
    "compute-sanitizer": _programs("compute-sanitizer"),
    "greenlet": _module("greenlet"),
    "matplotlib": _module("matplotlib"),
    "mpi": _succeeds("mpirun", "--version", saying="Open MPI"),
    "hydra": _programs("mpiexec.hydra"),
    "slurm": _programs("slurmctld", "slurmd", "munged", "srun", "sbatch", "scancel"),
    "time-namespace": _succeeds("unshare", "--time", "--fork", "--monotonic", "5", "true"),
    "netns": _succeeds("unshare", "--net", "ip", "link", "set", "lo", "up"),
    "nft": _programs("nft"),
    "fuse": lambda: os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK),
    "samples": SAMPLES.is_dir,
    # Its trace processor is a program that it downloads: a machine without a network is given one.
    "perfetto": lambda: (
        find_spec("perfetto") is not None
        and shutil.which(os.environ.get("TRACE_PROCESSOR_SHELL", "trace_processor_shell"))
        is not None
    ),
    "cpu-cgroup": lambda: os.access("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", os.W_OK),
    "memory-cgroup": lambda: os.access("/sys/fs/cgroup/memory/tasks", os.W_OK),
}


@cache
def is_here(name: str) -> bool:
    return PROBES[name]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require",
        default="",
        metavar="NAMES",
        help=f"fail, don't skip, where one of these is missing: {','.join(PROBES)}",
    )
    parser.addoption(
        "--repeats", type=int, default=1, help="how often a test marked soak repeats its fault"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Started in the background, a shell has us ignore Ctrl-C, and our children after us.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", f"needs(*names): any of {', '.join(PROBES)}")
    _known(_required(config), "--require")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        _known(_needs(item), item.nodeid)
    # Many minutes: only when asked for.
    unasked = [mark for mark in ("soak", "whole_build") if mark not in config.getoption("-m")]
    left_out = [item for item in items if any(map(item.get_closest_marker, unasked))]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in _needs(item):
        if not is_here(name):
            if name in _required(item.config):
                pytest.fail(f"{name} is required and not here", pytrace=False)
            pytest.skip(f"needs {name}")


@pytest.fixture(scope="session")
def slurm() -> Iterator[Cluster]:
    """A SLURM of two nodes; for tests that need slurm and netns."""
    with two_nodes() as cluster:
        yield cluster


@pytest.fixture
def repeats(request: pytest.FixtureRequest) -> int:
    """How often a soak test repeats: `make soak REPEATS=20`."""
    return int(request.config.getoption("--repeats"))


def _required(config: pytest.Config) -> list[str]:
    return [name for name in config.getoption("--require").split(",") if name]


def _needs(item: pytest.Item) -> list[str]:
    marked = [name for mark in item.iter_markers("needs") for name in mark.args]
    return marked + ["gpu"] * (item.get_closest_marker("gpu") is not None)


def _known(names: list[str], where: str) -> None:
    unknown = sorted(set(names) - set(PROBES))
    if unknown:
        raise pytest.UsageError(f"{where}: {', '.join(unknown)} is none of {', '.join(PROBES)}")
