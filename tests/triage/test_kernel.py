"""Kernel logs: real ones, and long ones. test_read.py has each line that is known."""

import pytest

from oddrank.triage.evidence.kernel import KIND
from oddrank.triage.facts import Trouble
from triage.facts_of import facts_of, of_kind

XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=4711, name=python3, GPU has fallen off the bus.\n"


def one(facts):
    (found,) = of_kind(facts, Trouble)
    return found


@pytest.mark.needs("samples")
def test_the_samples_are_a_fatal_xid_and_six_flaps_and_nothing_else(samples):
    xid = one(facts_of(KIND, *samples.glob("kernel_logs/*xid*.log")))
    assert (xid.kind, xid.code, xid.device, xid.fatal) == ("xid", "119", "GPU 0000:9b:00", True)
    assert (xid.count, xid.last - xid.time, xid.source.line) == (5, 355.0, 3)
    flap = one(facts_of(KIND, *samples.glob("misc/azurehpc*")))
    assert (flap.kind, flap.device, flap.count, flap.fatal) == ("ib-flap", "ib6", 6, False)
    assert (flap.host, flap.last - flap.time) == ("jplc7eb7-vm-0", 5.0)
    assert "did not come back" not in flap.text
    others = [p for folder in ("watchdog_logs", "megatron_logs", "bloom176b")
              for p in (samples / folder).iterdir()]  # fmt: skip
    assert others
    assert facts_of(KIND, *others) == []


def test_lines_far_into_a_long_job_log_are_found_with_their_number(tmp_path):
    path = tmp_path / "job.log"
    path.write_text("step 1 loss 2.0\n" * 600_000 + XID + "step 2\n" * 9)
    assert one(facts_of(KIND, path)).source.line == 600_001
