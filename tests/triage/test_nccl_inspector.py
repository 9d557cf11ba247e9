"""NCCL Inspector: what each rank has completed at least. What is missing proves nothing."""

import json

from oddrank.triage.evidence.nccl_inspector import KIND
from oddrank.triage.facts import Progress
from oddrank.triage.verdict import suspects
from oddrank.triage.view import view
from triage.facts_of import noted, of_kind, reader

log = reader(KIND)


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


def test_progress_alone_makes_no_suspect(log):
    assert suspects(view(log.facts("".join(row(r, 8 - 5 * (r == 2)) for r in range(4))))) == []


def test_the_end_of_a_large_file_counts(tmp_path, monkeypatch):
    monkeypatch.setattr("oddrank.triage.evidence.nccl_inspector._TAIL", 4000)
    text = "".join(row(0, n, size=1) for n in range(1, 100))
    found, _ = noted(KIND, tmp_path / "inspector.log", text.encode())
    assert [p.completed for p in of_kind(found, Progress)] == [99]
