"""How fast are logs read and judged? Gigabytes a CPU second on one core, and the peak of memory.

python benchmarks/metrics/speed.py --mib 512 --json FILE

Logs: mostly other lines (1 in 100 has numbers), only lines with numbers, and a progress bar. Then
one of 10 GiB, to see whether memory grows with it.
"""

import random
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from simulated_training import FORMS, Training

import harness
from oddrank import _native

OTHER = (
    "[rank3]: 2026-01-01 00:00:00,123 INFO data loader: shard 00231 of corpus read in 0.31 s\n",
    '  File "/opt/train/model/attention.py", line 118, in forward\n',
    "node17:99:101 [3] NCCL INFO Channel 02/0 : 3[3] -> 4[4] via P2P/CUMEM/read\n",
    "time (ms) | forward-compute: 31749.74 | backward-compute: 88911.73 | optimizer: 51.07\n",
)


def block(name: str, lines: int, other: int) -> bytes:
    """Returns lines with numbers, each behind `other` lines without."""
    chance = random.Random(1)
    training = Training(1, rows=lines)
    training.form = name
    training.ranks = 1
    made = []
    for row in training.each():
        made += [chance.choice(OTHER) for _ in range(other)]
        made += [f"{line}\n" for line in FORMS[name](row)]
    return "".join(made).encode()


def rate(text: bytes, mib: int) -> tuple[float, int]:
    """Returns GB a CPU second, and the rows."""
    job = _native.core().Metrics([0])
    chunk = 1 << 20
    began, fed = time.thread_time(), 0
    while fed < mib << 20:
        for at in range(0, len(text), chunk):
            job.feed(0, text[at : at + chunk])
        fed += len(text)
    job.end(0)
    job.flush()
    return fed / (time.thread_time() - began) / 1e9, job.figures()["rows"]


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    arguments = harness.parser(str(__doc__).partition("\n")[0], default_repetitions=5)
    arguments.add_argument("--mib", type=int, default=512)
    arguments.add_argument("--long-mib", type=int, default=10240, help="of the log for memory")
    options = arguments.parse_args()
    rows = []
    for log, name, lines, other in (
        ("1 line in 100", "megatron", 3_000, 99),
        *((f"only {form}", form, 20_000, 0) for form in FORMS),
    ):
        text = block(name, lines, other)
        rates, count = [], 0
        for _ in range(options.repetitions + 1):
            figure, count = rate(text, options.mib)
            rates.append(figure)
        rows.append(
            {
                "log": log,
                "MiB": options.mib,
                "bytes a row": round(len(text) / lines),
                "rows": count,
                "GB per CPU second": harness.spread(rates[1:]),
            }
        )
    peak = peak_mib()
    long = block("megatron", 3_000, 20)
    rate(long, options.long_mib)
    harness.report(
        "metrics_speed", rows, options.json, peak_mib=peak,
        long={"MiB": options.long_mib, "peak_mib": peak_mib()},
    )  # fmt: skip


if __name__ == "__main__":
    main()
