"""Runs the parts of `make gpu-check`, the most valuable first, each within its own time limit.

    gpu_check.py FOLDER [--parts LIST] [--limit SECONDS] [--dry]

FOLDER gets the output, report or JUnit file of each part and summary.json; FOLDER.tar.gz has them
all. A part that fails does not keep the next ones from running. --dry runs the same commands
without a GPU, with fakes in its place (tests/dry_gpu.py), to prove the scripts, paths and files.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# Seconds that any part may take: a lease's command has ten minutes.
MOST = 540
# Exit codes: pytest's of a run without failures, and a benchmark's that could not run.
OK, NOT_RUN = 0, 2
ENOUGH_LINES = 12

GPU_TESTS = ("-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider")
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "{gpus}", "-m", "oddrank")
VALUES = (
    "tests/bench/test_verify_gpu.py",
    "tests/bench/test_native_gpu.py",
)
JOBS = "tests/selftest/test_gpu.py"
KERNELS = "tests/package/test_every_kernel.py"
MARKED = re.compile(r"pytest\.mark\.gpu\b")


@dataclass(frozen=True)
class Part:
    """commands: arguments of Python; {out}, {gpus} and {tests} are filled in. report: an oddrank
    report whose verdict must be healthy. least: seconds below which it is not worth a start."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    limit: int = MOST
    least: int = 30
    report: str = ""


def _tests(name: str, *files: str, needs: str = "") -> tuple[str, ...]:
    return (*GPU_TESTS, "{require}" + needs, f"--junitxml={{out}}/{name}.xml", *files)


def _benchmark(name: str) -> tuple[str, ...]:
    return ("{benchmark}", f"benchmarks/gpu/{name}.py", "--json", f"{{out}}/{name}.json")


def _sweep(backend: str, name: str) -> tuple[str, ...]:
    run = (*TORCHRUN, "bench", "run", "--backend", backend, "--collectives",
           "all_reduce,all_gather,reduce_scatter", "--sizes", "{sizes}")  # fmt: skip
    return (*run, "--budget", "{budget}", "--json", f"{{out}}/{name}.json")


# The CUDA context of another part's process would look like a foreign process to the self-test:
# each command is a process of its own.
PARTS = (
    Part("doctor", (("-m", "oddrank", "doctor", "--json", "{out}/doctor.json"),), 120),
    Part("quick", ((*TORCHRUN, "selftest", "--quick", "--json", "{out}/quick.json"),), 240,
         report="quick.json"),
    Part("values", (_tests("values", *VALUES),), least=60),
    Part("sweep", (_sweep("c10d", "sweep_c10d"), _sweep("nccl", "sweep")), report="sweep.json"),
    Part("nccl-tests", (_benchmark("against_nccl_tests"), _benchmark("nccl_launch_cost"))),
    Part("bandwidth", (_benchmark("device_memory"), _benchmark("verify_speed"),
                       _benchmark("selftest_speed"), _benchmark("digest_speed"))),
    Part("tests", (_tests("tests", "{others}"),), least=60),
    Part("jobs", (_tests("jobs", JOBS),), least=120),
    *(Part(tool, (_tests(tool, KERNELS, "-k", tool, needs=",compute-sanitizer"),), least=240)
      for tool in ("memcheck", "racecheck", "initcheck", "synccheck")),
)  # fmt: skip


