"""`step`, `mark` and `section`: what a training script itself says of where it is.

torch.compile takes step() and mark() along as they are; a section breaks its graph.
"""

from types import ModuleType

from oddrank import _native
from oddrank.trace.after_import import after_import

_core = _native.core()
step = _core.step
mark = _core.mark
section = _core.section


def _let_compile(dynamo_config: ModuleType) -> None:
    dynamo_config.ignore_logging_functions.update((step, mark))


after_import("torch._dynamo.config", _let_compile)
