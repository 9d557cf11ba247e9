"""Core files: their notes name rank and signal, and a tool shows where the process stood."""

import os
import resource
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from oddrank.triage.evidence import cores
from oddrank.triage.facts import Death, Identity, Process, Stack
from texts import texts
from triage.facts_of import read_all

CRASH = texts(__file__)["crash"]
STACK = 0x7FFC_0000_0000
PATTERN = Path("/proc/sys/kernel/core_pattern")


def note(kind: int, body: bytes) -> bytes:
    return (
        struct.pack("<III", 5, len(body), kind) + b"CORE\0\0\0\0" + body + b"\0" * (-len(body) % 4)
    )


def core(number: int, environment: bytes, pid: int = 4711, thread: int = 4712) -> bytes:
    """Returns a core of two segments: notes, and a stack that holds the environment."""
    execfn = STACK + len(environment)
    notes = (
        note(1, struct.pack("<12xh18xi", number, thread) + bytes(300))
        + note(1, struct.pack("<12xh18xi", 0, pid) + bytes(300))
        + note(3, struct.pack("<24xi", pid) + bytes(108))
        + note(6, struct.pack("<QQQQ", 31, execfn, 0, 0))
        + note(0x46494C45, struct.pack("<QQQQQ", 1, 4096, 0, 0, 0) + b"/no/such/python\0")
    )
    stack = environment + b"/no/such/python\0"
    first = 64 + 2 * 56
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQ", 4, 62, 1, 0, 64, 0)
    header += struct.pack("<IHHHHHH", 0, 64, 56, 2, 0, 0, 0)
    table = struct.pack("<IIQQQQQQ", 4, 0, first, 0, 0, len(notes), 0, 0)
    table += struct.pack("<IIQQQQQQ", 1, 0, first + len(notes), STACK, 0, len(stack), len(stack), 0)
    return header + table + notes + stack


@pytest.fixture
def no_tools(monkeypatch):
    monkeypatch.setattr(cores.shutil, "which", lambda *_, **__: None)


@pytest.mark.usefixtures("no_tools")
def test_the_notes_name_rank_host_and_signal_and_a_line_says_what_stacks_take(tmp_path):
    (tmp_path / "core").write_bytes(core(11, b"\0A=1\0RANK=3\0HOSTNAME=node7\0"))
    (identity, death), (line,) = read_all(cores.KIND, tmp_path / "core")
    assert isinstance(identity, Identity)
    assert isinstance(death, Death)
    assert identity.process == death.process == Process(3, "node7", 4711)
    assert (death.how, death.signal, death.site) == ("signal", 11, ())
    assert "pip install pystack" in line
    (tmp_path / "core").write_bytes(core(0, b"\0B=2\0"))  # of a living process
    assert read_all(cores.KIND, tmp_path / "core")[0] == []


@pytest.mark.usefixtures("no_tools")
def test_a_core_that_is_cut_off_or_nonsense_is_a_line(tmp_path):
    whole = core(6, b"\0RANK=3\0")
    for size in (20, 64, 100, 200, 400, len(whole) - 20):
        (tmp_path / "core").write_bytes(whole[:size])
        _, lines = read_all(cores.KIND, tmp_path / "core")
        assert lines
    for at in range(16, 180):
        (tmp_path / "core").write_bytes(whole[:at] + b"\xff" * 8 + whole[at + 8 :])
        read_all(cores.KIND, tmp_path / "core")


@pytest.mark.skipif(PATTERN.read_text().strip() != "core", reason="needs cores in the folder")
@pytest.mark.parametrize("tool", ["pystack", "gdb"])
def test_the_core_of_a_rank_that_crashed_names_it_and_its_place(tmp_path, monkeypatch, tool):
    real = cores.shutil.which
    if not real(tool) and not real(tool, path=str(Path(sys.executable).parent)):
        pytest.skip(f"needs {tool}")
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    done = subprocess.run(
        [sys.executable, "-c", CRASH], cwd=tmp_path, check=False,
        env={**os.environ, "RANK": "5", "HOSTNAME": "node7"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (most, most)),
    )  # fmt: skip
    assert done.returncode == -11
    found = list(tmp_path.glob("core*"))
    if not found:
        pytest.skip("may not write cores")
    monkeypatch.setattr(
        cores.shutil, "which", lambda name, **more: real(name, **more) if name == tool else None
    )
    facts, lines = read_all(cores.KIND, found[0])
    (death,) = (fact for fact in facts if isinstance(fact, Death))
    assert (death.process.rank, death.process.host, death.signal) == (5, "node7", 11)
    assert not any(isinstance(fact, Stack) for fact in facts)
    assert death.site or tool == "gdb"  # gdb finds no names where the program has no symbols
    assert tool == "gdb" or (death.site[1].function, lines) == ("read_null", [])
