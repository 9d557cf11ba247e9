"""NCCL RAS: counts of all ranks become facts, and only counts that stand still tell of a stall."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oddrank.triage.evidence import Item, Notes
from oddrank.triage.evidence.nccl_ras import KIND
from oddrank.triage.facts import Counts, Identity, Process, Source, Trouble, World, ranks
from oddrank.triage.findings import finding
from oddrank.triage.judges import ras
from oddrank.triage.view import view
from triage.facts_of import Texts, facts_of, item_of


@pytest.fixture
def log(tmp_path):
    return Texts(tmp_path, KIND)


def judged(facts):
    return [(s.cause, ranks(s.processes), s.certainty) for s in ras.judge(view(facts))]


def counts_of(facts):
    return [fact for fact in facts if isinstance(fact, Counts)]


@pytest.mark.needs("samples")
def test_every_example_of_the_guide_is_read(samples):
    facts = facts_of(KIND, samples / "misc" / "nccl_ras_doc_with_sample_outputs.rst")
    by_hash = {(c.communicator, c.dead): c for c in counts_of(facts)}
    mismatch = by_hash["27a079b828ff1a75", ()]
    assert (mismatch.size, mismatch.whole, len(mismatch.counts)) == (32, True, 32)
    assert [r for r, n in mismatch.counts if n == 6649] == [0, 2, 3, 4, 5, 7]
    assert dict(mismatch.members)[7] == Process(7, "172.16.64.210", 483079)
    assert by_hash["cf264af53edbe986", ()].silent == (21,)
    assert dict(by_hash["cf264af53edbe986", (21,)].members)[21].pid == 3487984
    json_one = by_hash["ae94423cfbb2ef4a", ()]
    assert (json_one.size, json_one.silent) == (2, (1,))
    assert World(32, facts[-1].source).size in {f.size for f in facts if isinstance(f, World)}
    dead = [f for f in facts if isinstance(f, Trouble) and f.pid == 1524345]
    assert all(f.kind == "unreachable" and f.fatal for f in dead)
    assert dead


@pytest.mark.needs("samples")
def test_ranks_12_and_13_of_the_real_mismatch_are_ahead_and_not_named(samples):
    facts = facts_of(KIND, samples / "watchdog_logs" / "misc_issue_excerpts.log")
    (counts,) = counts_of(facts)
    assert counts.op == "all_gather"
    assert [r for r, n in counts.counts if n == 641] == [12, 13]
    assert sum(n == 640 for _, n in counts.counts) == 30
    (suspect,) = ras.judge(view(facts))
    assert (suspect.cause, suspect.processes, suspect.certainty) == ("unknown", (), 0)
    assert {p.pid for p in suspect.waiting} == {323032, 323033}


TABLE = """\
Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          8            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         8         8         8   RUNNING  {error}

Errors
======

{errors}
Warnings
========

