"""Runs `oddrank collect` as a user types it, and jobs of one process for it to collect."""

import json
import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from patience import PATIENCE
from processes import captured

KILLED = (
    "import os, signal\nimport oddrank\noddrank.arm()\noddrank.step(5)\n"
    "def work():\n    value = 1\n    os.kill(os.getpid(), signal.SIGKILL)\nwork()\n"
)
RANK = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
JOB = "127.0.0.1_29500"


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "oddrank", "collect", "--deadline", "600", *map(str, arguments)]


def environ(records: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    return {**os.environ, "ODDRANK_DIR": str(records), **(more or {})}


def collect(
    *arguments: object, records: Path, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return captured(command(*arguments), env=environ(records, more), limit=PATIENCE.seconds(600))


def killed_job(records: Path) -> Path:
    """Makes the record of a process that was killed; returns the folder of its job."""
    captured([sys.executable, "-c", KILLED], env=environ(records, RANK))
    return records / JOB


@contextmanager
def process(program: str, more: Mapping[str, str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Runs a program that prints a line when it is ready, until the context ends."""
    running = subprocess.Popen(
        [sys.executable, "-c", program], env=environ(folder / "records", more), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert running.stdout is not None
        assert running.stdout.readline()
        yield running
    finally:
        running.kill()
        running.communicate()


def node(out: Path) -> Path:
    """Returns the folder of the only node that was collected."""
    (found,) = out.glob("*/*/manifest.json")
    return found.parent


def manifest(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((node(out) / "manifest.json").read_text())
    return found


def lacks(out: Path) -> dict[str, str]:
    """Returns what was not read, and why."""
    return {one["what"]: one["why"] for one in manifest(out)["not_read"]}


def names(out: Path) -> set[str]:
    """Returns the names of the files of the only node."""
    return {path.name for path in node(out).rglob("*") if path.is_file()}


class Ras(socketserver.StreamRequestHandler):
    """Speaks NCCL's text protocol."""

    def handle(self) -> None:
        for reply in self.server.replies:
            self.server.asked.append(self.rfile.readline())
            if not self.server.asked[-1] or not reply:
                return
            self.wfile.write(self.server.others.get(self.server.asked[-1], reply))


@contextmanager
def ras_server(
    answer: bytes,
    hello: bytes = b"SERVER PROTOCOL 2\n",
    diagnostics: bytes = b"ERROR: Unknown command diagnostics\n",
) -> Iterator[tuple[str, list]]:
    """Serves NCCL's text protocol; yields its address and what it was asked."""
    with socketserver.TCPServer(("127.0.0.1", 0), Ras) as server:
        server.replies, server.asked = (hello, b"OK\n", answer), []
        server.others = {b"diagnostics\n": diagnostics}
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}", server.asked
        finally:
            server.shutdown()
