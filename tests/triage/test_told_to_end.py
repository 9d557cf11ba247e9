"""Jobs that somebody told to end: nobody is blamed, and where ranks stood is said if known."""

import pytest

from oddrank.triage.evidence import launcher
from oddrank.triage.facts import Stop
from triage.facts_of import of_kind, reader

AGENT = "W0203 08:30:11.250000 900 torch/distributed/elastic/"
TOLD = AGENT + "agent/server/api.py:753] Received {} death signal, shutting down workers\n"

log = reader(launcher.KIND)


def test_a_stop_has_its_line_time_and_signal(log):
    (stop,) = of_kind(log.facts("x\n" + TOLD.format(15)), Stop)
    assert (stop.what, stop.signal, stop.source.line, stop.wall) == ("torchrun", 15, 2, True)
    assert stop.time % 86400 == pytest.approx(8 * 3600 + 30 * 60 + 11.25)
    (stop,) = of_kind(log.facts(TOLD.format("Signals.\N{SUPERSCRIPT TWO}")), Stop)
    assert (stop.what, stop.signal) == ("torchrun", None)
