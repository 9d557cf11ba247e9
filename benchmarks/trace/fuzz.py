"""Reads RUNS changed records and reports crashes, hangs and leaks. For `make fuzz`."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

LARGEST = 16384  # bytes of an input; seeds have 8 to 11 thousand
MEMORY = 1024  # MiB
INTERRUPTED = 72  # libFuzzer's code after SIGINT: its runs until then count
HANG = 1.0  # seconds of CPU time for one input
# Turns off parts of the address sanitizer that cost time and find nothing here.
SANITIZERS = {
    "ASAN_OPTIONS": "malloc_context_size=1:quarantine_size_mb=1:thread_local_quarantine_size_kb=64"
    ":max_malloc_fill_size=0:max_redzone=16",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
READER = re.compile(r"csrc/trace/((?:read|export|nicer)/.*\.cpp)$")


def start(folder: Path, worker: int, runs: int) -> subprocess.Popen[bytes]:
    command = [
        folder / "tests" / "fuzz_reader",
        f"-runs={runs}",
        f"-max_len={LARGEST}",
        f"-rss_limit_mb={MEMORY}",
        "-timeout=60",  # wall time, longer on a busy machine: see hangs()
        "-report_slow_units=1",
        "-entropic=0",
        "-reduce_inputs=0",
        "-reload=0",
        "-print_final_stats=1",
        f"-artifact_prefix={folder}/found/{worker}-",
        folder / "corpus",
        folder / "seeds",
    ]
    log = (folder / f"worker-{worker}.log").open("wb")
    return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **SANITIZERS})


def executed(log: str) -> int:
    """Returns the number of runs of a worker, whether it ended by itself or at a finding."""
    found = re.findall(r"^(?:#(\d+)\t|stat::number_of_executed_units:\s+(\d+))", log, re.MULTILINE)
    return max((int(a or b) for a, b in found), default=0)


def hangs(folder: Path) -> list[str]:
    """Returns the slow inputs that take CPU time; deletes those that only waited for a CPU."""
    slow = []
    for found in sorted((folder / "found").glob("*slow-unit-*")):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run([folder / "tests" / "fuzz_reader", found], capture_output=True, check=False)
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        if seconds > HANG:
            slow.append(found.name)
        else:
            found.unlink()
    return slow


def coverage(folder: Path, corpus: Path) -> dict[str, Any] | None:
    """Returns lines and branches of the reader that the corpus reaches; None without LLVM."""
    program = folder / "tests" / "fuzz_reader"
    tools = {name: shutil.which(name) for name in ("llvm-profdata", "llvm-cov")}
    if not program.exists() or None in tools.values():
        print("no coverage: it takes `make fuzz` and llvm-cov (apt-get install llvm)")
        return None
    raw, merged = folder / "raw", folder / "merged"
    command = [program, "-runs=0", f"-max_len={LARGEST}", corpus]
    environment = {**os.environ, "LLVM_PROFILE_FILE": str(raw)}
    subprocess.run(command, capture_output=True, env=environment, check=True)
    subprocess.run([tools["llvm-profdata"], "merge", raw, "-o", merged], check=True)
    export = [tools["llvm-cov"], "export", "-summary-only", f"-instr-profile={merged}", program]
    output = subprocess.run(export, capture_output=True, text=True, check=True).stdout
    files = {}
    for each in json.loads(output)["data"][0]["files"]:
        if found := READER.search(each["filename"]):
            files[found[1]] = each["summary"]

    def percent(kind: str, names: list[str]) -> float:
        parts = [files[name][kind] for name in names]
        covered, count = (
            sum(part["covered"] for part in parts),
            sum(part["count"] for part in parts),
        )
        return round(100 * covered / count, 1) if count else 100.0

    return {
        "lines": percent("lines", list(files)),
        "branches": percent("branches", list(files)),
        "lines of each file": {name: percent("lines", [name]) for name in sorted(files)},
    }


def main() -> None:
    arguments = harness.parser(str(__doc__))
    arguments.add_argument("folder", type=Path, help="where .ci/build-fuzzer has built it")
    arguments.add_argument("--runs", type=int, default=10_000_000)
    arguments.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    arguments.add_argument("--coverage", type=Path, help="another folder, built for coverage")
    options = arguments.parse_args()
    folder = options.folder.resolve()
    for name in ("corpus", "found", "seeds"):
        (folder / name).mkdir(exist_ok=True)
    subprocess.run([folder / "tests" / "fuzz_seeds", folder / "seeds"], check=True)

    began = time.monotonic()
    each = -(-options.runs // options.workers)
    workers = [start(folder, worker, each) for worker in range(options.workers)]
    codes = [worker.wait() for worker in workers]
    seconds = time.monotonic() - began
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
    logs = [
        (folder / f"worker-{worker}.log").read_text(errors="replace")
        for worker in range(options.workers)
    ]
    runs = sum(map(executed, logs))
    slow = hangs(folder)
    covered = coverage(options.coverage.resolve(), folder / "corpus") if options.coverage else None
    memory = [int(m) for log in logs for m in re.findall(r"peak_rss_mb:\s+(\d+)", log)]
    row = {
        "runs": runs,
        "seconds": round(seconds),
        "runs per second": round(runs / seconds),
        "runs per CPU second": round(runs / (cpu.ru_utime + cpu.ru_stime)),
        "crashes": sum(code not in (0, INTERRUPTED) for code in codes),
        "hangs": len(slow),
        "peak MiB": max(memory, default=0),
        "reader's lines covered %": covered["lines"] if covered else "not measured",
        "reader's branches covered %": covered["branches"] if covered else "not measured",
    }
    more = {"date": date.today().isoformat(), "workers": options.workers}
    harness.report(
        "fuzz", [row], options.json, **more, **({"coverage": covered} if covered else {})
    )
    for code, log in zip(codes, logs, strict=True):
        if code not in (0, INTERRUPTED):
            sys.stderr.write(log[-6000:])
    if row["crashes"] or slow:
        sys.exit(f"found: {sorted(path.name for path in (folder / 'found').iterdir())}")


if __name__ == "__main__":
    main()
