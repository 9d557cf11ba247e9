"""Records say of each collective who takes part, how much of what, and from or to whom."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oddrank import _native

pytestmark = [pytest.mark.needs("torch-build"), pytest.mark.timeout(180)]
JOB = Path(__file__).with_name("collective_facts_job.py")
F32 = 4


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    _native.torch()
    folder = tmp_path_factory.mktemp("job")
    ranks = [
        subprocess.Popen(
            [sys.executable, JOB, str(rank), folder],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(4)
    ]  # fmt: skip
    try:
        output = [rank.communicate(timeout=170)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0] * 4, "\n".join(output)
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(4)]


def pick(records: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(record[name] for name in names) for record in records]


def test_a_group_has_its_global_ranks_and_its_back_end(job):
    for rank in range(4):
        pair = [rank // 2 * 2, rank // 2 * 2 + 1]
        for record in job[rank]["sizes_and_roots"]:
            assert record["group"] == job[rank]["group"]
            assert record["ranks"] == pair
            assert record["backend"] == "gloo"
        assert {tuple(r["ranks"]) for r in job[rank]["data_types"]} == {(0, 1, 2, 3)}
        own = job[rank]["groups"][job[rank]["group"]]
        assert (own["ranks"], own["own"], own["size"]) == (pair, rank % 2, 2)
        assert job[rank]["groups"]["0"]["text"] == "default_pg"
    assert job[0]["groups"][job[0]["group"]]["text"] == "tensor parallel"


@pytest.mark.parametrize("rank", range(4))
def test_roots_are_global_and_each_side_has_its_bytes(job, rank):
    first = rank // 2 * 2
    is_first, is_second = rank == first, rank == first + 1
    x = 3 * F32
    sent, received = (3, 4) if is_first else (7, 6)
    assert pick(job[rank]["sizes_and_roots"], "op", "root", "bytes_in", "bytes_out") == [
        ("broadcast_", first, x, x),
        ("reduce_", first + 1, x, x),
        ("gather_", first, x, 2 * x if is_first else 0),
        ("scatter_", first + 1, 2 * x if is_second else 0, x),
        ("allgather_", None, x, 2 * x),
        ("_allgather_base_", None, x, 2 * x),
        ("_reduce_scatter_base_", None, 2 * x, x),
        ("alltoall_base_", None, sent * F32, received * F32),
    ]


@pytest.mark.parametrize("rank", range(4))
def test_messages_have_a_global_peer_a_tag_and_a_number(job, rank):
    peer, x = rank ^ 1, 5 * 8
    names = ("op", "peer", "tag", "seq", "bytes_in", "bytes_out", "dtype")
    found = pick(job[rank]["messages"], *names)
    if rank < peer:
        assert found == [
            ("send", peer, 7, 1, x, 0, "float64"),
            ("send", peer, 8, 2, x, 0, "float64"),
            ("recv_any_source_", None, 0, None, 0, x, "float64"),
            ("recv_", peer, 0, None, 0, x, "float64"),
        ]
    else:
        assert found == [
            ("recv_", peer, 7, 1, 0, x, "float64"),
            ("recv_", peer, 8, 2, 0, x, "float64"),
            ("send", peer, 0, 1, x, 0, "float64"),
            ("send", peer, 0, 2, x, 0, "float64"),
        ]


def test_every_type_has_torch_s_name(job):
    sent = list(job[0]["types"])
    assert {"float32", "bfloat16", "int64", "bool", "uint8", "float16"} <= set(sent)
    by_name = dict(pick(job[0]["data_types"], "dtype", "failed"))
    # torch sends a complex number as two real ones.
    real = {name for name in sent if not name.startswith("complex")}
    assert {name for name, is_failed in by_name.items() if not is_failed} == real


def test_ddp_and_functional_collectives_have_them_too(job):
    found = pick(job[2]["trained"], "op", "dtype", "bytes_in", "bytes_out", "ranks")
    assert ("allreduce_", "float32", 2 * F32, 2 * F32, [0, 1, 2, 3]) in found
    assert found[-1] == ("allreduce_", "float32", 3 * F32, 3 * F32, [0, 1, 2, 3])


def test_one_that_raises_has_failed_and_is_not_counted_as_ended(job):
    for rank in range(4):
        assert pick(job[rank]["failed"], "op", "state", "failed") == [("broadcast_", "ended", True)]
        assert not any(r["failed"] for r in job[rank]["sizes_and_roots"] + job[rank]["trained"])
        group = job[rank]["groups"][job[rank]["group"]]
        assert (group["begun"], group["issued"], group["ended"]) == (9, 8, 8)
