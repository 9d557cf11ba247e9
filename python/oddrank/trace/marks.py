"""`step`, `mark` and `section`: what a training script itself says of where it is."""

from oddrank import _native

_core = _native.core()
step = _core.step
mark = _core.mark
section = _core.section
