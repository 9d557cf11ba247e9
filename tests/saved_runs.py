"""Bench reports as files, for tests of compare and plot."""

import json
from random import Random

from oddrank.bench.comparison import read
from oddrank.report import envelope

WORLD = {"size": 4, "nodes": 1, "launcher": "torchrun", "job": "1"}


def row(size=1 << 20, us=100.0, noise=0.02, count=200, seed=0, **changes):
    """Returns a row with `count` times around `us`."""
    random = Random(f"{size} {us} {noise} {seed}")
    samples = [us * random.lognormvariate(0, noise) for _ in range(count)]
    n = changes.get("n", 4)
    algbw = size / us / 1e3
    return {
        "backend": "c10d:gloo", "collective": "all_reduce", "dtype": "float32", "op": "sum",
        "bytes": size, "count": size // 4, "inplace": True, "mean_us": changes.get("median_us", us),
        "median_us": us, "p99_us": us * (1 + 3 * noise), "cv": noise, "algbw_GBps": algbw,
        "busbw_GBps": algbw * 2 * (n - 1) / n if n > 1 else None, "check": "ok", "n": n,
        "samples_us": samples, **changes,
    }  # fmt: skip


def report(*rows, world=None, findings=(), **data):
    made = envelope("bench", WORLD | (world or {}), {"rows": list(rows), **data})
    return {**made, "verdict": "healthy", "summary": "fine", "findings": list(findings)}


def write(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def saved(tmp_path, content, name="run.json"):
    return read(write(tmp_path / name, content))
