"""Programs that stop in oddrank.breakpoint(), and `oddrank attach` to them."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import forked
from oddrank.debugger import channel
from oddrank.debugger.channel import Session
from patience import PATIENCE, until
from processes import Marked


class Program:
    """A started program. Its folder holds the sessions of its processes."""

    def __init__(self, folder: Path, popen: "subprocess.Popen[bytes]") -> None:
        self.folder, self.popen = folder, popen

    @property
    def said(self) -> str:
        return (self.folder / "out").read_text(errors="replace")

    def sessions(self) -> list[Session]:
        return channel.sessions([self.folder])

    def waits(self, count: int = 1) -> list[Session]:
        """Waits until processes wait for a debugger."""
        until(lambda: len(self.sessions()) >= count or self.popen.poll() is not None)
        assert len(self.sessions()) == count, self.said[-3000:]
        return self.sessions()

    def ends(self) -> str:
        """Returns what it has printed, once it has ended well."""
        assert self.popen.wait(PATIENCE.limit) == 0, self.said[-3000:]
        return self.said


@contextmanager
def started(folder: Path, command: Sequence[str], **environ: str) -> Iterator[Program]:
    """Starts a program without a terminal; kills what is left of it."""
    mark = Marked()
    with (folder / "out").open("wb") as output:
        popen = forked.popen(
            [sys.executable, *command],
            env={**os.environ, **mark.environ, "ODDRANK_DIR": str(folder), **environ},
            stdout=output, stderr=output,
        )  # fmt: skip
    try:
        yield Program(folder, popen)
    finally:
        mark.kill_all()
        popen.wait(PATIENCE.limit)


def talk(session: Session, typed: str, *, leaves: bool = True) -> str:
    """Debugs without `oddrank attach`; returns what was shown. leaves: closes after the lines."""
    with session.connect() as rank:
        rank.settimeout(PATIENCE.limit)
        rank.sendall(typed.encode())
        if leaves:
            rank.shutdown(socket.SHUT_WR)
        shown = b""
        while more := rank.recv(4096):
            shown += more
    return shown.decode()


def attached(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    """Starts `oddrank attach`."""
    return subprocess.Popen(
        [sys.executable, "-m", "oddrank", "attach", *arguments],
        env={**os.environ, "ODDRANK_DIR": str(folder)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def attach(folder: Path, *arguments: str, typed: str) -> "subprocess.CompletedProcess[str]":
    """Runs `oddrank attach` with these lines typed."""
    with attached(folder, *arguments) as client:
        stdout, stderr = client.communicate(typed, PATIENCE.limit)
    return subprocess.CompletedProcess(client.args, client.returncode, stdout, stderr)
