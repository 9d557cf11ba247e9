"""Runs `nvidia-smi -q`: errors, clocks and processes of all GPUs. It may hang in a driver."""

import shutil
import subprocess

from oddrank.run.collect.sources import Sink, Source, Target


def _work(target: Target, _: object, sink: Sink) -> None:
    program = shutil.which("nvidia-smi")
    if program is None:
        sink.lacks("nvidia-smi -q", "there is no nvidia-smi here", absent=True)
        return
    sink.at("nvidia-smi -q")
    with subprocess.Popen(
        [program, "-q"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        text = process.stdout.read(sink.room)
        process.stdout.close()
    if process.returncode:
        sink.lacks("nvidia-smi -q", f"it exited with {process.returncode}: {_last(text)}")
    if text:
        sink.put("nvidia-smi.txt", text, of="nvidia-smi -q")


def _last(text: bytes) -> str:
    lines = text.decode(errors="backslashreplace").strip().splitlines()
    return lines[-1][:200] if lines else "no output"


SOURCE = Source("nvidia-smi", 15.0, 0.01, _work)
