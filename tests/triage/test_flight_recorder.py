"""Checks what dumps of the flight recorder say: formats, versions, whose they are, progress."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oddrank.triage.evidence import flight_recorder
from oddrank.triage.facts import Identity, Mismatch, Process, World
from oddrank.triage.judges import waits
from oddrank.triage.view import view
from triage.facts_of import facts_of, item_of, of_kind, read_all
from triage.flight_dumps import (
    NS,
    Dump,
    dump,
    entry,
    facts,
    healthy,
    progress,
    status,
    without,
    write,
)
from triage.told import shown, told, verdicts

INJECTED = [9, 14]
TWO, THREE = ({"0": ("default_pg", list(range(size)))} for size in (2, 3))


read = partial(read_all, flight_recorder.KIND)


@pytest.mark.needs("samples")
@pytest.mark.parametrize("name", ["gpu_error_2nd", "lock_gil_1st"])
def test_the_injected_ranks_of_the_samples_are_awaited_and_wait_for_nobody(
    samples: Path, name: str, golden: Any
) -> None:
    folder = samples / "fr_dumps_nvrx" / name
    found, notes = read(*sorted(folder.iterdir()))
    assert notes == []
    assert [fact.size for fact in of_kind(found, World)] == [16]
    (suspect,) = waits.judge(view(found))
    assert [process.rank for process in suspect.processes] == INJECTED
    assert suspect.cause.name == ("gpu-stopped" if name == "gpu_error_2nd" else "not-entered")
    golden(told([suspect]))  # ranks 1 and 6 are in no group of the call: they wait for others
    if name == "lock_gil_1st":  # a rank without entries: its counters have its groups' order
        stuck = progress(found, "37")[9]
        assert (stuck.enqueued, stuck.completed) == (88683, 88683)
        assert (stuck.open, stuck.whole) == ((), True)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5, None])
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
    assert (call.seq, call.op, call.sizes) == (2, "all_gather", "8x4")
    assert (call.dtype, call.bytes) == ("Float", 128)
    assert call.since == pytest.approx((NS + 2_000_000) / 1e9)
    assert [(frame.function, frame.line) for frame in call.site] == [("step", 7), ("main", 90)]


def versions() -> list[Dump]:
    made = []
    for number in range(1, 11):
        calls = entry("all_reduce", 1), entry("all_reduce", 2, state="started")
        gone = ["thread_name", "thread_id"] * (number < 9) + ["timeout_ms"] * (number < 5)
        one = dump(*(without(call, *gone) for call in calls), version=f"2.{number}")
        made.append(without(one, *["pg_status"] * (number < 2)))
    return made


def back_ends() -> list[Dump]:
    names = ("nccl", "nccl2", "nccl-lazy", "gloo", "xccl", "rccl", "ncclx", "rcclx", "hccl")
    return [dump(entry("_all_gather_base", 1, state="scheduled", backend=b)) for b in names]


def counted(low: int, high: int, *counters: int) -> Dump:
    """Returns a dump of open calls, and what its counters say of them."""
    entries = [
        entry("all_reduce", n, record_id=n + 500, state="scheduled") for n in range(low, high)
    ]
    return {**dump(*entries), "pg_status": {"0": status(*counters)}}


def batch(number: int, state: str) -> list[Dump]:
    more = {"state": "scheduled", "p2p": number, "retired": False}
    return [
        entry("send 0->1", 0, **more), entry("recv 0<-1", 0, **more),
        entry("coalesced", 0, size=None, **{**more, "state": state}, is_p2p=True),
    ]  # fmt: skip


def torchcomms(order: str, last: str) -> Dump:
    entries = [
        entry("all_reduce", 0, group=name, desc="ncclx", backend="ncclx", collective_seq_id=number,
              record_id=number, op_id=number)
        for number, name in enumerate(order)
    ]  # fmt: skip
    entries[-1].update(state=last, retired=last == "completed")
    return dump(*entries, groups={"a": ("ncclx", [0, 1]), "b": ("ncclx", [0, 1])})


def named(size: int, *ranks: int) -> Dump:
    short = entry("all_reduce", 1, group="tp", desc="TP", size=(size,))
    return dump(short, groups={"0": ("default_pg", [0, 1, 2, 3]), "tp": ("TP", list(ranks))})


def messages(rank: int, *states: str, first: int = 0) -> Dump:
    """Returns batches of a send to and a recv from the other one of two ranks."""
    other = 1 - rank
    made: list[Dump] = []
    for number, state in enumerate(states):
        for way, op in enumerate((f"send {rank}->{other}", f"recv {rank}<-{other}")):
            more = {"record_id": first + 2 * number + way, "state": state}
            made.append(entry(op, 0, p2p=first + 2 * number + way + 1, **more))
    return dump(*made, groups=TWO)


def one_way(*sent: int, before: int) -> list[Dump]:
    more = {"state": "started"}
    dumps = [[entry(op, 0, p2p=n, record_id=n + before, **more) for n in sent]
             for op in ("send 0->1", "recv 1<-0")]  # fmt: skip
    return [dump(*made, groups=TWO) for made in dumps]


def made_again(last: int) -> Dump:
    old = [entry("all_reduce", seq) for seq in range(1, 51)]
    new = [
        entry("all_reduce", seq, pg_id=1, record_id=49 + seq, op_id=seq,
              state="completed" if seq < 2 else "started")
        for seq in range(1, last + 1)
    ]  # fmt: skip
    return {**dump(*old, *new), "pg_status": {"0": status(50, 50, 50), "1": status(last, 1, last)}}


def one_counter() -> list[Dump]:
    old = entry("all_reduce", 1), entry("all_reduce", 2, state="scheduled")
    keys = ("collective_seq_id", "p2p_seq_id", "process_group", "is_p2p", "retired")
    return [without({**e, "seq_id": e["collective_seq_id"]}, *keys) for e in old]


def unclosed() -> Dump:
    parts = [entry("_broadcast_oop", 1, state="scheduled", size=(n, 2)) for n in (1, 2, 3)]
    return dump(*parts, entry("all_reduce", 2))


def issued(*ops: str, **more: Any) -> Dump:
    """Returns a dump of open calls in this order."""
    more = {"state": "scheduled", **more}
    return dump(*(entry(op, seq, **more) for seq, op in enumerate(ops, 1)), groups=THREE)


def steps(last: str) -> Dump:
    """Returns a dump of twelve calls that are over, and an open one."""
    ops = [("all_reduce", "all_reduce", "broadcast")[seq % 3] for seq in range(12)]
    over = [entry(op, seq) for seq, op in enumerate(ops, 1)]
    return dump(*over, entry(last, 13, state="scheduled"), groups=THREE)


FILLED = issued("coalesced", size=None)
BEYOND = dump(entry("coalesced", 1, size=None, state="scheduled"),
              entry("all_reduce", 2, state="scheduled"), groups=THREE)  # fmt: skip
DTYPES = [issued("all_reduce", dtype=dtype) for dtype in ("", "Float", "Half")]
DIFFER: dict[str, list[Any]] = {
    "the first difference, and who issued what":
        [steps("all_reduce"), steps("broadcast"), steps("all_reduce")],
    "the history of a group says which of two calls is usual":
        [steps("broadcast"), steps("all_reduce")],
    # Sizes and dtypes are compared by what matters to the operation.
    **{f"{op} of {size} {dtype}": [issued(op), issued(op, size=size, dtype=dtype)]
       for op, size, dtype in (
           ("all_reduce", (8, 8), "Float"), ("all_reduce", (4, 8), "Float"),
           ("all_reduce", (8, 4), "Half"), ("all_to_all", (9, 9), "Float"),
           ("all_to_all", (9, 9), "Half"), ("barrier", (1,), "Half"),
           ("all_gather_v", (7,), "Float"), ("coalesced", None, "Float"))},
    "another order": [issued("all_reduce", "broadcast"), issued("broadcast", "all_reduce")],
    "calls of other numbers are not compared":
        [issued("all_reduce"), dump(entry("broadcast", 2, state="scheduled"), groups=THREE)],
    # What is open at the end of a coalesced group is excused, on whichever side.
    "a coalesced group that is being filled": [FILLED, issued("all_reduce")],
    "inside a coalesced group, and beyond": [issued("all_reduce"), BEYOND],
    "beyond, and inside": [BEYOND, issued("all_reduce")],
    "on without a coalesced group": [issued("all_reduce", "all_reduce"), BEYOND],
    "on without one, in the other order of files": [BEYOND, issued("all_reduce", "all_reduce")],
    **{f"an unknown dtype hides no difference, {turn}": [*DTYPES[turn:], *DTYPES[:turn]]
       for turn in range(3)},
}  # fmt: skip
WAITING = dump(entry("all_reduce", 1, state="scheduled"))
DUMPS: dict[str, list[Any]] = {
    **{f"version {made['version']}": [made] for made in versions()},
    **{made["entries"][0]["profiling_name"]: [made] for made in back_ends()},
    "one counter, and no group": [one_counter()],
    "groups of one name are told apart by their ranks":
        [named(4, 0, 1), named(4, 0, 1), named(8, 2, 3), named(8, 2, 3)],
    "counters know more than the ring": [counted(100, 140, 139, 89)],
    "a counter behind the entries: the host is inside the call":
        [{**dump(entry("all_reduce", 1), entry("all_reduce", 2, state="scheduled")),
          "pg_status": {"0": status(1, 1)}}],
    "operations of a coalesced group take the state of its end":
        [dump(*batch(1, "completed"), groups=TWO)],
    "and the next such group is open":
        [dump(*batch(1, "completed"), *batch(2, "scheduled"), groups=TWO)],
    "parts without an end, and a later call": [unclosed(), unclosed()],
    "retired by gloo":
        [dump(entry("all_reduce", 1, state="scheduled", retired=True, backend="gloo"))],
    "a rank without entries waits for nobody": [WAITING, WAITING, dump(), WAITING],
    "torchcomms' numbers are per communicator":
        [torchcomms("aabab", "scheduled"), torchcomms("aaba", "completed")],
    # Both ranks send first: the message of each is the first of its way, and the second call.
    "messages are numbered per way": [messages(rank, "completed", "started") for rank in (0, 1)],
    "a ring that has lost its first entries does not say how many went which way":
        [messages(rank, "started", first=90) for rank in (0, 1)],
    "texts reach the facts unharmed":
        [dump(entry("all_reduce", 1, group="\x1b[1m\0"), groups={"\x1b[1m\0": ("x?", [0])})],
    "one way": one_way(91, before=-1),
    "one way, several": one_way(4, 5, before=9),
    "a group that was made again counts from one": [made_again(2), made_again(1)],
}  # fmt: skip


def test_what_dumps_say_of_their_ranks_and_where_they_differ(tmp_path: Path, golden: Any) -> None:
    said = []
    for name, dumps in {**DUMPS, **DIFFER}.items():
        found = facts(tmp_path, *dumps)
        if name in DIFFER:
            found = of_kind(found, Mismatch)
        said += [name, *(f"  {shown(fact)}" for fact in found)]
        if name in DUMPS:
            said += [f"  -> {verdict}" for verdict in verdicts(waits.judge(view(found)))]
    golden("\n".join(said))


def test_the_rank_is_read_from_the_name_or_the_content(tmp_path: Path, golden: Any) -> None:
    for name in (
        "_dump_3", "nccl_trace_rank_3", "comm_lib_trace_rank_3.pickle", "node7_rank_3",
        "host_rank3.json", "torchcomm_fr_trace_3", "job12_quorum_41/3", "dump_3_node0002",
        "rank3_2026-11-23.pkl",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        found, _ = read(write(tmp_path / name, healthy()))
        assert list(progress(found)) == [3], name
    made = {**healthy(), "rank": 2, "hostname": "node7", "pid": 77}
    found, wins = read(write(tmp_path / "_dump_0", made))
    assert list(progress(found)) == [2]
    assert [f.process for f in of_kind(found, Identity)] == [Process(2, "node7", 77)]
    some = tmp_path / "some.bin"
    of_one = healthy(groups={"0": ("default_pg", [0, 1, 2, 3]), "9": ("EXPERT", [2])})
    assert list(progress(read(write(some, of_one))[0])) == [2]
    message = dump(
        entry("recv 0<-1", 1, group="5", desc="PP", p2p=3, state="scheduled"),
        groups={"0": ("default_pg", [0, 1, 2, 3]), "5": ("PP", [1, 3])},
    )
    (call,) = progress(read(write(some, message))[0], "5")[1].open
    assert (call.op, call.peer, call.seq) == ("recv", 3, 3)
    found, nobody = read(write(some, healthy()))
    assert progress(found) == {}
    newest = write(tmp_path / "_dump_1", healthy(3)), write(tmp_path / "rank_1", healthy(5))
    found, older = read(*newest)
    assert progress(found)[1].enqueued == 5
    golden("\n".join([*wins, *nobody, *older]))


def test_other_files_are_left_to_others(tmp_path: Path) -> None:
    for content in (b"", b"{}", b"plain text", b"PK\x03\x04", b'{"a": 1}', b"\x80", b"\x80\x09"):
        path = tmp_path / "file"
        path.write_bytes(content)
        assert not flight_recorder.sniff(item_of(path))


@pytest.mark.parametrize("protocol", [2, 4, None])
def test_groups_that_only_numbers_name_stay_apart(tmp_path: Path, protocol: int | None) -> None:
    def old(seq: int, pg_id: int, op: str, state: str = "completed") -> Dump:
        made = {**entry(op, seq, pg_id=pg_id, state=state), "seq_id": seq}
        return without(made, "collective_seq_id", "p2p_seq_id", "op_id", "process_group")

    rows = [old(1, 0, "all_reduce"), old(1, 1, "broadcast"), old(2, 1, "broadcast", "scheduled")]
    made = {"version": "2.0", "entries": rows}
    found = facts_of(flight_recorder.KIND, write(tmp_path / "_dump_0", made, protocol))
    assert {name: progress(found, name)[0].enqueued for name in ("0", "1")} == {"0": 1, "1": 2}


def test_texts_with_escapes_outlive_their_entries(tmp_path: Path) -> None:
    rows = [entry("my_op", 1), {"a": 0, "b": "FILLED"}]
    text = json.dumps(dump(*rows)).replace("nccl:", r"ncc\u006c:")
    path = tmp_path / "_dump_0"
    path.write_text(text.replace("FILLED", r"\u005a" + "Z" * 4000))
    assert progress(facts_of(flight_recorder.KIND, path))[0].backend == "nccl"
