"""Checks what dumps of the flight recorder say: formats, versions, whose they are, progress."""

import io
import json
import os
import pickle
import shutil
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from oddrank.triage.evidence import Notes, flight_recorder
from oddrank.triage.facts import Fact, Identity, Mismatch, Process, Progress, World
from oddrank.triage.findings import finding
from oddrank.triage.judges import waits
from oddrank.triage.view import view
from triage.facts_of import facts_of, item_of
from triage.flight_dumps import NS, Dump, dump, entry, facts, progress, status, without, write

INJECTED = [9, 14]


def read(*paths: Path) -> tuple[list[Fact], list[str]]:
    notes = Notes()
    items = [item for item in map(item_of, paths) if flight_recorder.sniff(item)]
    return list(flight_recorder.read(items, notes)), notes.lines


def mismatches(found: list[Fact]) -> list[Mismatch]:
    return [fact for fact in found if isinstance(fact, Mismatch)]


def healthy(count: int = 3, **more: Any) -> Dump:
    return dump(*(entry("all_reduce", seq) for seq in range(1, count + 1)), **more)


@pytest.mark.needs("samples")
@pytest.mark.parametrize("name", ["gpu_error_2nd", "lock_gil_1st"])
def test_the_injected_ranks_of_the_samples_are_awaited_and_wait_for_nobody(
    samples: Path, name: str
) -> None:
    folder = samples / "fr_dumps_nvrx" / name
    found, notes = read(*sorted(folder.iterdir()))
    assert notes == []
    assert [fact.size for fact in found if isinstance(fact, World)] == [16]
    (suspect,) = waits.judge(view(found))
    assert [process.rank for process in suspect.processes] == INJECTED
    assert suspect.cause == ("gpu-stopped" if name == "gpu_error_2nd" else "not-entered")
    # Ranks 1 and 6 are in no group of the call: they wait for ranks that wait in it.
    assert "ranks 8, 10-13, 15 wait for them " in finding(suspect).what
    assert finding(suspect).what.endswith("ranks 1, 6 in other calls")


@pytest.mark.needs("samples")
def test_counters_of_a_rank_without_entries_are_found_by_the_order_of_its_groups(
    samples: Path,
) -> None:
    found, _ = read(*sorted((samples / "fr_dumps_nvrx" / "lock_gil_1st").iterdir()))
    stuck = progress(found, "37")[9]
    assert (stuck.enqueued, stuck.completed, stuck.open, stuck.whole) == (88683, 88683, (), True)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5, None])
def test_every_pickle_protocol_and_json_say_the_same(tmp_path: Path, protocol: int | None) -> None:
    made = dump(
        entry("all_reduce", 1),
        entry("all_gather", 2, state="scheduled", frames=[
            {"name": "step", "filename": "train.py", "line": 7},
            {"name": "main", "filename": "train.py", "line": 90},
        ]),
    )  # fmt: skip
    made["entries"][0]["duration_ms"] = 1.5
    made["extra"] = {"big": 1 << 80, "negative": -(1 << 80), "none": None, "é": "\u20ac"}
    path = write(tmp_path / "nccl_trace_rank_3", made, protocol)
    found = facts_of(flight_recorder.KIND, path)
    own = progress(found)[3]
    assert (own.enqueued, own.completed, own.open_count, own.backend) == (2, 1, 1, "nccl")
    (call,) = own.open
    assert (call.seq, call.op, call.sizes, call.dtype, call.bytes) == (
        2,
        "all_gather",
        "8x4",
        "Float",
        128,
    )
    assert call.since == pytest.approx((NS + 2_000_000) / 1e9)
    assert [(frame.function, frame.line) for frame in call.site] == [("step", 7), ("main", 90)]


@pytest.mark.parametrize(
    "version", ["2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10"]
)
def test_every_version_says_how_far_its_rank_is(tmp_path: Path, version: str) -> None:
    number = int(version.partition(".")[2])
    made = dump(entry("all_reduce", 1), entry("all_reduce", 2, state="started"), version=version)
    if number < 2:
        del made["pg_status"]
    if number < 9:
        made["entries"] = [without(e, "thread_name", "thread_id") for e in made["entries"]]
    if number < 5:
        made["entries"] = [without(e, "timeout_ms") for e in made["entries"]]
    own = progress(facts(tmp_path, made))[0]
    assert (own.enqueued, own.started, own.completed) == (2, 2, 1)
    assert [call.state for call in own.open] == ["started"]


