"""Chooses the tests of a run: skips those whose needs are missing, marks those that start jobs.

`@pytest.mark.needs("mpi")` skips a test without mpi; `pytest --require=mpi` makes it fail: a skip
is a hole in the tests. Tests that start jobs get the marker `job` here (job_marker.py).
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import environment
import owned
import slurm as slurm_cluster
from golden import Golden
from job_marker import starts_a_job
from oddrank.marker import plugin
from patience import PATIENCE
from texts import source  # noqa: F401 (a fixture)

pytest_plugins = ["pytester"]

# Ranks under test use the same machine: the time of one example proves nothing.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


# Folder of real dumps and logs, outside this repository.
SAMPLES = Path(
    os.environ.get("ODDRANK_SAMPLES") or Path(__file__).parents[2] / "shared" / "samples"
)


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
    # pip puts programs beside the interpreter.
    more = (os.path.dirname(sys.executable), "/usr/sbin", "/sbin", "/usr/local/cuda/bin")
    return os.pathsep.join([os.environ.get("PATH", os.defpath), *more])


# Everything that tests may need: name -> whether this machine has it.
PROBES: dict[str, Callable[[], bool]] = {
    "torch": _module("torch"),
    "torch-build": _module("oddrank._torch"),
    "other-torch": lambda: "ODDRANK_TEST_OTHER_TORCH" in os.environ,
    "cuda-build": _module("oddrank._cuda"),
    "gpu": _succeeds("nvidia-smi", "-L"),
    "compute-sanitizer": _programs("compute-sanitizer"),
    "greenlet": _module("greenlet"),
    "matplotlib": _module("matplotlib"),
    "tensorboard": _module("tensorboard"),
    "mypy": _module("mypy"),
    "transformers": lambda: None not in map(find_spec, ("transformers", "accelerate")),
    "lightning": _module("lightning"),
    "ray": _module("ray"),
    "kubeflow": _module("kubeflow_trainer_api"),
    "yaml": _module("yaml"),
    "jinja2": _module("jinja2"),
    "chromium": lambda: _programs("chromium", "chromedriver")() and _module("selenium")(),
    "mpi": _succeeds("mpirun", "--version", saying="Open MPI"),
    "hydra": _programs("mpiexec.hydra"),
    "slurm": _programs("slurmctld", "slurmd", "munged", "srun", "sbatch", "scancel"),
    "time-namespace": _succeeds("unshare", "--time", "--fork", "--monotonic", "5", "true"),
    "pid-namespace": _succeeds("unshare", "--pid", "--fork", "true"),
    "netns": _succeeds("unshare", "--net", "ip", "link", "set", "lo", "up"),
    "nft": _programs("nft"),
    "fuse": lambda: os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK),
    "py-spy": _programs("py-spy"),
    "pystack": _programs("pystack"),
    "samples": SAMPLES.is_dir,
    # The package downloads its trace processor; without a network it must be installed.
    "perfetto": lambda: (
        find_spec("perfetto") is not None
        and shutil.which(os.environ.get("TRACE_PROCESSOR_SHELL", "trace_processor_shell"))
        is not None
    ),
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
        "--golden", action="store_true", help="run only tests with golden files; rewrite these"
    )
    parser.addoption(
        "--repeats", type=int, default=1, help="how often a test marked soak repeats its fault"
    )


def pytest_configure(config: pytest.Config) -> None:
    # A shell makes background processes, and their children, ignore Ctrl-C.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if plugin.HERE is None:  # a rank of a test keeps all variables
        worker = getattr(config, "workerinput", {}).get("workerid", "")
        config.add_cleanup(partial(environment.remove, environment.clean(worker)))
        owned.adopt_orphans()
        config.add_cleanup(owned.end)
        _ = PATIENCE.slowness  # measured here, once for all processes
    config.addinivalue_line("markers", f"needs(*names): any of {', '.join(PROBES)}")
    _known(_required(config), "--require")


@pytest.hookimpl(tryfirst=True)  # before pytest reads -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        _known(_needs(item), item.nodeid)
        if starts_a_job(item):
            item.add_marker("job")
        group = _shared_by(item)
        if group and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group))
    left_out = [item for item in items if _is_unasked(item)]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish(session: pytest.Session) -> None:
    # Found with pytest 9.2 and pytest-xdist 3.8: each worker would build a group's shared parts.
    grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
    if session.config.getoption("loadgroup", False) and any("@" not in i.nodeid for i in grouped):
        pytest.exit("this pytest-xdist groups no tests: pip install 'pytest<9.2'", returncode=2)


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    """Sets a limit that grows with the slowness of the machine; all stacks are shown at its end."""
    import pytest_timeout

    settings = settings._replace(timeout=PATIENCE.seconds(settings.timeout))
    pytest_timeout.pytest_timeout_set_timer(item, settings)
    fail: Any = signal.getsignal(signal.SIGALRM)

    def show_and_fail(*how: object) -> None:
        print(owned.stacks(), file=sys.stderr, flush=True)
        fail(*how)

    if callable(fail):
        signal.signal(signal.SIGALRM, show_and_fail)
    return True


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in _needs(item):
        if not is_here(name):
            if name in _required(item.config):
                pytest.fail(f"{name} is required and not here", pytrace=False)
            pytest.skip(f"needs {name}")


@pytest.fixture(autouse=True)
def _on_its_own(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ends the processes that a test leaves, and sets its environment back.

    Processes of fixtures of wider scope, which have begun before, live on.
    """
    if plugin.HERE is not None:
        yield
        return
    # It must have begun before: a test's parameter may ask for it later.
    if any("slurm" in mark.args for mark in request.node.iter_markers("xdist_group")):
        request.getfixturevalue("slurm")
    known = set(owned.below())
    with environment.kept():
        yield
    if ended := owned.end(known):
        request.node.add_report_section("teardown", "processes it left", "\n".join(ended))


