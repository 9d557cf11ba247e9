"""The fixture that starts jobs and removes everything they leave."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from control.ranks import Ranks
from processes import held_port


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Callable[..., Ranks]]:
    """`job(world, inject=..., ...)`: see Ranks."""
    jobs: list[Ranks] = []

    def start(world: int, **options: Any) -> Ranks:
        folder = tmp_path / f"job{len(jobs)}"
        folder.mkdir()
        jobs.append(Ranks(folder, world, **options))
        return jobs[-1]

    yield start
    for one in jobs:
        one.clear()


@pytest.fixture
def port() -> Iterator[int]:
    with held_port() as port:
        yield port
