"""Dumps made to harm their reader: each ends in lines, within bounds of time and memory."""

import json
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triage.flight_dumps import dump, entry

# CPU seconds, so that a busy machine does not matter. The limits are far above what is needed.
CPU = 60
MIB = 1024
READ = f"""
import json, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_CPU, ({CPU}, {CPU}))
from oddrank.triage.evidence import HEAD, Item, Notes, flight_recorder
path = Path(sys.argv[1])
with path.open("rb") as file:
    item = Item(path.name, path, path.stat().st_size, file.read(HEAD))
assert flight_recorder.sniff(item)
notes = Notes()
facts = list(flight_recorder.read([item], notes))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([len(facts), notes.lines, peak / 1024]))
"""


def read(path: Path) -> tuple[int, list[str]]:
    """Reads a dump in a process of its own. Returns the number of facts, and the notes."""
    command = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    count, lines, peak = json.loads(done.stdout)
    assert peak < MIB, f"{peak:.0f} MiB"
    assert all(len(line) < 400 for line in lines)
    return count, lines


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
    """20,000 different stacks of 200 frames, whose texts are long, and one."""
    long = "f" * 4000
    frames = [{"name": long, "filename": long, "line": number} for number in range(32)]
    entries = []
    for seq in range(1, 20_001):
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


BOMBS: tuple[Callable[[int], bytes], ...] = (
    sizes_of_sizes, one_list_of_ranks, one_text_in_all_frames, groups_of_all_ranks,
    config_that_holds_itself,
)  # fmt: skip


@pytest.mark.parametrize("protocol", [0, 2])
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_dump_that_refers_to_itself_without_end_takes_little(
    tmp_path: Path, bomb: Callable[[int], bytes], protocol: int
) -> None:
    path = tmp_path / "_dump_0"
    path.write_bytes(bomb(protocol))
    read(path)


DEEP = 1_000_000


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x80\x02" + b"](" * DEEP, "cut off"),
        (b"\x80\x02" + b"](" * DEEP + b"e" * DEEP + b".", "no flight-recorder dump"),
        (b"\x80\x02" + b"}(N" * DEEP + b"u" * DEEP + b".", "no flight-recorder dump"),
        (b"\x80\x02N" + b"\x85" * DEEP + b".", "no flight-recorder dump"),
        (b'{"entries": ' + b"[" * DEEP, "1,000 deep"),
        (b'{"entries": ' + b'{"a":' * DEEP, "1,000 deep"),
        (b"\x80\x02" + b"(" * 5_000_000, "more marks than the limit"),
        (b"\x80\x02]q\x00" + b"h\x00" * 5_000_000, "more stack than the limit"),
        (b"\x80\x02" + b"N\x94" * 9_000_000, "limit"),
        (b"\x80\x02Nr\xff\xff\xff\xff.", "more remembered values than the limit"),
        (b"\x80\x02X" + struct.pack("<I", 0xFFFFFFFF) + b"a", "cut off"),
        (b"\x80\x04\x8d" + struct.pack("<Q", 1 << 63) + b"a", "cut off"),
        (b"\x80\x04\x8e" + struct.pack("<Q", (1 << 64) - 1) + b"a", "cut off"),
        (b"\x80\x02\x8b" + struct.pack("<i", (1 << 31) - 1) + b"a", "cut off"),
        (b"\x80\x04\x95" + struct.pack("<Q", (1 << 64) - 1), "cut off"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_depths_and_lengths_that_no_dump_has_give_a_line(
    tmp_path: Path, content: bytes, why: str
) -> None:
    path = tmp_path / "_dump_0"
    path.write_bytes(content.replace(b'{"entries": ', b'{"pg_config": 1, "entries": '))
    count, lines = read(path)
    assert count == 0
    assert lines
    assert why in " ".join(lines)


NUMBERS = [float("nan"), float("inf"), -1e308, 1 << 70, -(1 << 70), (1 << 63) - 1, -(1 << 63)]


@pytest.mark.parametrize("protocol", [0, 2, 4, None])
def test_no_number_of_a_dump_is_trusted(tmp_path: Path, protocol: int | None) -> None:
    """Each number stands once in each place for one."""
    keys = [key for key, value in entry("send 0->1", 1).items() if isinstance(value, int)]
    sent = entry("send 0->1", 1, state="scheduled")
    entries = [{**sent, key: number} for key in keys for number in NUMBERS]
    entries += [entry("all_reduce", 2, size=(n, n)) for n in NUMBERS]
    for number in NUMBERS:
        counters = dict.fromkeys(
            ("last_enqueued_collective", "last_started_collective", "last_completed_collective"),
            number,
        )
        made = {
            **dump(*entries, groups={"0": ("default_pg", [0, number]), "1": ("x", [number])}),
            "pg_status": {"0": counters, str(number): counters},
            "rank": number, "world_size": number, "pid": number,
        }  # fmt: skip
        path = tmp_path / "_dump_0"
        if protocol is None:
            path.write_text(json.dumps(made))
        else:
            path.write_bytes(pickle.dumps(made, protocol))
        read(path)


def test_texts_that_are_no_utf_8_reach_nobody_raw(tmp_path: Path) -> None:
    raw = b"\xff\xfe\xed\xa0\x80\x1b[31m\x00"
    marker = b"MARKMARKMAR"
    made = dump(
        entry("all_reduce", 1, state="scheduled", desc=marker.decode(), dtype=marker.decode()),
        groups={marker.decode(): (marker.decode(), [0, 1])},
    )
    path = tmp_path / "_dump_0"
    path.write_bytes(pickle.dumps(made, 2).replace(marker, raw))
    count, _ = read(path)
    assert count > 0
    path.write_bytes(json.dumps(made).encode().replace(marker, raw))
    count, _ = read(path)
    assert count > 0