def test_dumps_with_one_counter_and_without_a_group_are_read(tmp_path: Path) -> None:
    old = [
        without({**e, "seq_id": e["collective_seq_id"]}, "collective_seq_id", "p2p_seq_id",
                "process_group", "is_p2p", "retired")
        for e in (entry("all_reduce", 1), entry("all_reduce", 2, state="scheduled"))
    ]  # fmt: skip
    found = facts_of(flight_recorder.KIND, write(tmp_path / "trace_2", old))
    own = progress(found)[2]
    assert (own.enqueued, own.completed, [call.seq for call in own.open]) == (2, 1, [2])


@pytest.mark.parametrize("backend", ["nccl", "gloo", "xccl", "rccl", "ncclx", "rcclx", "hccl"])
def test_operations_of_every_back_end_are_read(tmp_path: Path, backend: str) -> None:
    made = dump(entry("_all_gather_base", 1, state="scheduled", backend=backend))
    own = progress(facts(tmp_path, made))[0]
    assert own.backend == backend
    assert own.open[0].op == "all_gather_into_tensor"


class Hostile:
    def __init__(self, made: tuple[Any, ...]) -> None:
        self.made = made

    def __reduce__(self) -> tuple[Any, ...]:
        return self.made


def hand_made() -> dict[str, bytes]:
    """Returns pickles whose opcodes are not plain data, by the name of the first such opcode."""
    return {
        "GLOBAL": b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00lstR.",
        "STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        "INST": b"\x80\x02(ios\nsystem\n.",
        "OBJ": b"\x80\x02(No.",
        "REDUCE": b"\x80\x02N)R.",
        "BUILD": b"\x80\x02N}b.",
        "NEWOBJ": b"\x80\x02N)\x81.",
        "NEWOBJ_EX": b"\x80\x04N)}\x92.",
        "PERSID": b"\x80\x02P1\n.",
        "BINPERSID": b"\x80\x02NQ.",
        "EXT1": b"\x80\x02\x82\x01.",
        "EXT2": b"\x80\x02\x83\x01\x00.",
        "EXT4": b"\x80\x02\x84\x01\x00\x00\x00.",
        "BYTEARRAY8": b"\x80\x05\x96\x01\x00\x00\x00\x00\x00\x00\x00a.",
        "NEXT_BUFFER": b"\x80\x05\x97.",
        "READONLY_BUFFER": b"\x80\x05N\x98.",
        "EMPTY_SET": b"\x80\x04\x8f.",
        "ADDITEMS": b"\x80\x04(\x90.",
        "FROZENSET": b"\x80\x04(\x91.",
        "POP": b"\x80\x02N0.",
        "POP_MARK": b"\x80\x02(1.",
        "DUP": b"\x80\x02N2.",
    }


@pytest.mark.parametrize("opcode", hand_made())
def test_an_opcode_beyond_plain_data_is_refused_by_name(tmp_path: Path, opcode: str) -> None:
    path = tmp_path / "_dump_0"
    path.write_bytes(hand_made()[opcode])
    found, notes = read(path)
    assert found == []
    (line,) = notes
    assert line.startswith("_dump_0: refused: its opcode " + opcode + " ")
    assert "would" in line


@pytest.mark.parametrize("protocol", range(6))
def test_a_dump_that_would_run_code_runs_none(tmp_path: Path, protocol: int) -> None:
    flag = tmp_path / "flag"
    made = healthy()
    made["entries"].append(Hostile((os.system, (f"touch {flag}",))))
    found, notes = read(write(tmp_path / "_dump_0", made, protocol))
    assert (found, len(notes), flag.exists()) == ([], 1, False)
    assert "refused" in notes[0]
    assert "import a name" in notes[0]


def test_classes_of_the_standard_library_are_refused_too(tmp_path: Path) -> None:
    found, notes = read(write(tmp_path / "_dump_0", OrderedDict(healthy())))
    assert found == []
    assert "refused" in notes[0]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x80\x02\x80\x09N.", "protocol 9"),
        (b"\x80\x02\xff.", "no opcode"),
        (b"\x80\x02(((", "cut off"),
        (b"\x80\x02h\x07.", "remembered"),
        (b"\x80\x02e.", "mark"),
        (b"\x80\x02NN.", "one value"),
        (b"\x80\x02}(N", "cut off"),
        (b"\x80\x02\x8b\xff\xff\xff\xff.", "negative"),
        (b"\x80\x02X\xff\xff\xff\xffab", "cut off"),
        (b"\x80\x04\x8d" + b"\xff" * 8 + b"ab", "cut off"),
        (b"\x80\x02" + b"r\xff\xff\xff\x7f" + b".", "value to remember"),
        (b"\x80\x02Nr\xff\xff\xff\x7f" + b".", "remembered values"),
        (b"\x80\x02N.", "no flight-recorder dump"),
        (b"\x80\x02" + b"(" * 5_000_000, "marks"),
        (b"\x80\x02" + b"N" * 5_000_000, "stack"),
        (b'{"pg_config": {', "cut off"),
        (b'{"pg_config": }', "damaged"),
        (b'{"pg_config": {} "a"', "comma"),
        (b'{"pg_config" 1}', "colon"),
        (b'{"pg_config": "\\u12"}', "escape"),
        (b'{"profiling_name": 1}', "no flight-recorder dump"),
        (b'{"pg_config": ' + b"[" * 100_000, "deep"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_damaged_files_give_a_line_and_no_facts(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "_dump_0"
    path.write_bytes(content)
    found, notes = read(path)
    assert [fact for fact in found if isinstance(fact, Progress)] == []
    assert any(why in line for line in notes), notes


@pytest.mark.parametrize("protocol", [0, 2, 4, None])
def test_what_is_before_a_cut_is_used_and_said(tmp_path: Path, protocol: int | None) -> None:
    whole = write(tmp_path / "whole", healthy(40), protocol).read_bytes()
    path = tmp_path / "_dump_1"
    path.write_bytes(whole[: len(whole) // 2])
    found, notes = read(path)
    own = progress(found)[1]
    assert own.enqueued is not None
    assert 5 < own.enqueued < 40
    assert not own.whole
    assert len(notes) == 1
    assert "cut off" in notes[0]
    assert "entries before are used" in notes[0]


def test_every_cut_of_a_dump_is_survived(tmp_path: Path) -> None:
    for protocol in (2, 4, None):
        whole = write(tmp_path / "whole", healthy(3), protocol).read_bytes()
        for end in range(0, len(whole), 7):
            path = tmp_path / "_dump_1"
            path.write_bytes(whole[:end])
            read(path)


def test_a_file_that_grows_short_while_it_is_read_or_is_gone_gives_a_line(tmp_path: Path) -> None:
    item = item_of(write(tmp_path / "_dump_0", healthy()))
    item.path.unlink()
    notes = Notes()
    assert list(flight_recorder.read([item], notes)) == []
    assert "No such file" in notes.lines[0]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("_dump_3", 3),
        ("nccl_trace_rank_3", 3),
        ("comm_lib_trace_rank_3.pickle", 3),
        ("node7_rank_3", 3),
        ("host_rank3.json", 3),
        ("torchcomm_fr_trace_3", 3),
        ("job12_quorum_41/3", 3),
        ("dump_3_node0002", 3),
        ("rank3_2026-11-23.pkl", 3),
    ],
)
def test_the_rank_is_read_from_the_name(tmp_path: Path, name: str, rank: int) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    found, _ = read(write(path, healthy()))
    assert list(progress(found)) == [rank]


def test_the_rank_that_the_dump_itself_says_wins(tmp_path: Path) -> None:
    made = {**healthy(), "rank": 2, "hostname": "node7", "pid": 77}
    found, notes = read(write(tmp_path / "_dump_0", made))
    assert list(progress(found)) == [2]
    assert [f.process for f in found if isinstance(f, Identity)] == [Process(2, "node7", 77)]
    assert "content says rank 2" in notes[0]


def test_sends_and_receives_say_whose_dump_it_is(tmp_path: Path) -> None:
    made = dump(
        entry("recv 0<-1", 1, group="5", desc="PP", p2p=3, state="scheduled"),
        groups={"0": ("default_pg", [0, 1, 2, 3]), "5": ("PP", [1, 3])},
    )
    found, _ = read(write(tmp_path / "a.bin", made))
    own = progress(found, "5")[1]
    (call,) = own.open
    assert (call.op, call.peer, call.seq) == ("recv", 3, 3)


def test_a_group_of_one_says_whose_dump_it_is(tmp_path: Path) -> None:
    made = healthy(groups={"0": ("default_pg", [0, 1, 2, 3]), "9": ("EXPERT", [2])})
    found, _ = read(write(tmp_path / "some.bin", made))
    assert list(progress(found)) == [2]


def test_a_dump_of_nobody_gives_a_line(tmp_path: Path) -> None:
    found, notes = read(write(tmp_path / "some.bin", healthy()))
    assert progress(found) == {}
    assert "whose dump" in notes[0]


def test_of_two_dumps_of_a_rank_the_newer_is_used(tmp_path: Path) -> None:
    old = write(tmp_path / "_dump_1", healthy(3))
    new = write(tmp_path / "rank_1", healthy(5))
    found, notes = read(old, new)
    assert progress(found)[1].enqueued == 5
    assert len(notes) == 1
    assert notes[0].startswith("_dump_1: rank 1 left a newer dump")


def test_groups_of_one_name_are_told_apart_by_their_ranks(tmp_path: Path) -> None:
    ones = {"0": ("default_pg", [0, 1, 2, 3]), "tp": ("TP", [0, 1])}
    twos = {"0": ("default_pg", [0, 1, 2, 3]), "tp": ("TP", [2, 3])}
    short = entry("all_reduce", 1, group="tp", desc="TP", size=(4,))
    long = entry("all_reduce", 1, group="tp", desc="TP", size=(8,))
    found = facts(tmp_path, *(dump(short, groups=ones),) * 2, *(dump(long, groups=twos),) * 2)
    assert mismatches(found) == []
    groups = {f.group.ranks for f in found if isinstance(f, Progress) and f.group.name == "tp"}
    assert groups == {(0, 1), (2, 3)}


def test_the_ring_has_lost_old_entries_that_are_open(tmp_path: Path) -> None:
    entries = [
        entry("all_reduce", seq, state="scheduled", record_id=seq + 500) for seq in range(100, 140)
    ]
    made = dump(*entries)
    made["pg_status"] = {"0": status(139, 89)}
    own = progress(facts(tmp_path, made))[0]
    assert (own.enqueued, own.completed, own.open_count, len(own.open)) == (139, 89, 50, 8)
    assert own.open[0].seq == 100


def test_a_counter_behind_the_entries_means_that_the_host_is_inside_the_call(
    tmp_path: Path,
) -> None:
    made = dump(entry("all_reduce", 1), entry("all_reduce", 2, state="scheduled"))
    made["pg_status"] = {"0": status(1, 1)}
    own = progress(facts(tmp_path, made))[0]
    assert (own.enqueued, own.completed, own.open_count) == (2, 1, 1)


def test_operations_of_a_coalesced_group_take_the_state_of_its_end(tmp_path: Path) -> None:
    groups = {"0": ("default_pg", [0, 1])}

    def batch(number: int, state: str) -> list[Dump]:
        more = {"state": "scheduled", "p2p": number, "retired": False}
        return [
            entry("send 0->1", 0, **more),
            entry("recv 0<-1", 0, **more),
            entry("coalesced", 0, size=None, **{**more, "state": state}, is_p2p=True),
        ]

    own = progress(facts(tmp_path, dump(*batch(1, "completed"), groups=groups)))[0]
    assert own.open == ()
    made = dump(*batch(1, "completed"), *batch(2, "scheduled"), groups=groups)
    own = progress(facts(tmp_path, made))[0]
    assert [(call.op, call.peer, call.seq) for call in own.open] == [("send", 1, 2), ("recv", 1, 2)]


def test_collectives_under_one_number_without_an_end_are_closed_by_later_ones(
    tmp_path: Path,
) -> None:
    parts = [entry("_broadcast_oop", 1, state="scheduled", size=(n, 2)) for n in (1, 2, 3)]
    found = facts(
        tmp_path, dump(*parts, entry("all_reduce", 2)), dump(*parts, entry("all_reduce", 2))
    )
    assert progress(found)[0].open == ()
    assert mismatches(found) == []


def test_a_retired_operation_is_not_open(tmp_path: Path) -> None:
    own = progress(
        facts(
            tmp_path, dump(entry("all_reduce", 1, state="scheduled", retired=True, backend="gloo"))
        )
    )[0]
    assert (own.completed, own.open) == (1, ())


def test_a_rank_that_did_nothing_is_in_no_call(tmp_path: Path) -> None:
    waiting = dump(entry("all_reduce", 1, state="scheduled"))
    found = facts(tmp_path, waiting, waiting, dump(), waiting)
    assert progress(found)[2].open == ()
    assert progress(found)[2].whole
    (suspect,) = waits.judge(view(found))
    assert [process.rank for process in suspect.processes] == [2]


def test_torchcomms_numbers_are_taken_per_communicator(tmp_path: Path) -> None:
    def of(order: str, last: str) -> Dump:
        entries = [
            entry("all_reduce", 0, group=name, desc="ncclx", backend="ncclx",
                  collective_seq_id=number, record_id=number, op_id=number)
            for number, name in enumerate(order)
        ]  # fmt: skip
        entries[-1].update(state=last, retired=last == "completed")
        return dump(*entries, groups={"a": ("ncclx", [0, 1]), "b": ("ncclx", [0, 1])})

    found = facts(tmp_path, of("aabab", "scheduled"), of("aaba", "completed"))
    assert progress(found, "b")[0].open[0].seq == 2
    assert (progress(found, "a")[0].completed, progress(found, "a")[1].completed) == (3, 3)
    assert mismatches(found) == []


def test_texts_of_a_dump_reach_the_facts_unharmed(tmp_path: Path) -> None:
    name = "\x1b[31mred\x00"
    made = dump(
        entry("all_reduce", 1, group=name),
        groups={name: ("x\ud800".encode("utf-8", "replace").decode(), [0])},
    )
    buffer = io.BytesIO()
    pickle.dump(made, buffer)
    (tmp_path / "_dump_0").write_bytes(buffer.getvalue())
    found, notes = read(tmp_path / "_dump_0")
    assert notes == []
    assert list(progress(found, name)) == [0]


def test_other_files_are_left_to_others(tmp_path: Path) -> None:
    for content in (b"", b"{}", b"plain text", b"PK\x03\x04", b'{"a": 1}', b"\x80", b"\x80\x09"):
        path = tmp_path / "file"
        path.write_bytes(content)
        assert not flight_recorder.sniff(item_of(path))


def test_ten_thousand_small_dumps_make_one_fact_per_rank_and_group(tmp_path: Path) -> None:
    ranks = 400
    first = write(
        tmp_path / "_dump_0", healthy(20, groups={"0": ("default_pg", list(range(ranks)))})
    )
    paths = [first]
    for rank in range(1, ranks):
        paths.append(Path(shutil.copy(first, tmp_path / f"_dump_{rank}")))
    found = facts_of(flight_recorder.KIND, *paths)
    assert len(progress(found)) == ranks
    assert len(found) == ranks + 1


def messages(rank: int, *states: str, first: int = 0) -> list[Dump]:
    """Returns batches of a send to and a recv from the other one of two ranks."""
    other = 1 - rank
    made: list[Dump] = []
    for number, state in enumerate(states):
        for way, op in enumerate((f"send {rank}->{other}", f"recv {rank}<-{other}")):
            more = {"record_id": first + 2 * number + way, "state": state}
            made.append(entry(op, 0, p2p=first + 2 * number + way + 1, **more))
    return made


def test_messages_are_numbered_per_way(tmp_path: Path) -> None:
    """Both ranks send first: the message of each is the first of its way, and the second call."""
    groups = {"0": ("default_pg", [0, 1])}
    dumps = [dump(*messages(rank, "completed", "started"), groups=groups) for rank in (0, 1)]
    for own in progress(facts(tmp_path, *dumps)).values():
        assert [(call.op, call.seq) for call in own.open] == [("send", 2), ("recv", 2)]


def test_numbers_of_both_ways_together_are_not_compared(tmp_path: Path) -> None:
    """A ring that has lost its first entries does not say how many went which way."""
    groups = {"0": ("default_pg", [0, 1])}
    dumps = [dump(*messages(rank, "started", first=90), groups=groups) for rank in (0, 1)]
    found = facts(tmp_path, *dumps)
    for own in progress(found).values():
        assert [(call.op, call.seq) for call in own.open] == [("send", None), ("recv", None)]
    assert all(not suspect.processes for suspect in waits.judge(view(found)))
    one_way = [
        dump(entry(op, 0, p2p=91, record_id=90, state="started"), groups=groups)
        for op in ("send 0->1", "recv 1<-0")
    ]
    for own in progress(facts(tmp_path, *one_way)).values():
        assert [call.seq for call in own.open] == [91]


def test_several_open_messages_of_one_way_have_numbers_of_their_own(tmp_path: Path) -> None:
    groups = {"0": ("default_pg", [0, 1])}
    sent = [entry("send 0->1", 0, p2p=n, record_id=n + 9, state="started") for n in (4, 5)]
    taken = [entry("recv 1<-0", 0, p2p=n, record_id=n + 9, state="started") for n in (4, 5)]
    found = facts(tmp_path, dump(*sent, groups=groups), dump(*taken, groups=groups))
    for own in progress(found).values():
        assert [call.seq for call in own.open] == [4, 5]


@pytest.mark.parametrize("protocol", [2, 4, None])
def test_groups_that_only_numbers_name_stay_apart(tmp_path: Path, protocol: int | None) -> None:
    def old(seq: int, pg_id: int, op: str, state: str = "completed") -> Dump:
        made = {**entry(op, seq, pg_id=pg_id, state=state), "seq_id": seq}
        return without(made, "collective_seq_id", "p2p_seq_id", "op_id", "process_group")

    rows = [old(1, 0, "all_reduce"), old(1, 1, "broadcast"), old(2, 1, "broadcast", "scheduled")]
    made = {"version": "2.0", "entries": rows}
    found = facts_of(flight_recorder.KIND, write(tmp_path / "_dump_0", made, protocol))
    assert {name: progress(found, name)[0].enqueued for name in ("0", "1")} == {"0": 1, "1": 2}


def test_a_group_that_was_made_again_counts_from_one(tmp_path: Path) -> None:
    def made(last: int) -> Dump:
        old = [entry("all_reduce", seq) for seq in range(1, 51)]
        new = [
            entry("all_reduce", seq, pg_id=1, record_id=49 + seq, op_id=seq,
                  state="completed" if seq < 2 else "started")
            for seq in range(1, last + 1)
        ]  # fmt: skip
        counters = {"0": status(50, 50, 50), "1": status(last, 1, last)}
        return {**dump(*old, *new), "pg_status": counters}

    found = progress(facts(tmp_path, made(2), made(1)))
    assert [(own.enqueued, own.completed) for own in found.values()] == [(2, 1), (1, 1)]
    assert [call.seq for call in found[0].open] == [2]


@pytest.mark.parametrize("protocol", [0, 2, 4, None])
def test_nothing_is_guessed_of_the_entry_that_a_cut_goes_through(
    tmp_path: Path, protocol: int | None
) -> None:
    """Gloo's operations are over when they are retired, whatever their state says."""
    rows = [entry("all_reduce", n, state="scheduled", retired=True, backend="gloo") for n in (1, 2)]
    whole = write(tmp_path / "whole", dump(*rows), protocol).read_bytes()
    path = tmp_path / "_dump_1"
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        items = [item for item in [item_of(path)] if flight_recorder.sniff(item)]
        for fact in flight_recorder.read(items, Notes()):
            assert not isinstance(fact, Progress) or fact.open == (), end


def test_texts_with_escapes_outlive_their_entries(tmp_path: Path) -> None:
    rows = [entry("my_op", 1), {"a": 0, "b": "FILLED"}]
    text = json.dumps(dump(*rows)).replace("nccl:", r"ncc\u006c:")
    path = tmp_path / "_dump_0"
    path.write_text(text.replace("FILLED", r"\u005a" + "Z" * 4000))
    assert progress(facts_of(flight_recorder.KIND, path))[0].backend == "nccl"