@pytest.fixture(scope="session")
def slurm() -> Iterator[slurm_cluster.Cluster]:
    """Starts a SLURM of two nodes; for tests that need slurm and netns."""
    with slurm_cluster.two_nodes() as cluster:
        yield cluster


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares a text for users with its golden file."""
    return Golden(request)


@pytest.fixture
def samples() -> Path:
    """Returns the folder of real dumps and logs, for tests that need samples."""
    return SAMPLES


@pytest.fixture
def repeats(request: pytest.FixtureRequest) -> int:
    """Returns how often a soak test repeats: `make soak REPEATS=20`."""
    return int(request.config.getoption("--repeats"))


def _is_unasked(item: pytest.Item) -> bool:
    """Returns whether -m must name an item, as it takes minutes; or it has no golden file."""
    if item.config.getoption("golden") and "golden" not in getattr(item, "fixturenames", ()):
        return True
    long = [mark for mark in ("soak", "whole_build") if item.get_closest_marker(mark)]
    return bool(long) and not any(mark in item.config.getoption("-m") for mark in long)


def _shared_by(item: pytest.Item) -> str:
    """Names the group of tests that run in one pytest-xdist process, because they share a thing."""
    if item.get_closest_marker("gpu"):
        return "gpu"
    if "slurm" in getattr(item, "fixturenames", ()):
        return "slurm"
    info = getattr(item, "_fixtureinfo", None)
    fixtures = [one for given in info.name2fixturedefs.values() for one in given] if info else []
    shared = {one.argname for one in fixtures if one.scope != "function" and one.baseid}
    return item.nodeid.partition("::")[0] if shared else ""


def _required(config: pytest.Config) -> list[str]:
    return [name for name in config.getoption("--require").split(",") if name]


def _needs(item: pytest.Item) -> list[str]:
    marked = [name for mark in item.iter_markers("needs") for name in mark.args]
    return marked + ["gpu"] * (item.get_closest_marker("gpu") is not None)


def _known(names: list[str], where: str) -> None:
    unknown = sorted(set(names) - set(PROBES))
    if unknown:
        raise pytest.UsageError(f"{where}: {', '.join(unknown)} is none of {', '.join(PROBES)}")
