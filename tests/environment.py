"""The environment that tests run in: nothing that a user's shell has set changes their outcome.

clean() once in each pytest process; kept() around each test.
"""

import os
import re
import shutil
import site
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oddrank.launch.launchers import LAUNCHERS

# Kept: settings of builds, and settings that tests give to tests.
_OURS = r"ODDRANK_(?!CUDA|TORCH|SAMPLES|RANKS_|TEST_).*"
_PYTHONS = r"PYTHON(?!PATH$|HOME$|USERBASE$).*"
_TERMINALS = r"COLUMNS|LINES|TERM|COLORTERM|NO_COLOR|FORCE_COLOR|CLICOLOR.*|PY_COLORS|TTY_.*|LC_.*"
_OTHERS = r"(?:TORCH|NCCL_|MASTER_|SLURM|SBATCH_|SRUN_|OMPI_|PMI|MPI_|HYDRA_|XDG_).*|PYTEST_ADDOPTS"
_RANKS = "|".join(
    name
    for row in LAUNCHERS
    for names in (row.mark, row.rank, row.world, row.local_rank, row.local_world, row.node)
    for name in names.split()
)
_REMOVED = re.compile("|".join((_OURS, _PYTHONS, _TERMINALS, _OTHERS, _RANKS, "LANGUAGE")))
# Names the folder of the run, for the workers of pytest-xdist.
_RUN = "ODDRANK_TEST_FOLDER"


def clean(worker: str = "") -> Path:
    """Cleans this process's environment; returns the folder to remove at its end.

    worker: this process's name, of pytest-xdist. HOME and TMPDIR become folders of the process,
    with short paths: a socket's has at most 107 bytes.
    """
    found = dict(os.environ)
    for variable in filter(_REMOVED.fullmatch, found):
        del os.environ[variable]
    short = "/tmp" if os.access("/tmp", os.W_OK | os.X_OK) else tempfile.gettempdir()
    run = Path(found[_RUN] if worker else tempfile.mkdtemp(prefix="odd-", dir=short))
    temporary = run / (worker or "t")
    home = run / f"{temporary.name}.home"
    temporary.mkdir()
    home.mkdir()
    for variable, value in _kept_places(found).items():
        os.environ.setdefault(variable, value)
    # Folders of tests (tmp_path) stay after the run, to look into failures.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", short)
    places = {"HOME": home, "TMPDIR": temporary, _RUN: run}
    os.environ |= {"LANG": "C.UTF-8", **{name: str(place) for name, place in places.items()}}
    tempfile.tempdir = None  # it remembers TMPDIR
    os.umask(0o022)
    return temporary if worker else run


def remove(folder: Path) -> None:
    """Removes the folder that clean() returned."""
    shutil.rmtree(folder, ignore_errors=True)


def _kept_places(found: dict[str, str]) -> dict[str, str]:
    """Returns variables that let programs find slow-to-make files of the user's home."""
    home = found.get("HOME") or "/"
    cache = found.get("XDG_CACHE_HOME") or f"{home}/.cache"
    config = found.get("XDG_CONFIG_HOME") or f"{home}/.config"
    files = {
        "CCACHE_DIR": [f"{home}/.ccache", f"{cache}/ccache"],
        "GIT_CONFIG_GLOBAL": [f"{home}/.gitconfig", f"{config}/git/config"],
        "PIP_CONFIG_FILE": [f"{config}/pip/pip.conf", f"{home}/.pip/pip.conf"],
    }
    there = {name: next(filter(os.path.exists, paths), "") for name, paths in files.items()}
    return {
        "MPLCONFIGDIR": f"{cache}/matplotlib",
        "PIP_CACHE_DIR": f"{cache}/pip",
        "PYTHONUSERBASE": site.getuserbase(),
        **{name: path for name, path in there.items() if path},
    }


@contextmanager
def kept() -> Iterator[None]:
    """Restores the environment at the end."""
    before = dict(os.environ)
    yield
    for name in {*os.environ, *before} - {"PYTEST_CURRENT_TEST"}:  # which pytest sets itself
        if name not in before:
            del os.environ[name]
        elif os.environ.get(name) != before[name]:
            os.environ[name] = before[name]
