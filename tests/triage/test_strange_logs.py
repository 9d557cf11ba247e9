"""Logs as containers and shells leave them: packed lines, unknown prefixes, UTF-16, pods, hosts."""

import json

import pytest

from oddrank.triage.evidence import Notes, files, tracebacks
from oddrank.triage.facts import Death, Frame
from oddrank.triage.report import judged, made
from triage.facts_of import Texts, item_of
from triage.told import check

LINES = (
    "Traceback (most recent call last):", '  File "/w/run.py", line 7, in load',
    '    raise KeyError("no \\\\ such")', "KeyError: 'no such'",
)  # fmt: skip
LONE = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=105, OpType=ALLREDUCE)"


def docker(line):
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-11-23T03:00:01.25Z"})


@pytest.fixture
def deaths(tmp_path):
    def read(pack, *lines):
        text = "".join(pack(line) + "\n" for line in lines)
        return [f for f in Texts(tmp_path, tracebacks.KIND).facts(text) if isinstance(f, Death)]

    return read


def test_the_exception_is_read_behind_what_is_in_front_of_it(deaths):
    for packed in (
        lambda line: docker(f"12: {line}"),
        lambda line: docker(f"[rank12]: {line}").replace(": ", ":", 1),
        "2026-11-23T03:00:01.123456Z stderr F 12: {}".format,
        "12: <worker 9f> {}".format,
        "[rank12]: [2026-11-23 03:00:01] {}".format,
    ):
        (death,) = deaths(packed, "step 3", *LINES, "bye")
        assert (death.process.rank, death.text) == (12, "KeyError: 'no such'"), packed("x")
        assert death.site == (Frame("load", "/w/run.py", 7),), packed("x")


def test_a_file_line_is_never_an_exception(deaths):
    prefixes = iter(["xxx:", "xxxx:", "xxxxx:", "xxxxxx:"])
    found = deaths(lambda line: f"{next(prefixes)} {line}", *LINES)
    assert not any("File" in death.text for death in found)


@pytest.mark.parametrize(
    ("mark", "encoding", "end"),
    [(b"", "utf-16", b""), (b"\xfe\xff", "utf-16-be", b""), (b"", "utf-16", b"\0")],
    ids=["little", "big", "half a character at its end"],
)
def test_a_log_in_utf_16_is_read(tmp_path, mark, encoding, end):
    path = tmp_path / "out.txt"
    text = "".join(f"3: {line}\r\n" for line in ("step é", *LINES))
    path.write_bytes(mark + text.encode(encoding) + end)
    notes = Notes()
    with files.opened([str(path)], notes) as items:
        (suspect,) = judged(items, notes).suspects
    assert notes.lines == []
    assert [p.rank for p in suspect.processes] == [3]
    assert suspect.death.text == "KeyError: 'no such'"


def test_a_pod_or_host_is_named_where_no_rank_is_known(deaths, golden):
    nobody = ("dead", (None,), 1)
    check(golden, {
        "a pod": (deaths("[pod/train-worker-3/main] {}".format, *LINES), nobody),
        "a host": (deaths("node07: {}".format, *LINES), nobody),
    })  # fmt: skip


def test_a_rank_beyond_all_jobs_is_no_rank_and_noted(tmp_path, golden):
    path = tmp_path / "job.log"
    noted = []
    for line in (
        f"[Rank 99999999999] {LONE}",
        f"[PG 0 (default_pg) Rank 99999999999] {LONE}",
        f"[rank99999999999]: [PG ID 1 PG GUID 1(mesh) Rank 99999999999] {LONE}",
        "using world size: 99999999999",
        "[rank99999999999]: Traceback (most recent call last):\nValueError: boom",
        "MPI_ABORT was invoked on rank 99999999999 in communicator MPI_COMM_WORLD",
        "[rank 99999999999] finished collective #7 : 99999999999",
    ):
        path.write_text(f"[rank0]:[E ProcessGroupNCCL.cpp:821] [Rank 0] {LONE}\n{line}\n")
        kept = Notes()
        found = judged([item_of(path)], kept)
        assert max(found.view.heard) == 0, line
        assert (found.view.world or 0) < 2, line
        made(found)
        noted.append(f"{line}\n  {kept.lines}")
    golden("\n".join(noted))
