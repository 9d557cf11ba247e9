"""At a stall NCCL's RAS tells which rank is behind, also of ranks that have no record."""

import socket
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from oddrank.run import judge, say, snapshot
from oddrank.run.collect.sources import nccl_ras
from oddrank.run.start import Options, Settings
from oddrank.run.watch import Event, Watch
from patience import PATIENCE
from run.collecting import ras_server

TEXT = (Path(__file__).with_name("data") / "nccl_ras.txt").read_text()
STALL = Event("stall", seconds=61.0)


class Job:
    """Four ranks that stand, without records, and their judge."""

    def __init__(self, monkeypatch, folder, *, pid=4713):
        self.lines, self.now, self.pid = [], 1_800_000_000.0, pid
        settings = Settings(
            pid=1, started=0, world={"size": 4}, host="node1", folders=[str(folder)], file="",
            options=asdict(Options(60.0, on_stall="report")), restart=0, publish=False, cwd="/",
        )  # fmt: skip
        self.judge = judge.Judge(settings, self, self, Watch(0.0, 60.0))
        monkeypatch.setattr(judge, "APART", 0.0)
        monkeypatch.setattr(judge, "_WORK_SECONDS", 0.0)
        monkeypatch.setattr(snapshot, "time", SimpleNamespace(time=self.time, time_ns=self.time))
        monkeypatch.setattr(nccl_ras, "_HELLO", PATIENCE.limit)
        monkeypatch.setattr(snapshot, "_RAS_SECONDS", PATIENCE.limit)
        monkeypatch.setattr(say, "lines", self.lines.extend)

    def time(self):
        self.now += 3.0  # twice for each question
        return self.now

    def refresh(self, seconds):
        pass

    def snapshot(self):
        pids = dict(enumerate((4711, 4712, self.pid, 4714)))
        return [
            dict(rank=rank, host="node1", pid=pid, contact="ok", stage="quiet", step="7")
            for rank, pid in pids.items()
        ]

    def take(self, patience, *, look, ended):
        return snapshot.Snapshot({}, 9.0, 9.01)


def answers(monkeypatch, *texts):
    given = iter(texts)
    monkeypatch.setattr(nccl_ras, "ask", lambda *question: next(given).encode())


def test_a_rank_that_stays_behind_is_named(tmp_path, monkeypatch):
    job = Job(monkeypatch, tmp_path)
    with ras_server(TEXT.encode()) as (address, asked):
        monkeypatch.setenv("NCCL_RAS_ADDR", address)
        job.judge.take(STALL)
        assert asked.count(b"VERBOSE STATUS\n") == 2
        job.judge.take(Event("still", seconds=661.0))
    (found,) = job.judge.report.findings
    assert (found.who.ranks, found.cause) == ((2,), "not-entered-or-inside")
    assert found.confidence.level == "medium"
    assert "rank 2" in job.lines[0]
    assert job.judge.history[-1]["event"] == "still-stuck"


FURTHER = TEXT.replace("operation 9", "operation 10")
EQUAL = TEXT.replace("MISMATCH", "OK").partition("#0-0")[0]
NOBODY = {
    "counts move": ((TEXT, FURTHER), {}),
    "counts are equal": ((EQUAL, EQUAL), {}),
    "another job has the port": ((TEXT, TEXT), {"pid": 5713}),
    "it is something else": (("HTTP/1.1 400", "HTTP/1.1 400"), {}),
}


@pytest.mark.parametrize("why", NOBODY)
def test_nobody_is_named_where(tmp_path, monkeypatch, why):
    texts, more = NOBODY[why]
    job = Job(monkeypatch, tmp_path, **more)
    answers(monkeypatch, *texts)
    job.judge.take(Event("stall", seconds=600.0, last=True))
    assert [one for one in job.judge.report.findings if one.names_somebody()] == []


def test_who_takes_a_connection_and_says_nothing_keeps_no_verdict_back(tmp_path, monkeypatch):
    job = Job(monkeypatch, tmp_path)
    monkeypatch.setattr(snapshot, "_RAS_SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("NCCL_RAS_ADDR", f"127.0.0.1:{silent.getsockname()[1]}")
        assert not job.judge.ras.ask()
    monkeypatch.setenv("NCCL_RAS_ENABLE", "0")
    answers(monkeypatch, TEXT)
    assert not job.judge.ras.ask()
