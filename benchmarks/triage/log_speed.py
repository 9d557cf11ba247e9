"""How fast is a log scanned for the lines that triage reads, and judged by `oddrank triage`?

Gigabytes a second on one core. Logs of three shapes, made here: training lines of 64 ranks behind
torchrun's prefixes, plain lines of one rank, and a progress bar that fills one endless line by
carriage returns. Each ends with a traceback; the first one, once more, also begins with it, or has
it in its middle. To compare: `logs first-error`, and `grep -c` for one word.

For 0.5 GB, triage takes 0.24 s to start (click 0.04, classes of facts 0.05, 300 regular expressions
0.03, other modules the rest) and 0.4 s to scan at 1.3 GB a second: such a log cannot be much faster
than 0.8 GB a second, and 1 GB a second takes logs of over 1 GB.
"""

import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from oddrank.inputs import Item
from oddrank.triage.evidence import kinds, lines  # noqa: F401 (kinds registers all words)

CAUGHT = (
    "[rank{}]:[E419 10:42:28.858931807 ProcessGroupNCCL.cpp:616] [Rank {}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=4486, OpType=ALLTOALL, NumelIn=1, NumelOut=1, "
    "Timeout(ms)=600000) ran for 600013 milliseconds before timing out.\n"
)
TRACEBACK = """
Traceback (most recent call last):
  File "/w/train.py", line 30, in train_step
    raise ValueError("bad label 77")
ValueError: bad label 77
"""


def training(step: int) -> str:
    return (
        f"[default{step % 8}]: iteration {step:8d}/  100000 | consumed samples: {step * 64:12d} | "
        f"elapsed time per iteration (ms): {900 + step % 37}.1 | learning rate: 3.000E-04 | lm "
        f"loss: {2 + step % 7}.123456E+00 | grad norm: 0.{step % 999:03d} |\n"
    )


def plain(step: int) -> str:
    return f"2026-01-01 00:00:00,{step % 1000:03d} INFO step={step} loss=2.{step % 997} lr=3e-4\n"


def bar(step: int) -> str:
    return f"\r {step % 100:3d}%|######    | {step}/100000 [45:39<51:20:53,  1.87s/it]"


def chunks(line: Callable[[int], str], size: int, at: str) -> Iterator[str]:
    """Yields a log of about `size` bytes with a timeout of some ranks in every 100,000 lines.

    at: beginning, middle or end: where the traceback stands, without timeouts but for the end.
    """
    block = [line(step) for step in range(100_000)]
    if at == "end":
        block.insert(random.Random(1).randrange(len(block)), "".join(map(caught, range(8))))
    text = "".join(block)
    count = max(size // len(text), 1)
    place = {"beginning": 0, "middle": count // 2, "end": count}[at]
    for number in range(count + 1):
        if number == place:
            yield TRACEBACK
        if number < count:
            yield text


def spent(*command: str) -> float:
    """Returns the CPU seconds of a command that finds the traceback."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, timeout=600)
    if b"bad label 77" not in done.stdout and done.stdout.strip() != b"1":
        raise SystemExit(f"{command} has not found the traceback: {done.stdout!r}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def caught(rank: int) -> str:
    return CAUGHT.format(rank, rank)


def main() -> None:
    arguments = harness.parser(str(__doc__), default_repetitions=5)
    arguments.add_argument("--mib", type=int, default=512, help="size of each log")
    options = arguments.parse_args()
    rows = []
    shapes = [("64 ranks", training), ("one rank", plain), ("progress bar", bar)]
    cases = [
        (*shapes[0], "beginning"),
        (*shapes[0], "middle"),
        *((*each, "end") for each in shapes),
    ]
    for name, line, at in cases:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "job.log")
            with path.open("w") as file:
                file.writelines(chunks(line, options.mib << 20, at))
            size = path.stat().st_size
            rates = []
            for turn in range(options.repetitions + 1):  # another file to its cache
                began = time.thread_time()
                found = lines.scan(Item("job.log", path, size, b"", written_ns=turn))
                rates.append(size / (time.thread_time() - began) / 1e9)
            oddrank = (sys.executable, "-m", "oddrank")
            commands = {
                "triage": (*oddrank, "triage", str(path)),
                "first-error": (*oddrank, "logs", "first-error", str(path)),
                "grep -c": ("grep", "-c", "Traceback (most", str(path)),
            }
            judged = {
                f"GB per CPU second, {name}": harness.spread(
                    [size / spent(*command) / 1e9 for _ in range(options.repetitions)]
                )
                for name, command in commands.items()
            }
            rows.append(
                {
                    "log": name,
                    "traceback": at,
                    "MiB": size >> 20,
                    "lines": found["lines"],
                    "matches": len(found["matches"]),
                    "GB per CPU second": harness.spread(rates[1:]),  # the first fills the cache
                    **judged,
                }
            )
    words = sum(len(each) for each in [lines._told, *(reader.each for reader in lines._readers)])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    harness.report("triage_logs", rows, options.json, needles=words, peak_mib=peak)


if __name__ == "__main__":
    main()
