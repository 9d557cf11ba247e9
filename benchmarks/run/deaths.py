"""Measures how soon `oddrank run` names a rank of four that dies under torchrun, and if rightly.

named_ms: from the fault to the sentence; for an exception and an exit it includes torch's shutdown.
first: how often the sentence came before torchrun's own report. right: how often it named that rank
and no other.
"""

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
import harness
from run.watched_job import watched_job

_FAULTS = ("kill", "raise", "exit")
_RANK = 2


def one(fault: str) -> tuple[float, bool, bool]:
    """Returns (milliseconds until it was named, before torchrun's report, the right rank)."""
    with watched_job(fault, _RANK) as job:
        job.ends()
        began = float((job.folder / "fault").read_text())
        error = (job.folder / "err").read_text()
        verdict, launcher = error.find("\noddrank: "), error.find("ChildFailedError")
        report = job.report
        assert report is not None
        ranks = [finding["who"]["ranks"] for finding in report["findings"]]
        delay = 1000 * (job.history[0]["time"] - began)
        return delay, 0 <= verdict < launcher, ranks == [[_RANK]]


def row(fault: str, repetitions: int) -> dict[str, float | str]:
    runs = [one(fault) for _ in range(repetitions)]
    delays = [delay for delay, _, _ in runs]
    return {
        "fault": fault,
        "runs": repetitions,
        "named_ms": round(statistics.median(delays), 1),
        "slowest_named_ms": round(max(delays), 1),
        "first": sum(first for _, first, _ in runs),
        "right": sum(right for _, _, right in runs),
    }


def main() -> None:
    arguments = harness.parser(__doc__ or "", default_repetitions=10).parse_args()
    rows = [row(fault, arguments.repetitions) for fault in _FAULTS]
    harness.report("run_deaths", rows, arguments.json)


if __name__ == "__main__":
    main()
