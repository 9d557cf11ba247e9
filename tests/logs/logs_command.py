"""Runs `oddrank logs`, and makes logs of many ranks."""

import contextlib
import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from oddrank import cli
from processes import captured


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def typed(*arguments, check=0):
    """Runs `oddrank logs ...` as a process; check: the exit code that it must have."""
    command = [sys.executable, "-m", "oddrank", "logs", *map(str, arguments)]
    done = captured(command)
    assert done.returncode == check, done.stdout + done.stderr
    return done


def oddrank(*arguments, check):
    """Runs `oddrank logs ...` in this process; what is written to descriptors is not seen."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        code = cli._run(["logs", *map(str, arguments)])
    assert code == check, stdout.getvalue() + stderr.getvalue()
    return Done(code, stdout.getvalue(), stderr.getvalue())


def report(*arguments, check=0):
    """Returns the report of a command."""
    return json.loads(oddrank(*arguments, "--json", "-", check=check).stdout)


def shown(done, folder):
    """Returns what a command showed; folder: left out of places."""
    text = "".join(f"  {line}\n" for line in (done.stdout + done.stderr).splitlines())
    return text.replace(f"{folder}/", "").replace(str(folder), "FOLDER")


def stamp(second: float) -> str:
    return f"2026-01-01 00:{int(second) // 60:02}:{second % 60:06.3f}"


def written(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path