@dataclass
class Check:
    """What all parts share. until: time at which no part may run any more."""

    out: Path
    dry: bool
    until: float
    environ: dict[str, str]
    gpus: int

    def arguments(self, command: tuple[str, ...]) -> list[str]:
        others = [
            str(file.relative_to(ROOT))
            for file in sorted((ROOT / "tests").rglob("test_*.py"))
            if MARKED.search(file.read_text(encoding="utf-8"))
            and str(file.relative_to(ROOT)) not in (*VALUES, JOBS, KERNELS)
        ]
        words = {
            "{out}": str(self.out),
            "{gpus}": str(self.gpus),
            "{sizes}": "8:64K:x64" if self.dry else "8:1G:x8",
            "{budget}": "2" if self.dry else "60",
            "{require}": "--require=" + ("torch" if self.dry else "gpu,cuda-build,torch"),
        }
        found: list[str] = []
        for word in command:
            if word == "{others}":
                found += others
            elif word == "{benchmark}":
                found += ["tests/dry_gpu.py"] if self.dry else []
            else:
                found.append(reduce(lambda left, one: left.replace(*one), words.items(), word))
        if self.dry and "run" in found and "nccl" in found:  # without a GPU: gloo
            found[found.index("nccl")] = "auto"
        return found

    def run(self, part: Part) -> dict[str, Any]:
        """Runs a part's commands; returns its state, seconds and the line that says why."""
        began = time.monotonic()
        end = min(began + part.limit, self.until)
        states, why = [], ""
        if part.report:  # an earlier call's would pass for this one's
            (self.out / part.report).unlink(missing_ok=True)
        log = self.out / f"{part.name}.log"
        with log.open("w", encoding="utf-8") as file:
            for command in part.commands:
                state = self._one(command, file, end - time.monotonic())
                states.append(state)
        worst = next((s for s in ("timeout", "failed", "not run") if s in states), "ok")
        if worst != "ok":
            why = _last_line(log)
        if part.report:
            verdict, summary = _verdict(self.out / part.report)
            if verdict is None or (verdict != "healthy" and not self.dry):
                worst, why = "failed", summary
            elif worst == "failed" and verdict != "healthy":  # the launcher's code of a verdict
                worst, why = "ok", summary
        return {"state": worst, "seconds": round(time.monotonic() - began, 1), "why": why}

    def _one(self, command: tuple[str, ...], log: Any, seconds: float) -> str:
        arguments = [sys.executable, *self.arguments(command)]
        log.write(f"$ {' '.join(arguments)}\n")
        log.flush()
        environ = dict(self.environ)
        if self.dry and KERNELS in command:
            environ["PATH"] = f"{environ['ODDRANK_DRY_GPU']}/listed:{environ['PATH']}"
        process = subprocess.Popen(
            arguments, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            _kill(process)
            log.write(f"gpu-check: killed: it did not end within {seconds:.0f} s\n")
            return "timeout"
        finally:
            log.flush()
        if code == NOT_RUN and "{benchmark}" in command:
            return "not run"
        return "ok" if code == OK else "failed"


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kills a process and all that it started: torchrun gives each rank a session of its own."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parent = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = [process.pid]
    for pid in found:  # grows meanwhile
        found += children.get(pid, [])
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _verdict(report: Path) -> tuple[str | None, str]:
    try:
        said = json.loads(report.read_text(encoding="utf-8"))
        return said["verdict"], said["summary"]
    except (OSError, ValueError, KeyError):
        return None, f"{report.name} was not written"


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")


def _gpus() -> list[str]:
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return listed.stdout.splitlines()


def _import_torch(environ: dict[str, str]) -> str:
    """Imports torch once, so that no part's deadline pays for reading it from a cold disk."""
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-c", "import torch; print(torch.__version__, torch.version.cuda)"],
            env=environ, capture_output=True, text=True, timeout=MOST, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"torch was not imported within {MOST:g} s"
    said = (done.stdout or done.stderr).strip().splitlines()
    return f"torch {said[-1] if said else '?'}, imported in {time.monotonic() - began:.0f} s"


def _ended(summary: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """Returns the parts that earlier calls ended on the same GPUs, both dry or both not."""
    try:
        known = json.loads(summary.read_text(encoding="utf-8"))
        if any(known[name] != facts[name] for name in ("gpus", "dry")):
            return {}
        return dict(known["parts"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _pack(folder: Path) -> None:
    with tarfile.open(f"{folder}.tar.gz", "w:gz") as archive:
        archive.add(folder, folder.name)


def main() -> int:
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", default="", help=f"some of {','.join(names)}")
    parser.add_argument(
        "--limit",
        type=float,
        default=0,
        help="seconds of this call, counted from --began; the next call goes on with the rest",
    )
    parser.add_argument("--began", type=float, default=time.time(), help="seconds since the epoch")
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    wanted = options.parts.replace(",", " ").split() or names
    if unknown := set(wanted) - set(names):
        parser.error(f"{', '.join(sorted(unknown))}: is none of {', '.join(names)}")
    out: Path = options.folder.resolve()
    out.mkdir(parents=True, exist_ok=True)
    environ = dict(os.environ)
    if options.dry:
        sys.path.insert(0, str(ROOT / "tests"))
        import dry_gpu

        environ |= dry_gpu.environ(out.with_name(f"{out.name}-fakes"))
    gpus = [] if options.dry else _gpus()
    if not gpus and not options.dry:
        print("gpu-check: nvidia-smi -L lists no GPU here. Without one: make gpu-check DRY=1")
        return 2
    left = options.limit - (time.time() - options.began) if options.limit else float("inf")
    check = Check(out, options.dry, time.monotonic() + left, environ, max(1, len(gpus)))
    summary = out / "summary.json"
    facts = {"gpus": gpus, "torch": _import_torch(environ), "dry": options.dry}
    done = _ended(summary, facts) if options.limit else {}
    if set(wanted) <= set(done):
        done = {}  # all of them ended in earlier calls: begin anew
    print(*gpus, facts["torch"], sep="\n", flush=True)
    waiting = []
    for part in PARTS:
        if part.name not in wanted or part.name in done:
            continue
        if check.until - time.monotonic() < part.least:
            waiting.append(part.name)
            continue
        result = done[part.name] = check.run(part)
        print(f"{part.name:12} {result['state']:8} {result['seconds']:6.1f} s  {result['why']}",
              flush=True)  # fmt: skip
        if result["state"] in ("failed", "timeout"):
            log = (out / f"{part.name}.log").read_text(errors="replace").splitlines()
            print(*(f"    {line}" for line in log[-ENOUGH_LINES:]), sep="\n", flush=True)
        summary.write_text(json.dumps({**facts, "parts": done}, indent=1) + "\n", encoding="utf-8")
    _pack(out)
    bad = [name for name, result in done.items() if result["state"] in ("failed", "timeout")]
    print(f"gpu-check: {len(done)} parts ended, {len(bad)} failed{': ' if bad else ''}"
          f"{', '.join(bad)}; everything is in {out}.tar.gz")  # fmt: skip
    if waiting:
        print(f"gpu-check: no time was left for {', '.join(waiting)}: type the same again")
    return 1 if bad or waiting else 0


if __name__ == "__main__":
    sys.exit(main())
