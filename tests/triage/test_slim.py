"""Triage names over slim copies of records what it names over the records."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from oddrank import _native
from processes import captured
from triage.test_record import job, read

pytestmark = [pytest.mark.needs("torch-build"), pytest.mark.timeout(300), pytest.mark.job]
TRAINING_RANK = 40 << 10


def slim_copy(folder: Path, target: Path) -> Path:
    """Copies a folder of collect: the states as they are, slim records."""
    shutil.copytree(folder, target)
    for record in target.rglob("*.trace"):
        record.write_bytes(_native.core().trace_slim(str(record)))
        assert record.stat().st_size <= TRAINING_RANK
    return target


def verdict(folder: Path) -> tuple[object, ...]:
    done = captured([sys.executable, "-m", "oddrank", "triage", str(folder), "--json", "-"])
    report = json.loads(done.stdout)
    named = [
        (one["condition"], one["cause"], one["who"], one["what"], one["confidence"])
        for one in report["findings"]
    ]
    return report["verdict"], report["summary"], named


@pytest.mark.parametrize(
    "fault", ["dataloader", "loop", "raises", "exits", "messages", "size", "returns"]
)
def test_the_verdict_is_that_over_the_records(tmp_path, fault):
    with job(tmp_path, fault) as running:
        running.until(lambda: bool(read(running.records).facts))
        whole = running.collected()
        slim = slim_copy(whole, tmp_path / "slim")
        assert verdict(slim) == verdict(whole)
    assert verdict(slim) == verdict(whole)
