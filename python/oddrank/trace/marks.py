"""`step`, `mark` and `section`: a training script reports its own progress.

torch.compile keeps step() and mark() in its graph; a section breaks the graph.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType
from typing import SupportsIndex

from oddrank import _native
from oddrank.trace.collectives import after_import

_core = _native.core()
step: Callable[[SupportsIndex], None] = _core.step
mark: Callable[[str], None] = _core.mark
section: "Callable[[str], AbstractContextManager[object, None]]" = _core.section


def _let_compile(dynamo_config: ModuleType) -> None:
    dynamo_config.ignore_logging_functions.update((step, mark))


after_import("torch._dynamo.config", _let_compile)
