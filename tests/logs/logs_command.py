"""Runs `oddrank logs`, and makes logs of many ranks."""

import json
import subprocess
import sys
from pathlib import Path

import processes
from patience import PATIENCE


def typed(*arguments, check=0):
    """Runs `oddrank logs ...` as a process; check: the exit code that it must have."""
    command = [sys.executable, "-m", "oddrank", "logs", *map(str, arguments)]
    done = processes.captured(command)
    assert done.returncode == check, done.stdout + done.stderr
    return done


def oddrank(*arguments, check):
    """Runs `oddrank logs ...` in this process; check: as above."""
    done = processes.typed("logs", *arguments)
    assert done.returncode == check, done.stdout + done.stderr
    return done


def output(folder, command, *arguments, script, check=False, **more):
    """Runs a script under a launcher; returns the log of all its output."""
    path, log = written(folder / "train.py", script), folder / "job.log"
    with log.open("wb") as file:
        subprocess.run([*command, path, *arguments], stdout=file, stderr=file,
                       timeout=PATIENCE.job, check=check, **more)  # fmt: skip
    return log


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
