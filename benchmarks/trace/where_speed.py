"""Times the commands `trace where` over 1,024 records and `trace tail` of one."""

import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

RANKS = 1024
SCRIPT = """
import oddrank, threading, time
oddrank.arm()
def work(n):
    if n:
        work(n - 1)
    else:
        time.sleep(0.2)
threads = [threading.Thread(target=work, args=(20,)) for _ in range(4)]
[thread.start() for thread in threads]
for step in range(3000):
    oddrank.step(step)
work(20)
"""


def make_job(folder: Path) -> Path:
    """Makes a record of a killed process, and 1,024 sparse copies as the job's ranks."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], env={**os.environ, "ODDRANK_DIR": str(folder)}
    )
    time.sleep(1)
    process.kill()
    process.wait()
    (record,) = folder.glob("*/*.trace")
    job = folder / "copies"
    job.mkdir()
    _, pid, start = record.stem.split("-")
    for rank in range(RANKS):
        target = job / f"rank{rank}-{pid}-{start}.trace"
        subprocess.run(["cp", "--sparse=always", record, target], check=True)
    return job


def seconds(*arguments: str) -> float:
    """Times a command until its output ends: waiting for the process takes steps of up to 50 ms."""
    command = [sys.executable, "-m", "oddrank", "trace", *arguments]
    begin = time.perf_counter()
    subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=120)
    return time.perf_counter() - begin


def main() -> None:
    arguments = harness.parser(__doc__ or "").parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        job = make_job(Path(folder))
        one = next(iter(job.iterdir()))
        sides = {
            f"where, {RANKS} records": partial(seconds, "where", str(job)),
            "where, 1 record": partial(seconds, "where", str(one)),
            "tail -n 50 --source": partial(seconds, "tail", "-n", "50", "--source", str(one)),
            "where --help": partial(seconds, "where", "--help"),
        }
        figures = harness.paired(sides, arguments.repetitions)
    rows = [{"command": name, "seconds": harness.spread(taken)} for name, taken in figures.items()]
    harness.report("where_speed", rows, arguments.json)


if __name__ == "__main__":
    main()
