"""Measures the page of `oddrank triage --html` for large jobs: its size, and how fast it opens.

    python benchmarks/page/open_page.py --json benchmarks/results/page_open.json

Opens each page in headless Chromium (chromium and chromium-driver of Debian, selenium of PyPI).
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oddrank import page
from oddrank.inputs import Notes
from oddrank.triage import report
from oddrank.triage.facts import (
    Call,
    Death,
    Fact,
    Frame,
    Group,
    Identity,
    Process,
    Progress,
    Source,
    Stack,
    Thread,
    World,
)

# Ranks and, of each, its process groups.
SIZES = ((16, 1), (1024, 1), (10240, 1), (10240, 20))
ON_NODE = 8
_NOW = 1_700_000_000.0
# A page is drawn once the browser has shown a frame after its script.
_DRAWN = """
const done = arguments[arguments.length - 1];
requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));
"""


def big_job(ranks: int, groups: int = 1) -> report.Triage:
    """Returns a judged job in which one rank waits for data, and all others wait for it.

    groups: of each rank. All ranks are in the first; members of the others, of 8 ranks each, have
    come unequally far.
    """
    stuck = ranks // 2 + 1
    source = Source("records", 1)
    group = Group("0", tuple(range(ranks)), "default_pg")
    main = (Frame("train", "train.py", 40), Frame("<module>", "train.py", 99))
    waits = (Frame("all_reduce", "torch/distributed/distributed_c10d.py", 3252), *main)
    loads = (Frame("get", "queue.py", 179), Frame("next_batch", "data.py", 17), *main)
    facts: list[Fact] = [World(ranks, source)]
    processes = [Process(r, f"node{r // ON_NODE:04}", 1000 + r % ON_NODE) for r in range(ranks)]
    for process in processes:
        rank = process.rank or 0
        since = _NOW - 60 - rank / ranks
        open_ = () if rank == stuck else (Call(6, "all_reduce", state="started", since=since),)
        facts.append(Identity(process, source))
        facts.append(
            Progress(
                process, group, source, "gloo", 5 if rank == stuck else 6, 5, open_,
                len(open_), True, _NOW,
            )
        )  # fmt: skip
    for number in range(1, groups):
        for first in range(0, ranks, 8):
            small = Group(str(number), tuple(range(first, first + 8)), f"TENSOR_PARALLEL_{number}")
            for rank in small.ranks:
                done = 1000 + (rank * 7 + number) % 11
                facts.append(
                    Progress(processes[rank], small, source, "gloo", done, done, time=_NOW)
                )
    others = tuple(Thread(p, "MainThread", source=source) for p in processes if p.rank != stuck)
    facts.append(Stack(waits, others))
    facts.append(Stack(loads, (Thread(processes[stuck], "MainThread", source=source),)))
    facts.append(Death(processes[0], "signal", source, _NOW, signal=6, by="watchdog"))
    return report.judge({"": facts}, [], Notes(), {})


@contextmanager
def browser() -> Iterator[Any]:
    """Starts headless Chromium, which keeps all messages of its console."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for word in ("headless=new", "disable-gpu", "disable-dev-shm-usage", "window-size=1200,1600"):
        options.add_argument(f"--{word}")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.binary_location = shutil.which("chromium") or ""
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        driver.set_page_load_timeout(60)
        driver.set_script_timeout(60)
        yield driver
    finally:
        driver.quit()


def open_seconds(driver: Any, file: Path) -> float:
    """Returns the seconds from the start of loading a page until it is drawn."""
    driver.get(file.as_uri())
    return float(driver.execute_async_script(_DRAWN)) / 1000


def measure(driver: Any, ranks: int, groups: int, folder: Path) -> dict[str, float]:
    found = big_job(ranks, groups)
    file = folder / f"{ranks}-{groups}.html"
    began = time.perf_counter()
    page.write(report.made(found), report.parts(found), str(file))
    wrote = time.perf_counter() - began
    times = sorted(open_seconds(driver, file) for _ in range(5))
    return {
        "ranks": ranks,
        "groups": groups,
        "megabytes": round(file.stat().st_size / 1e6, 3),
        "write_seconds": round(wrote, 2),
        "open_seconds": round(times[2], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="file for the figures")
    json_file = parser.parse_args().json
    with tempfile.TemporaryDirectory() as folder, browser() as driver:
        rows = [measure(driver, *size, Path(folder)) for size in SIZES]
    for row in rows:
        print(row)
    if json_file is not None:
        json_file.write_text(json.dumps({"pages": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
