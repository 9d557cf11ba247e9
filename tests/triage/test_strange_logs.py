"""Logs as containers and shells leave them: packed lines, unknown prefixes, pods, hosts."""

import pytest

from oddrank.inputs import Notes
from oddrank.triage.report import judged, made
from triage.facts_of import item_of

LINES = (
    "Traceback (most recent call last):", '  File "/w/run.py", line 7, in load',
    '    raise KeyError("no \\\\ such")', "KeyError: 'no such'",
)  # fmt: skip
LONE = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=105, OpType=ALLREDUCE)"


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


@pytest.mark.parametrize("prefix", ["3: ", ""])
def test_who_goes_on_far_behind_a_traceback_is_not_named(tmp_path, prefix):
    path = tmp_path / "job.log"
    at = "2026-01-01 00:0{}:00 " if not prefix else ""
    filler = [f"{prefix}a word {number}" for number in range(25_000)]
    lines = [f"{prefix}{at.format(0)}step {number}" for number in range(9)]
    lines += [*filler[:3000], *(f"{prefix}{line}" for line in LINES), *filler]
    lines += [f"{prefix}{at.format(5)}step {number}" for number in range(9, 300)]
    path.write_text("\n".join([*lines, *filler, ""]))
    assert not [one for one in judged([item_of(path)], Notes()).suspects if one.certainty]
    path.write_text("\n".join([*lines[: -len(range(9, 300))], *filler, ""]))
    assert [one.cause.name for one in judged([item_of(path)], Notes()).suspects] == ["dead"]


def test_who_goes_on_among_many_that_do_is_not_named(tmp_path):
    def steps(first, last, ranks=range(64)):
        return [f"{rank}: step {number}" for number in range(first, last) for rank in ranks]

    path = tmp_path / "job.log"
    raised = [*steps(0, 400), *(f"3: {line}" for line in LINES)]
    others = steps(480, 900, {*range(64)} - {3})
    for goes_on, named in ((steps(400, 480), []), ([], ["dead"])):
        path.write_text("\n".join([*raised, *goes_on, *others, ""]))
        suspects = judged([item_of(path)], Notes()).suspects
        assert [one.cause.name for one in suspects] == named