"""


def answer(behind=1, least=99, most=100, op="AllReduce", date=""):
    """An answer for 8 ranks: rank 5 (and 6, ...) has launched fewer operations than the others."""
    lines = [f"#0-0 (abc123) MISMATCH\n  Communicator ranks have different {op} operation counts"]
    lines.append(f"  {8 - behind} ranks have launched up to operation {most}")
    said = f"has launched up to operation {least}" if least else "has not launched any operations"
    if behind == 1:
        lines.append(f"  Rank 5 {said} -- GPU 5 managed by process 505 on node 10.0.0.1")
    else:
        lines.append(f"  {behind} ranks have launched up to operation {least}")
        lines += [f"  Rank {5 + i} -- GPU {5 + i} managed by process {505 + i} on node 10.0.0.1"
                  for i in range(behind)]  # fmt: skip
    head = f"{date}\n" if date else ""
    return head + TABLE.format(error="MISMATCH", errors="") + "\n".join(lines) + "\n"


def test_a_rank_behind_in_two_answers_is_awaited(log):
    assert judged(log.facts(answer() + answer())) == [("not-entered-or-inside", (5,), 1)]
    assert judged(log.facts(answer(behind=2), answer(behind=2))) == [
        ("not-entered-or-inside", (5, 6), 1)
    ]


def test_one_answer_alone_is_low_confidence(log):
    assert judged(log.facts(answer())) == [("not-entered-or-inside", (5,), 0)]


def test_one_answer_is_said_to_prove_nothing(log):
    (suspect,) = ras.judge(view(log.facts(answer())))
    made = finding(suspect)
    assert made.condition == "unknown"
    assert "rank 5 (10.0.0.1) is behind ranks 0-4, 6-7 in all_reduce, as in healthy" in made.what


def test_moving_counts_blame_nobody(log):
    assert judged(log.facts(answer() + answer(least=199, most=200))) == []


def test_two_answers_within_a_second_do_not_show_a_stall(log):
    soon = answer(date="2026-01-01 00:00:01") + answer(date="2026-01-01 00:00:02")
    late = answer(date="Thu Jan  1 00:00:01 UTC 2026") + answer(date="Thu Jan  1 00:01:02 UTC 2026")
    assert judged(log.facts(soon)) == [("not-entered-or-inside", (5,), 0)]
    assert judged(log.facts(late)) == [("not-entered-or-inside", (5,), 1)]


def test_a_rank_that_launched_nothing_is_behind(log):
    (counts,) = counts_of(log.facts(answer(least=0)))
    assert dict(counts.counts)[5] == 0
    assert judged(log.facts(answer(least=0) * 2)) == [("not-entered-or-inside", (5,), 1)]


def test_a_job_that_is_ok_has_no_suspect(log):
    facts = log.facts(TABLE.format(error="OK", errors="") * 2)
    assert [f for f in facts if isinstance(f, World)]
    assert judged(facts) == []


def test_a_process_without_answer_is_named_by_its_rank(log):
    errors = (
        "DEAD\n  1 job process is considered dead (unreachable via the RAS network)\n"
        "  Process 505 on node 10.0.0.1 managing GPU 5\n\n"
        "#0-0 (abc123) INCOMPLETE\n  Missing communicator data from 1 rank\n"
        "  Rank 5 -- GPU 5 managed by process 505 on node 10.0.0.1\n"
    )
    facts = log.facts(TABLE.format(error="INCOMPLETE", errors=errors))
    (counts,) = counts_of(facts)
    assert counts.dead == (5,)
    assert judged(facts) == [("unreachable", (5,), 1)]


def test_the_ranks_of_a_node_whose_guards_are_silent_are_one_suspect():
    seen = Source("states.json")
    facts: list[object] = [World(6, seen)]
    for rank in (4, 5):
        facts.append(Identity(Process(rank, "node2", 40 + rank), seen))
        facts.append(Trouble("unreachable", "its guard is silent", seen, "node2", pid=40 + rank))
    assert judged(facts) == [("unreachable", (4, 5), 1)]


def test_a_job_that_has_ended_leaves_no_suspect(log):
    dead = "".join(
        f"[2026-01-01 00:00:0{n}] PEER_DEAD: Process {500 + n} on node 10.0.0.1 managing GPU {n}\n"
        for n in range(8)
    )
    assert judged(log.facts(TABLE.format(error="OK", errors="") + dead)) == []
    one = dead.splitlines()[5] + "\n"
    (suspect,) = ras.judge(view(log.facts(TABLE.format(error="OK", errors="") + one)))
    assert suspect.processes == (Process(None, "10.0.0.1", 505),)


def test_the_first_versions_list_missing_ranks_in_one_line(log):
    errors = (
        "INCOMPLETE\n  Missing communicator data from 2 job processes\n\n"
        "#0-0 (abc123) INCOMPLETE\n  Missing communicator data from 2 ranks\n"
        "  The missing ranks: 2,5\n"
    )
    (counts,) = counts_of(log.facts(TABLE.format(error="INCOMPLETE", errors=errors)))
    assert counts.silent == (2, 5)


def test_an_error_of_another_process_is_cleanup(log):
    errors = (
        "#0-0 (abc123) ERROR\n  Asynchronous errors on 3 ranks\n"
        "  2 ranks reported Remote process error\n"
        "  Rank 1 -- GPU 1 managed by process 501 on node 10.0.0.1\n"
        "  Rank 2 -- GPU 2 managed by process 502 on node 10.0.0.1\n"
        "  Rank 5 reported System error -- GPU 5 (NVML 7) managed by process 505 on node 10.0.0.1\n"
    )
    facts = log.facts(TABLE.format(error="ERROR", errors=errors))
    assert [(f.pid, f.whose) for f in facts if isinstance(f, Trouble)] == [
        (501, "cleanup"), (502, "cleanup"), (505, "unknown"),
    ]  # fmt: skip
    assert [f.gpu_index for f in facts if isinstance(f, Identity)] == [1, 2, 7]


def document(counts, size=4, missing=(), host="10.0.0.1", when="2026-01-01 00:00:00"):
    def row(rank, **more):
        return {"rank": rank, "host": host, "pid": 500 + rank, "cuda_dev": rank, "nvml_dev": rank,
                **more}  # fmt: skip

    ok = {"init_state": 0, "async_error": 0}
    all_ops = {"Broadcast": 0, "AllReduce": 0}
    return json.dumps({
        "nccl_version": "2.28.7", "timestamp": when, "communicators_count": 1,
        "communicators": [{
            "hash": "0xabc", "size": size,
            "ranks": [row(r, status=ok, collective_counts={**all_ops, "AllReduce": n})
                      for r, n in counts.items()],
            "missing_ranks": [row(r, status={"unresponsive": True, "considered_dead": False})
                              for r in missing],
        }],
        "ras": {"collection_time_sec": 0.0, "timeouts_count": 0},
    }, indent=2)  # fmt: skip


def test_json_without_the_comma_of_2_28_7_is_read(log):
    text = document({0: 7, 1: 7, 2: 7}, missing=(3,))
    head, tail = text.split('"missing_ranks"')
    broken = head + '"missing_ranks"' + tail.replace('"nvml_dev": 3,', '"nvml_dev": 3')
    with pytest.raises(ValueError, match="delimiter"):
        json.loads(broken)
    (counts,) = counts_of(log.facts(broken))
    assert (counts.op, counts.counts) == ("all_reduce", ((0, 7), (1, 7), (2, 7)))
    assert (counts.silent, counts.whole, dict(counts.members)[3].rank) == ((3,), True, 3)


def test_frozen_documents_name_the_rank_behind_and_equal_ones_nobody(log):
    later = "2026-01-01 00:01:00"
    skew = {0: 8, 1: 8, 2: 7, 3: 8}
    assert judged(log.facts(document(skew) + "\n" + document(skew, when=later))) == [
        ("not-entered-or-inside", (2,), 1)
    ]
    same = dict.fromkeys(range(4), 8)
    assert judged(log.facts(document(same) + document(same, when=later))) == [("unknown", (), 0)]
    grown = dict.fromkeys(range(4), 9)
    assert judged(log.facts(document(same) + document(grown, when=later))) == []


def test_ranks_of_a_small_communicator_are_not_ranks_of_the_job(log):
    one = json.loads(document({0: 8, 1: 7}, size=2))
    other = json.loads(document({0: 8, 1: 8}, size=2, host="10.0.0.2"))
    other["communicators"][0]["hash"] = "0xdef"
    one["communicators"] += other["communicators"]
    facts = log.facts(json.dumps(one) + json.dumps(one))
    assert not any(c.whole for c in counts_of(facts))
    (suspect,) = ras.judge(view(facts))
    assert suspect.processes == (Process(None, "10.0.0.1", 501),)


def test_a_document_that_is_cut_off_is_a_note_and_the_rest_is_read(tmp_path):
    path = tmp_path / "ras.json"
    path.write_text(document({0: 1})[:99] + "\n" + document({0: 2}, size=1))
    notes = Notes()
    item = Item("ras.json", path, path.stat().st_size, path.read_bytes())
    assert len(counts_of(KIND.read([item], notes))) == 1
    assert notes.lines == ["ras.json: line 1: RAS output in JSON that is cut off or broken"]


@pytest.mark.parametrize(
    ("line", "host", "fatal"),
    [
        ("[INFO] p2p: only 52/56 GPU-to-GPU peer accesses passed verification", None, True),
        ("[INFO] NCCL environment: mismatch across 16 ranks for NCCL_BUFFSIZE", None, False),
        ("[INFO] net bw: cross-nic rank 3 (n7): 265.1 Gbit/s, >30% off median 391.5", "n7", False),
        ("[INFO] RAS: diagnostics incomplete, gathered 7/8 ranks", None, False),
    ],
)
def test_what_diagnostics_found_is_a_trouble(log, line, host, fatal):
    (trouble,) = log.facts(f"node01:4242 NCCL DIAG {line} in comm 0x7a\n")
    assert (trouble.kind, trouble.host, trouble.fatal) == ("nccl", host, fatal)


def test_diagnostics_that_found_nothing_are_no_trouble(log):
    assert log.facts(
        "NCCL DIAG === NCCL Diagnostics ===\n"
        "NCCL DIAG [OK]   p2p: all 56 directed GPU P2P edges verified\n"
        "NCCL DIAG [INFO] ECC: unavailable via NVML\n"
        "NCCL DIAG [INFO] NCCL environment: NCCL_BUFFSIZE=(unset) on rank(s) {0,1}\n"
        "NCCL DIAG NCCL diagnostics completed in 245.3 ms across 8 ranks\n"
    ) == []  # fmt: skip


PIECES = ["#0-0 (ab) MISMATCH", "  3 ranks have launched up to operation ", "  Rank 5 -- GPU 5",
          " managed by process 1 on node x", "\n", "9" * 40, '{"nccl_version": "x", ', '"ranks": [',
          '"communicators": [{"hash": 1, "size": -1, "ranks": [], "missing_ranks": [{}]}]}', "{",
          "Communicators...", "Job summary\n", "   1 1 1\n", "The missing ranks: 1,1"]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=9), max_size=30))
def test_garbage_never_raises(tmp_path_factory, pieces):
    path = tmp_path_factory.mktemp("garbage") / "log"
    content = "".join(pieces).encode(errors="replace")
    path.write_bytes(content)
    item = Item("log", path, len(content), content)
    KIND.sniff(item)
    ras.judge(view(KIND.read([item], Notes())))


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3),
        lambda c: (
            st.lists(c, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "communicators",
                        "ranks",
                        "rank",
                        "status",
                        "hash",
                        "size",
                        "missing_ranks",
                        "event",
                        "peer",
                        "collective_counts",
                        "pid",
                        "host",
                    ]
                ),
                c,
                max_size=6,
            )
        ),
    )
)
def test_documents_of_any_shape_never_raise(tmp_path_factory, tree):
    path = tmp_path_factory.mktemp("garbage") / "ras.json"
    body = tree if isinstance(tree, dict) else {"communicators": tree}
    path.write_text(json.dumps({"nccl_version": "x", **body}))
    content = path.read_bytes()
    list(KIND.read([Item("ras.json", path, len(content), content)], Notes()))


def test_a_log_that_only_has_some_of_the_words_is_not_of_this_kind(tmp_path):
    path = tmp_path / "train.log"
    path.write_text("foo() ERROR: bar\nstep 3 (x) MISMATCH\nRank 3 has started\nINIT  done\n")
    assert not KIND.sniff(item_of(path))
