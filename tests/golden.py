"""Golden files: texts for users that `make golden` rewrites, for a reviewer to read as a diff."""

import difflib
import re
from pathlib import Path

import pytest


class Golden:
    """The fixture `golden`: compares texts with files in the folder golden/ beside the test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        name = re.sub(r"[^\w=.-]+", "-", request.node.name).strip("-")
        self._folder = request.path.parent / "golden"
        self._name = f"{request.path.stem.removeprefix('test_')}.{name.removeprefix('test_')}"
        self._rewrites = bool(request.config.getoption("--golden"))

    def __call__(self, text: str, name: str = "") -> None:
        """Fails unless `text` is the file's content; `name` distinguishes files of one test."""
        file = Path(self._folder, f"{self._name}{'.' * bool(name)}{name}.txt")
        text = text.rstrip("\n") + "\n"
        if self._rewrites:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        known = "(no such file: make golden)\n"
        if file.exists():
            known = file.read_text(encoding="utf-8")
        if text != known:
            diff = difflib.unified_diff(known.splitlines(), text.splitlines(), lineterm="", n=1)
            right = f"{file.name}: if the new text is right, `make golden` keeps it"
            pytest.fail("\n".join([right, *diff]), pytrace=False)
