"""Records the Python programs that a script under `oddrank run` starts, if they import torch.

Python imports this module when it starts, as `oddrank run` puts its folder into PYTHONPATH. It runs
the sitecustomize that it hides, and waits until the program imports torch.distributed, as torch
itself does. Any Python 3 may run it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec

_FOLDER = os.path.dirname(__file__)


class _Watch:
    """Finds nothing; sees that torch.distributed is looked for."""

    saw = False

    @classmethod
    def find_spec(cls, name: str, *_: object) -> ModuleSpec | None:
        # Stays in sys.meta_path: importlib is walking the list.
        if name == "torch.distributed" and not cls.saw:
            cls.saw = True
            with suppress(Exception):  # the program goes on without a record
                from oddrank.run.script import record_program

                record_program()
        return None


sys.meta_path.insert(0, _Watch)
# The sitecustomize of the user, or of the distribution.
_spec = PathFinder.find_spec("sitecustomize", [path for path in sys.path if path != _FOLDER])
if _spec is not None and _spec.loader is not None:
    _spec.loader.exec_module(module_from_spec(_spec))
