"""Results of a sweep, for tests of rows."""

from statistics import fmean


def result(*passes, **changes):
    """Returns a rank's result of a case. passes: times of single iterations."""
    times = [time for one_pass in passes for time in one_pass]
    return {
        "backend": "c10d:gloo", "times": [list(one_pass) for one_pass in passes], "mismatch": None,
        "mean": fmean(times) if times else None, "iterations": len(times), "skipped": None,
        **changes,
    }  # fmt: skip
