"""Runs a long command and prints its progress every few seconds: progress.py LOG COMMAND...

The command's output goes to the file LOG. If the command fails, prints the end of LOG.
"""

import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

EVERY = 5.0  # seconds
TAIL = 60  # lines
# Ninja: "[12/80] Building CXX object a/b.cpp.o"; make: "[ 15%] Building ..."; then pip's lines.
COMPILES = re.compile(r"\s*\[\s*(\d+)(?:/(\d+)|%)\] (?:Building|Linking)")
PIP = re.compile(r"\s*((?:Collecting|Downloading|Preparing|Installing|Building) .*)")


class Progress:
    """Follows the command's output and keeps its last step."""

    def __init__(self) -> None:
        self.last = "started"

    def read(self, output: IO[str], log: Path) -> None:
        with log.open("w", encoding="utf-8") as file:
            for line in output:
                file.write(line)
                file.flush()
                if found := COMPILES.match(line):
                    self.last = f"compiled {found[1]}" + (f" of {found[2]}" if found[2] else " %")
                elif found := PIP.match(line):
                    self.last = found[1].strip()[:80]


def main() -> int:
    log, command = Path(sys.argv[1]), sys.argv[2:]
    log.parent.mkdir(parents=True, exist_ok=True)
    began, progress = time.monotonic(), Progress()
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    reader = threading.Thread(target=progress.read, args=(running.stdout, log))
    reader.start()
    while reader.is_alive():
        reader.join(EVERY)
        if reader.is_alive():
            print(f"  {time.monotonic() - began:.0f} s: {progress.last}", flush=True)
    if running.wait():
        print(*log.read_text(encoding="utf-8").splitlines()[-TAIL:], sep="\n", file=sys.stderr)
        print(f"oddrank: failed: {' '.join(command)}\nIts output is in {log}", file=sys.stderr)
    return running.returncode


if __name__ == "__main__":
    sys.exit(main())
