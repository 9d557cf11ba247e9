"""Runs `oddrank trace` as a user types it."""

import os
import subprocess
import sys


def oddrank(*arguments, folder, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "oddrank", "trace", *map(str, arguments)],
        env={**os.environ, "ODDRANK_DIR": str(folder)},
        capture_output=True, text=True, timeout=60, check=False, cwd=cwd,
    )  # fmt: skip
