"""Dumps made to harm their reader: each ends in lines, within bounds of time and memory."""

import json
import os
import pickle
import struct
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oddrank.inputs import Notes
from oddrank.triage.evidence import flight_recorder
from oddrank.triage.facts import Progress
from texts import texts
from triage.facts_of import item_of, noted, of_kind
from triage.flight_dumps import dump, entry, healthy, progress, write

# CPU seconds, so that a busy machine does not matter. The limits are far above what is needed.
CPU = 60
MIB = 1024
READ = texts(__file__)["read"].replace("CPU, CPU", f"{CPU}, {CPU}")


def read(*paths: Path) -> list[tuple[int, list[str]]]:
    """Reads dumps in a process of its own. Returns the number of facts and the notes of each."""
    found = []
    for line in python(READ, *paths).splitlines():
        count, notes, peak = json.loads(line)
        assert peak < MIB, f"{peak:.0f} MiB"
        assert all(len(note) < 400 for note in notes)
        found.append((count, notes))
    assert len(found) == len(paths)
    return found


def python(code: str, *paths: Path) -> str:
    command = [sys.executable, "-c", code, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout


def sizes_of_sizes(protocol: int) -> bytes:
    """50,000 entries that are one, with 30,000 tensors that are one, of 30,000 dimensions."""
    one = entry("all_reduce", 1, state="scheduled")
    one["input_sizes"] = [[1] * 30_000] * 30_000
    return pickle.dumps(dump(*[one] * 50_000), protocol)


def one_list_of_ranks(protocol: int) -> bytes:
    """60,000 groups that share a megabyte of ranks."""
    about = {"desc": "a" * 4000, "ranks": str(list(range(150_000)))}
    made = dump(entry("all_reduce", 1))
    made["pg_config"] = {f"g{number}": about for number in range(60_000)}
    return pickle.dumps(made, protocol)


def one_text_in_all_frames(protocol: int) -> bytes:
    """5,000 different stacks of 200 frames, whose texts are long, and one."""
    long = "f" * 4000
    frames = [{"name": long, "filename": long, "line": number} for number in range(32)]
    entries = []
    for seq in range(1, 5001):
        chosen = [frames[(seq >> (bit % 16)) % 32] for bit in range(200)]
        entries.append(entry("all_reduce", seq, frames=chosen))
    return pickle.dumps(dump(*entries), protocol)


def groups_of_all_ranks(protocol: int) -> bytes:
    """Thousands of groups without ranks, each said to be of the whole, huge job."""
    entries = [
        entry("all_reduce", 1, group=f"g{number}", desc="default_pg", state="scheduled")
        for number in range(3000)
    ]
    return pickle.dumps({**dump(*entries, groups={}), "rank": 3, "world_size": 1 << 62}, protocol)


def config_that_holds_itself(protocol: int) -> bytes:
    config: dict[str, Any] = {}
    for number in range(20_000):
        config[f"g{number}"] = config
    return pickle.dumps({**dump(entry("all_reduce", 1)), "pg_config": config}, protocol)


def one_name_of_operations_of_all_sizes(protocol: int) -> bytes:
    """120,000 operations whose long name is one, each of a group of another size."""
    one = {**entry("all_reduce", 1), "profiling_name": "nccl:all_gather" + "n" * 4000}
    one["input_sizes"] = [[1]]
    entries = [{**one, "output_sizes": [[size]]} for size in range(1, 120_000)]
    return pickle.dumps(dump(*entries), protocol)


BOMBS: tuple[Callable[[int], bytes], ...] = (
    sizes_of_sizes, one_list_of_ranks, one_text_in_all_frames, groups_of_all_ranks,
    config_that_holds_itself, one_name_of_operations_of_all_sizes,
)  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_dump_that_refers_to_itself_without_end_takes_little(
    tmp_path: Path, bomb: Callable[[int], bytes]
) -> None:
    path = tmp_path / "_dump_0"
    path.write_bytes(bomb(2))
    read(path)


class Hostile:
    def __init__(self, made: tuple[Any, ...]) -> None:
        self.made = made

    def __reduce__(self) -> tuple[Any, ...]:
        return self.made


OPCODES = {  # pickles that are not plain data, by the first such opcode
    "GLOBAL": b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00lstR.",
    "STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "INST": b"\x80\x02(ios\nsystem\n.",
    "OBJ": b"\x80\x02(No.", "REDUCE": b"\x80\x02N)R.", "BUILD": b"\x80\x02N}b.",
    "NEWOBJ": b"\x80\x02N)\x81.", "NEWOBJ_EX": b"\x80\x04N)}\x92.", "PERSID": b"\x80\x02P1\n.",
    "BINPERSID": b"\x80\x02NQ.", "EXT1": b"\x80\x02\x82\x01.", "EXT2": b"\x80\x02\x83\x01\x00.",
    "EXT4": b"\x80\x02\x84\x01\x00\x00\x00.",
    "BYTEARRAY8": b"\x80\x05\x96\x01\x00\x00\x00\x00\x00\x00\x00a.",
    "NEXT_BUFFER": b"\x80\x05\x97.", "READONLY_BUFFER": b"\x80\x05N\x98.",
    "EMPTY_SET": b"\x80\x04\x8f.", "ADDITEMS": b"\x80\x04(\x90.", "FROZENSET": b"\x80\x04(\x91.",
    "POP": b"\x80\x02N0.", "POP_MARK": b"\x80\x02(1.", "DUP": b"\x80\x02N2.",
}  # fmt: skip


def test_an_opcode_beyond_plain_data_is_refused_by_name(tmp_path: Path, golden: Any) -> None:
    path = tmp_path / "_dump_0"
    said = []
    for opcode, content in OPCODES.items():
        found, (line,) = noted(flight_recorder.KIND, path, content)
        assert found == []
        assert line.startswith(f"_dump_0: refused: its opcode {opcode} ")
        said.append(line)
    golden("\n".join(said))


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_dump_that_would_run_code_runs_none(tmp_path: Path, protocol: int) -> None:
    flag = tmp_path / "flag"
    made = healthy()
    made["entries"].append(Hostile((os.system, (f"touch {flag}",))))
    for bad in (made, OrderedDict(healthy())):  # a class of Python's own, too
        path = tmp_path / "_dump_0"
        found, (line,) = noted(flight_recorder.KIND, path, pickle.dumps(bad, protocol))
        assert (found, flag.exists()) == ([], False)
        assert "refused" in line
        assert "import a name" in line


DAMAGED = (
    b"\x80\x02\x80\x09N.", b"\x80\x02\xff.", b"\x80\x02(((", b"\x80\x02h\x07.", b"\x80\x02e.",
    b"\x80\x02NN.", b"\x80\x02}(N", b"\x80\x02\x8b\xff\xff\xff\xff.", b"\x80\x02N.",
    b"\x80\x02X\xff\xff\xff\xffab", b"\x80\x04\x8d" + b"\xff" * 8 + b"ab",
    b"\x80\x02r\xff\xff\xff\x7f.", b"\x80\x02Nr\xff\xff\xff\x7f.",
    b"\x80\x02" + b"(" * 5_000_000, b"\x80\x02" + b"N" * 5_000_000,
    b'{"pg_config": {', b'{"pg_config": }', b'{"pg_config": {} "a"', b'{"pg_config" 1}',
    b'{"pg_config": "\\u12"}', b'{"profiling_name": 1}', b'{"pg_config": ' + b"[" * 100_000,
)  # fmt: skip


def test_damaged_files_give_a_line_and_no_facts(tmp_path: Path, golden: Any) -> None:
    path = tmp_path / "_dump_0"
    said = []
    for content in DAMAGED:
        found, notes = noted(flight_recorder.KIND, path, content)
        assert of_kind(found, Progress) == []
        assert notes, content[:20]
        said += [str(content[:24]), *notes]
    golden("\n".join(said))


@pytest.mark.parametrize("protocol", [2, 4, None])
def test_what_is_before_a_cut_is_used_and_nothing_is_guessed_of_what_it_goes_through(
    tmp_path: Path, protocol: int | None, golden: Any
) -> None:
    path = tmp_path / "_dump_1"
    whole = write(path, healthy(40), protocol).read_bytes()
    found, notes = noted(flight_recorder.KIND, path, whole[: len(whole) // 2])
    own = progress(found)[1]
    assert 5 < (own.enqueued or 0) < 40
    assert not own.whole
    golden("\n".join(notes))
    # Gloo's operations are over when they are retired, whatever their state says.
    rows = [entry("all_reduce", n, state="scheduled", retired=True, backend="gloo") for n in (1, 2)]
    whole = write(path, dump(*rows), protocol).read_bytes()
    for end in range(protocol or 1, len(whole), 3):
        path.write_bytes(whole[:end])
        items = [item for item in [item_of(path)] if flight_recorder.sniff(item)]
        for fact in flight_recorder.read(items, Notes()):
            assert not isinstance(fact, Progress) or fact.open == (), end


def test_a_file_that_is_gone_gives_a_line(tmp_path: Path) -> None:
    item = item_of(write(tmp_path / "_dump_0", healthy()))
    item.path.unlink()
    notes = Notes()
    assert list(flight_recorder.read([item], notes)) == []
    assert "No such file" in notes.lines[0]


DEEP = 1_000_000
AS_LONG_AS = (
    b"\x80\x02" + b"](" * DEEP, b"\x80\x02" + b"](" * DEEP + b"e" * DEEP + b".",
    b"\x80\x02" + b"}(N" * DEEP + b"u" * DEEP + b".", b"\x80\x02N" + b"\x85" * DEEP + b".",
    b'{"pg_config":1, "entries": ' + b"[" * DEEP, b'{"pg_config":1, "entries": ' + b'{"a":' * DEEP,
    b"\x80\x02" + b"(" * 5_000_000, b"\x80\x02]q\x00" + b"h\x00" * 5_000_000,
    b"\x80\x02" + b"N\x94" * 9_000_000, b"\x80\x02Nr\xff\xff\xff\xff.",
    b"\x80\x02X" + struct.pack("<I", 0xFFFFFFFF) + b"a",
    b"\x80\x04\x8d" + struct.pack("<Q", 1 << 63) + b"a",
    b"\x80\x04\x8e" + struct.pack("<Q", (1 << 64) - 1) + b"a",
    b"\x80\x02\x8b" + struct.pack("<i", (1 << 31) - 1) + b"a",
    b"\x80\x04\x95" + struct.pack("<Q", (1 << 64) - 1),
)  # fmt: skip


@pytest.mark.timeout(600)
def test_depths_and_lengths_that_no_dump_has_give_a_line(tmp_path: Path, golden: Any) -> None:
    paths = []
    for number, content in enumerate(AS_LONG_AS):
        paths.append(tmp_path / f"_dump_{number}")
        paths[-1].write_bytes(content)
    found = read(*paths)
    assert [count for count, _ in found] == [0] * len(paths)
    assert all(lines for _, lines in found)
    said = [line for content, (_, lines) in zip(AS_LONG_AS, found, strict=True)
            for line in (str(content[:24]), *lines)]  # fmt: skip
    golden("\n".join(said))


NUMBERS = [float("nan"), float("inf"), -1e308, 1 << 70, -(1 << 70), (1 << 63) - 1, -(1 << 63)]


@pytest.mark.parametrize("protocol", [2, 4, None])
def test_no_number_of_a_dump_is_trusted(tmp_path: Path, protocol: int | None) -> None:
    """Each number stands once in each place for one."""
    keys = [key for key, value in entry("send 0->1", 1).items() if isinstance(value, int)]
    sent = entry("send 0->1", 1, state="scheduled")
    entries = [{**sent, key: number} for key in keys for number in NUMBERS]
    entries += [entry("all_reduce", 2, size=(n, n)) for n in NUMBERS]
    paths = []
    for rank, number in enumerate(NUMBERS):
        counters = dict.fromkeys(
            ("last_enqueued_collective", "last_started_collective", "last_completed_collective"),
            number,
        )
        made = {
            **dump(*entries, groups={"0": ("default_pg", [0, number]), "1": ("x", [number])}),
            "pg_status": {"0": counters, str(number): counters},
            "rank": number, "world_size": number, "pid": number,
        }  # fmt: skip
        paths.append(write(tmp_path / f"_dump_{rank}", made, protocol))
    read(*paths)


def test_texts_that_are_no_utf_8_reach_nobody_raw(tmp_path: Path) -> None:
    raw = b"\xff\xfe\xed\xa0\x80\x1b[31m\x00"
    marker = b"MARKMARKMAR"
    made = dump(
        entry("all_reduce", 1, state="scheduled", desc=marker.decode(), dtype=marker.decode()),
        groups={marker.decode(): (marker.decode(), [0, 1])},
    )
    path = tmp_path / "_dump_0"
    for content in (pickle.dumps(made, 2), json.dumps(made).encode()):
        path.write_bytes(content.replace(marker, raw))
        assert read(path)[0][0] > 0


FEW_THREADS = texts(__file__)["few threads"]


def test_fewer_threads_than_asked_for_are_enough(tmp_path: Path) -> None:
    """Memory for about three stacks is left: no more threads can start."""
    paths = [tmp_path / f"_dump_{rank}" for rank in range(64)]
    for path in paths:
        path.write_bytes(pickle.dumps(dump(entry("all_reduce", 1)), 2))
    assert int(python(FEW_THREADS, *paths)) > 0


def test_numbers_that_would_meet_in_one_bucket_cost_no_more(tmp_path: Path) -> None:
    """Multiples of a number of buckets: without a good hash this takes minutes."""
    row = (
        '{{"profiling_name":"nccl:all_reduce","state":"completed","seq_id":{0},"pg_id":{1},'
        '"process_group":["0","default_pg"]}}'
    )
    rows = ",".join(row.format(n, n * 351_061) for n in range(1, 340_000))
    path = tmp_path / "_dump_0"
    path.write_text('{"version":"2.1","pg_status":{},"entries":[' + rows + "]}")
    assert read(path)[0][0] > 0
