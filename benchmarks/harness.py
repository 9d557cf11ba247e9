"""Shared by all benchmarks: paired repetitions, ratios with spread, machine facts, --json FILE.

Takes a ratio within each repetition, between runs that follow each other: a slow minute of the
machine affects both sides. The table shows min, median and max of these ratios.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

REPETITIONS = 7


def machine() -> dict[str, Any]:
    """Returns facts to judge the figures by; no host name."""
    cpu = ""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def torchrun(ranks: int, arguments: Sequence[str], timeout: float) -> str:
    """Runs torchrun on the CPU; returns its output. Fails if torchrun does."""
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [*run, *arguments], check=True, timeout=timeout, env=environ, stdout=subprocess.PIPE,
        text=True,
    ).stdout  # fmt: skip


def spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "min": min(values),
        "median": statistics.median(values),
        "max": max(values),
    }


def paired(
    sides: Mapping[str, Callable[[], float]], repetitions: int = REPETITIONS
) -> dict[str, list[float]]:
    """Runs all sides once per repetition, in alternating order; returns each side's figures."""
    figures: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for repetition in range(repetitions):
        for name in names if repetition % 2 == 0 else reversed(names):
            figures[name].append(sides[name]())
    return figures


def ratio(over: Sequence[float], under: Sequence[float]) -> dict[str, float]:
    """Returns the spread of over/under, repetition by repetition."""
    return spread([a / b for a, b in zip(over, under, strict=True)])


def rates(once: Callable[[], Mapping[str, float]], repetitions: int, *sides: str) -> dict[str, Any]:
    """Returns the spread of each of a GPU's rates, and of these sides' over the copy's."""
    once()  # makes the context, raises the clocks
    runs = [once() for _ in range(repetitions)]
    figures = {name: [run[name] for run in runs] for name in runs[0]}
    found: dict[str, Any] = {f"{name} GB/s": spread(values) for name, values in figures.items()}
    return found | {f"{side} / copy": ratio(figures[side], figures["copy"]) for side in sides}


def parser(question: str, default_repetitions: int = REPETITIONS) -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(description=question)
    arguments.add_argument("--json", metavar="FILE", help="write the figures here, - for stdout")
    arguments.add_argument("--repetitions", type=int, default=default_repetitions)
    return arguments


def report(name: str, rows: Sequence[Mapping[str, Any]], file: str | None, **more: Any) -> None:
    """Prints `rows` (scalars, or spreads as min/median/max) as a table and writes them as JSON."""
    if file != "-":
        _print_table(rows)
    if file is not None:
        write(name, rows, file, **more)


def write(name: str, rows: Sequence[Mapping[str, Any]], file: str, **more: Any) -> None:
    """Writes the same as `report`, without the table."""
    text = json.dumps(
        {"benchmark": name, "machine": machine(), **more, "rows": list(rows)}, indent=1
    )
    if file == "-":
        print(text)
        return
    temporary = Path(file + ".new")
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(file)


def end(main: Callable[[], None], name: str) -> None:
    """Runs a benchmark of a GPU and exits. A missing part ends it with one line, not a traceback.

    Exit codes: 0 done; 2 it could not run. An error of its own keeps its traceback.
    """
    from oddrank import OddrankError

    try:
        main()
    except OddrankError as error:
        sys.exit(_told(name, error, error.exit_code))
    except subprocess.TimeoutExpired as error:
        sys.exit(_told(name, f"{error.cmd[0]} did not end within {error.timeout:g} s", 2))


def _told(name: str, error: object, code: int) -> int:
    print(f"{name}: {error}", file=sys.stderr)
    return code


def rows_of(text: str) -> list[dict[str, Any]]:
    """Returns the rows that a part of a benchmark has reported to stdout."""
    rows: list[dict[str, Any]] = json.loads(text[text.index("{") :])["rows"]
    return rows


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        return " / ".join(f"{value[key]:.3g}" for key in ("min", "median", "max"))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [columns, *([_cell(row.get(column, "")) for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        sys.stdout.write(text.rstrip() + "\n")
