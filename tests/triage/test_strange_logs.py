"""Logs as containers and shells leave them: packed lines, unknown prefixes, UTF-16, pods, hosts."""

import json

import pytest

from oddrank.triage import verdict
from oddrank.triage.evidence import Notes, files, tracebacks
from oddrank.triage.facts import Death, Frame
from oddrank.triage.findings import finding
from oddrank.triage.report import judged, made
from oddrank.triage.view import view
from triage.facts_of import Texts, item_of

LINES = (
    "Traceback (most recent call last):",
    '  File "/w/run.py", line 7, in load',
    '    raise KeyError("no \\\\ such")',
    "KeyError: 'no such'",
)


def docker(line):
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-11-23T03:00:01.25Z"})


def suspects(tmp_path, text):
    return verdict.suspects(view(Texts(tmp_path, tracebacks.KIND).facts(text)))


@pytest.mark.parametrize(
    "packed",
    [
        lambda line: docker(f"12: {line}"),
        lambda line: docker(f"[rank12]: {line}").replace(": ", ":", 1),
        lambda line: f"2026-11-23T03:00:01.123456Z stderr F 12: {line}",
        lambda line: f"12: <worker 9f> {line}",
        lambda line: f"[rank12]: [2026-11-23 03:00:01] {line}",
    ],
)
def test_the_exception_is_read_behind_what_is_in_front_of_it(tmp_path, packed):
    text = "".join(packed(line) + "\n" for line in ("step 3", *LINES, "bye"))
    (death,) = (
        f for f in Texts(tmp_path, tracebacks.KIND).facts(text) if isinstance(f, Death)
    )  # fmt: skip
    assert (death.process.rank, death.text) == (12, "KeyError: 'no such'")
    assert death.site == (Frame("load", "/w/run.py", 7),)


def test_a_file_line_is_never_an_exception(tmp_path):
    odd = "".join(f"{n * 'x'}: {line}\n" for n, line in enumerate(LINES, 3))
    for death in Texts(tmp_path, tracebacks.KIND).facts(odd):
        assert "File" not in death.text


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_a_log_in_utf_16_is_read(tmp_path, encoding):
    path = tmp_path / "out.txt"
    text = "".join(f"3: {line}\r\n" for line in ("step é", *LINES))
    mark = b"\xfe\xff" if encoding.endswith("be") else b""
    path.write_bytes(mark + text.encode(encoding))
    notes = Notes()
    with files.opened([str(path)], notes) as items:
        (suspect,) = judged(items, notes).suspects
    assert notes.lines == []
    assert [p.rank for p in suspect.processes] == [3]
    assert suspect.death.text == "KeyError: 'no such'"


def test_half_a_character_of_utf_16_at_the_end_does_not_matter(tmp_path):
    path = tmp_path / "out.txt"
    path.write_bytes("".join(f"3: {line}\n" for line in LINES).encode("utf-16") + b"\0")
    notes = Notes()
    with files.opened([str(path)], notes) as items:
        assert judged(items, notes).suspects


@pytest.mark.parametrize(
    ("prefix", "name"),
    [("[pod/train-worker-3/main] ", "train-worker-3"), ("node07: ", "node07")],
)
def test_a_pod_or_host_is_named_where_no_rank_is_known(tmp_path, prefix, name):
    (suspect,) = suspects(tmp_path, "".join(f"{prefix}{line}\n" for line in LINES))
    said = f"a process ({name}) raised KeyError: 'no such' at load (run.py:7)"
    assert finding(suspect).what == said
    assert suspect.certainty == 1


LONE = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=105, OpType=ALLREDUCE)"


@pytest.mark.parametrize(
    "line",
    [
        f"[Rank 99999999999] {LONE}",
        f"[PG 0 (default_pg) Rank 99999999999] {LONE}",
        f"[rank99999999999]: [PG ID 1 PG GUID 1(mesh) Rank 99999999999] {LONE}",
        "using world size: 99999999999",
        "[rank99999999999]: Traceback (most recent call last):\nValueError: boom",
        "MPI_ABORT was invoked on rank 99999999999 in communicator MPI_COMM_WORLD",
        "[rank 99999999999] finished collective #7 : 99999999999",
    ],
)
def test_a_rank_beyond_all_jobs_is_no_rank(tmp_path, line):
    path = tmp_path / "job.log"
    path.write_text(f"[rank0]:[E ProcessGroupNCCL.cpp:821] [Rank 0] {LONE}\n{line}\n")
    found = judged([item_of(path)], Notes())
    assert max(found.view.heard) == 0
    assert (found.view.world or 0) < 2
    made(found)


def test_facts_with_ranks_beyond_all_jobs_are_noted(tmp_path):
    path = tmp_path / "job.log"
    path.write_text(f"[Rank 0] {LONE}\n[Rank 99999999999] {LONE}\n")
    notes = Notes()
    judged([item_of(path)], notes)
    assert notes.lines == ["job.log: 1 fact left out: a rank or size beyond 4194304"]
