"""Runs `oddrank trace`, and makes its output plain."""

import re
import socket

from processes import typed


def oddrank(*arguments, folder, cwd=None):
    return typed("trace", *arguments, cwd=cwd, ODDRANK_DIR=str(folder))


def plain(text, **folders):
    """Returns the text without hosts, pids, sizes and times; folders have the names given."""
    for name, folder in folders.items():
        text = text.replace(str(folder), name)
    for pattern, shown in (
        (rf"\b{re.escape(socket.gethostname())}\b", "HOST"),
        (r"\bpids? \d[\d, -]*\d\b", "pid PID"),
        (r"(rank|child)(\d+)-\d+-\d+\.trace", r"\1\2-PID-START.trace"),
        (r"\d{4}-\d\d-\d\d ", ""),
        (r"\b\d\d:\d\d(:\d\d)?(\.\d+)?\b", "TIME"),
        (r"\bwrote \d+ events\b(.*)\([\d.]+ K?i?B\)", r"wrote N events\1(N KiB)"),
    ):
        text = re.sub(pattern, shown, text)
    return text


def transcript(commands, *, folder, cwd, **folders):
    """Types a command a line, with {names} of folders; returns the user's view, made plain."""
    said = []
    for command in commands.strip().splitlines():
        done = oddrank(*command.strip().format(**folders).split(), folder=folder, cwd=cwd)
        errors = "".join(f"! {line}\n" for line in done.stderr.splitlines())
        said.append(f"$ {command.strip()}\n{done.stdout}{errors}exit code {done.returncode}\n")
    return plain("\n".join(said), **folders)
