"""pytest's plugin: `@pytest.mark.ranks(4)` runs a test in 4 processes, the ranks of a job.

Every pytest loads this module. It imports nothing but pytest, and does nothing until a test has the
marker. PYTEST_DONT_REWRITE: no test is in here.
"""

import importlib
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pytest

_DEADLINE = 60.0
_MOST_RANKS = 1024
_KNOWN = ("n", "deadline", "fresh")
_LONGER = 60.0  # seconds: torch gives up that long after the deadline, so the verdict comes first


class Ranks:
    """The fixture `ranks`: this process's place among the ranks of its test.

    rank, world: as torch says them. folder: an empty folder that all ranks of the test share, while
    tmp_path is another one in each rank. deadline: seconds that the whole test may take.
    """

    def __init__(self, rank: int, world: int, folder: str, deadline: float) -> None:
        self.rank, self.world = rank, world
        self.folder, self.deadline = Path(folder), deadline

    @cached_property
    def device(self) -> str:
        """cuda:<rank> if torch sees a GPU for each rank, else cpu."""
        try:
            cuda = importlib.import_module("torch").cuda
        except ImportError:
            return "cpu"
        return f"cuda:{self.rank}" if cuda.device_count() >= self.world else "cpu"

    @cached_property
    def store(self) -> Any:
        """A torch.distributed.Store that all ranks of the test share; rank 0 serves it."""
        import os
        from datetime import timedelta

        dist = _torch_distributed("ranks.store")
        server = dist.TCPStore(
            os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), self.world,
            is_master=self.rank == 0, timeout=timedelta(seconds=self.deadline + _LONGER),
            wait_for_workers=False, multi_tenant=True,
        )  # fmt: skip
        return dist.PrefixStore("oddrank", server)

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.world}>"


_warned: list[pytest.Mark] = []
HERE: Ranks | None = None
"""Set in the processes that are ranks."""


def _torch_distributed(what: str) -> Any:
    try:
        return importlib.import_module("torch.distributed")
    except ImportError:
        pytest.fail(f"{what} takes torch: pip install torch", pytrace=False)


@pytest.fixture
def ranks(request: pytest.FixtureRequest) -> Ranks:
    """This process's rank, world, device, store and folder, under @pytest.mark.ranks."""
    if HERE is None:
        mark = request.node.get_closest_marker("ranks")
        unknown = ", ".join(name for name in (mark.kwargs if mark else ()) if name not in _KNOWN)
        text = "mark the test with a number of ranks: @pytest.mark.ranks(2)"
        if unknown:
            text = f"unknown argument {unknown} in @pytest.mark.ranks: it takes {', '.join(_KNOWN)}"
        elif mark:
            text = "@pytest.mark.ranks: write ranks(4) or ranks(4, deadline=60, fresh=True)"
        pytest.fail(text, pytrace=False)
    return HERE


@pytest.fixture
def process_group(ranks: Ranks) -> Iterator[Any]:
    """torch.distributed's default group of all ranks: nccl if each has a GPU, else gloo."""
    from datetime import timedelta

    dist = _torch_distributed("process_group")
    on_gpu = ranks.device != "cpu" and dist.is_nccl_available()
    if on_gpu:
        importlib.import_module("torch").cuda.set_device(ranks.device)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
        store=ranks.store,
        rank=ranks.rank,
        world_size=ranks.world,
        timeout=timedelta(seconds=ranks.deadline + _LONGER),
    )
    yield dist.group.WORLD
    if dist.is_initialized():
        dist.destroy_process_group()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("ranks_deadline", "seconds that a test marked ranks may take", default="60")
    parser.addini(
        "ranks_fresh", "start ranks as fresh interpreters, not as forks", "bool", default=False
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "ranks(n, deadline=60, fresh=False): run the test in n processes with the fixtures ranks"
        " and process_group; if it fails or hangs, oddrank says which rank began it",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Lets the ranks set the test up, run it and tear it down; this process sets up nothing."""
    mark = item.get_closest_marker("ranks") if HERE is None else None
    if mark is not None and isinstance(item, pytest.Function) and _is_ours(mark):
        changed: Any = item
        changed.setup = changed.teardown = lambda: None
        changed.runtest = partial(_run, item, mark)


def _is_ours(mark: pytest.Mark) -> bool:
    """Returns whether a mark has the form of ours; warns once of another, also under -W error."""
    known = {*_KNOWN}.issuperset(mark.kwargs) and len(mark.args) < 3
    if known and isinstance(next(iter(mark.args), mark.kwargs.get("n")), int):
        return True
    if not _warned:
        _warned.append(mark)
        text = "a mark `ranks` is none of oddrank's, ranks(4, deadline=60): its test runs as always"
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(pytest.PytestWarning(text), stacklevel=2)
    return False


def pytest_unconfigure() -> None:
    import sys

    if HERE is None and (start := sys.modules.get("oddrank.marker.rank_start")):
        start.end_helpers()


def _run(item: pytest.Function, mark: pytest.Mark) -> None:
    count, deadline, fresh = _arguments(item, *mark.args, **mark.kwargs)
    # Imported here: a pytest without such tests never loads it.
    from oddrank.marker import failure, rank_group

    group = rank_group.RankGroup(item, count, deadline, fresh)
    group.run()
    failure.conclude(item, group)


def _arguments(
    item: pytest.Function, n: Any, deadline: Any = None, *, fresh: Any = None
) -> tuple[int, float, bool]:
    """Checks the arguments of the marker. Returns ranks, deadline, and whether they are fresh."""
    if fresh is None:
        fresh = item.config.getini("ranks_fresh")
    if deadline is None:
        deadline = item.config.getini("ranks_deadline")
        with suppress(ValueError):
            deadline = float(deadline)
    good_count = not isinstance(n, bool) and 1 <= n <= _MOST_RANKS
    good_deadline = isinstance(deadline, int | float) and 0 < deadline < 1e7
    if not good_count or not good_deadline or not isinstance(fresh, bool):
        pytest.fail(
            f"@pytest.mark.ranks: write ranks(4) or ranks(4, deadline={_DEADLINE:g}, fresh=True),"
            f" with 1 to {_MOST_RANKS} ranks and seconds above 0",
            pytrace=False,
        )
    return n, float(deadline), fresh
