"""Measures the cost of an event, beside an empty C hook and other tools, on this Python.

Needs a C compiler; includes coverage, hunter and viztracer if they are installed. Each figure comes
from its own process; ratios compare the time that a tool adds per event, within a repetition.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

HERE = Path(__file__).parent
NEW = sys.version_info >= (3, 12)
HOOK = "monitoring" if NEW else "trace"
# (Our side, workload) -> other tools to measure. viztracer sees calls only.
OTHERS = {
    ("oddrank", "lines"): (HOOK, "stdlib", "coverage", "hunter"),
    ("oddrank", "calls"): (HOOK, "coverage", "hunter", "viztracer", "oddrank-calls"),
    ("oddrank", "excluded"): ("profile", "coverage"),
    ("oddrank", "excluded-json"): ("profile", "coverage"),
}


def build_empty_hook(folder: str) -> None:
    include = sysconfig.get_path("include")
    target = os.path.join(folder, "empty_hook" + sysconfig.get_config_var("EXT_SUFFIX"))
    command = ["cc", "-O2", "-shared", "-fPIC", "-w", f"-I{include}", str(HERE / "empty_hook.c")]
    subprocess.run([*command, "-o", target], check=True)


def measure(tool: str, workload: str, folder: str) -> float:
    done = subprocess.run(
        [sys.executable, str(HERE / "one_side.py"), tool, workload, folder],
        env={**os.environ, "COVERAGE_CORE": "ctrace"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return float(done.stdout)


def rows_of(our_side: str, workload: str, repetitions: int, folder: str) -> list[dict[str, object]]:
    tools = [
        tool
        for tool in OTHERS[our_side, workload]
        if tool not in ("coverage", "hunter", "viztracer") or find_spec(tool)
    ]
    sides = {tool: partial(measure, tool, workload, folder) for tool in ("none", our_side, *tools)}
    figures = harness.paired(sides, repetitions)
    rows: list[dict[str, object]] = []
    base, ours = figures["none"], figures[our_side]
    for tool, theirs in figures.items():
        row: dict[str, object] = {"workload": workload, "tool": tool, "ns": harness.spread(theirs)}
        row["slowdown"] = harness.ratio(theirs, base)
        if tool not in ("none", our_side) and not workload.startswith("excluded"):
            added = [t - b for t, b in zip(theirs, base, strict=True)]
            row["ours/theirs added"] = harness.ratio(
                [o - b for o, b in zip(ours, base, strict=True)], added
            )
        if workload.startswith("excluded") and tool in ("profile", "trace"):
            row["ours/theirs"] = harness.ratio(ours, theirs)
        rows.append(row)
    return rows


def main() -> None:
    arguments = harness.parser(__doc__ or "").parse_args()
    with tempfile.TemporaryDirectory() as folder:
        build_empty_hook(folder)
        rows = [row for side in OTHERS for row in rows_of(*side, arguments.repetitions, folder)]
    harness.report("event_cost", rows, arguments.json, hook=HOOK)


if __name__ == "__main__":
    main()
