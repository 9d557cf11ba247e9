"""NCCL Inspector: what each rank has completed at least. What is missing proves nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oddrank.triage import verdict
from oddrank.triage.evidence import Item, Notes
from oddrank.triage.evidence.nccl_inspector import KIND
from oddrank.triage.facts import Identity, Process, Progress
from oddrank.triage.view import view
from triage.facts_of import Texts, item_of


@pytest.fixture
def log(tmp_path):
    return Texts(tmp_path, KIND)


def row(rank, number, *, size=4, comm="0x7f8c", host="n1", second=0):
    return json.dumps({
        "header": {"id": comm, "comm_name": "unknown", "rank": rank, "n_ranks": size, "nnodes": 1},
        "metadata": {
            "inspector_output_format_version": "v4.0", "git_rev": "",
            "rec_mechanism": "nccl_profiler_interface", "hostname": host, "pid": 100 + rank,
            "dump_timestamp_us": 1_748_030_377_000_000 + second * 1_000_000,
        },
        "coll_perf": {"coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": 1 << 20},
    }) + "\n"  # fmt: skip


def completed(facts):
    return {f.process.rank: (f.completed, f.time) for f in facts if isinstance(f, Progress)}


def test_the_last_operation_of_each_rank_is_its_progress(log):
    files = ["".join(row(r, n, second=n) for n in range(1, 9 - (r == 2))) for r in range(4)]
    facts = log.facts(*files)
    assert {r: n for r, (n, _) in completed(facts).items()} == {0: 8, 1: 8, 2: 7, 3: 8}
    assert completed(facts)[2][1] == 1_748_030_377.0 + 7
    assert Process(2, "n1", 102) in [f.process for f in facts if isinstance(f, Identity)]
    assert all(not f.open and not f.whole for f in facts if isinstance(f, Progress))


def test_a_rank_with_fewer_events_is_no_suspect(log):
    facts = log.facts(*("".join(row(r, n) for n in range(1, 9 - 5 * (r == 2))) for r in range(4)))
    assert verdict.suspects(view(facts)) == []


def test_ranks_of_small_communicators_are_not_ranks_of_the_job(log):
    facts = log.facts(*(row(r, 5, size=2, comm=c, host=c) for r in (0, 1) for c in ("0x1", "0x2")))
    assert set(completed(facts)) == {None}


def test_the_end_of_a_large_file_counts(tmp_path, monkeypatch):
    monkeypatch.setattr("oddrank.triage.evidence.nccl_inspector._TAIL", 4000)
    path = tmp_path / "inspector.log"
    path.write_text("".join(row(0, n, size=1) for n in range(1, 100)))
    (progress,) = (f for f in KIND.read([item_of(path)], Notes()) if isinstance(f, Progress))
    assert progress.completed == 99


def test_lines_that_are_no_json_are_a_note(tmp_path):
    path = tmp_path / "inspector.log"
    path.write_text(row(0, 1) + "x\n" * 9)
    notes = Notes()
    assert list(KIND.read([item_of(path)], notes))
    assert notes.lines == ["inspector.log: 9 lines of NCCL Inspector that are no JSON"]


LINES = [row(0, 1), row(1, 2)[:99] + "\n", "{}\n", "[]\n", '{"header": 1, "metadata": {}}\n']


@given(st.lists(st.sampled_from(LINES) | st.text(max_size=9), max_size=20))
def test_garbage_never_raises(tmp_path_factory, pieces):
    path = tmp_path_factory.mktemp("garbage") / "log"
    content = "".join(pieces).encode(errors="replace")
    path.write_bytes(content)
    item = Item("log", path, len(content), content)
    KIND.sniff(item)
    list(KIND.read([item], Notes()))
