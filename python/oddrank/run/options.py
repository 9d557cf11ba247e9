"""How to watch a job: the options of `oddrank run` and of `oddrank.arm(watch=True)`."""

import os
from dataclasses import dataclass, replace
from typing import Literal, get_args

from oddrank.collect import OUTPUT

STALL = 60.0
"""Seconds without any progress that are a stall, by default."""
Action = Literal["report", "collect", "kill"]
REPORT, COLLECT, KILL = ACTIONS = get_args(Action)
"""Actions at a stall: say it; save the evidence, too; then end all ranks."""


@dataclass(frozen=True)
class Options:
    """How to watch a job, as the options of `oddrank run`."""

    stall: float
    json: str | None = None
    exclude: str | None = None
    """The file for the nodes to leave out."""
    history: str | None = None
    """The folder of this training's attempts."""
    on_stall: Action = COLLECT
    output: str = OUTPUT
    report_every: float | None = None
    """Seconds between two reports of late ranks; None: none."""
    html: str | None = None
    on_verdict: str | None = None
    prometheus: str | None = None

    def absolute(self) -> "Options":
        """Returns them with paths that hold in another working directory."""
        names = ("json", "exclude", "history", "output", "html", "prometheus")
        paths = {name: os.path.abspath(path) for name in names
                 if (path := getattr(self, name)) is not None}  # fmt: skip
        return replace(self, **paths)
