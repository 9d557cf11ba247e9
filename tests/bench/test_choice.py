"""What NCCL chose, from its log: every version's lines, and a log that is open for one run only."""

from pathlib import Path

import pytest

from bench.nccl_process import in_process, make_fake, real_nccl
from oddrank.bench.choice import parse, text

PREFIX = "node1:4187:4187 [0] NCCL INFO "
# The formats of NCCL 2.20 to 2.30, and what a line of each tells.
LINES = {
    "8192 Bytes -> Algo 1 proto 0 time 11.400000": {"algorithm": "RING", "protocol": "LL"},
    "AllGather: 37756928 Bytes -> Algo 1 proto 2 time 2860.208008":
        {"algorithm": "RING", "protocol": "SIMPLE"},
    "ReduceScatter: 8 Bytes -> Algo 6 proto 2 time 9.1": {"algorithm": "PAT", "protocol": "SIMPLE"},
    "AllReduce: 1048576 Bytes -> Algo NVLS_TREE proto SIMPLE channel{Lo..Hi}={0..15}":
        {"algorithm": "NVLS_TREE", "protocol": "SIMPLE", "channels": 16},
    "Broadcast:    32768 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={2..2}":
        {"algorithm": "RING", "protocol": "LL128", "channels": 1},
    "AllReduce [Symmetric]: 4096 Bytes -> Kernel AllReduce_AGxLL_R nchannels 4 nthreads 512":
        {"algorithm": "Symmetric", "channels": 4, "kernel": "AllReduce_AGxLL_R"},
    "AllGather [Symmetric]: 64 Bytes -> Kernel AllGather_LL nchannels 1 nthreads 64 nWorks 1":
        {"algorithm": "Symmetric", "channels": 1, "kernel": "AllGather_LL"},
    "AllGather [Copy Engine]: 1024 Bytes -> cudaMemcpy; CE synchronization with NVLS":
        {"algorithm": "Copy Engine"},
    "AlltoAll [Hierarchical CE]: 1024 Bytes -> RMA proxy + CE": {"algorithm": "Hierarchical CE"},
    # What is strange in a line is left out.
    "AllReduce: 8 Bytes -> Algo RING proto 9 channel{Lo..Hi}={7..3}": {"algorithm": "RING"},
}  # fmt: skip


def test_the_lines_of_every_version_are_read(golden):
    for line, choice in LINES.items():
        for prefix in (PREFIX, "", "[2026-11-23 12:14:39] " + PREFIX):
            assert parse(f"{prefix}{line}\n") == choice, line
    golden("\n".join(f"{text(choice):24}{line}" for line, choice in LINES.items()))


def test_no_choice_is_made_up_of_other_lines():
    for line in (
        "",
        "Algorithm   |                            Tree                  |",
        "AllReduce: opCount 0 sendbuff 0x7f recvbuff 0x7f count 8 datatype 7 op 0 root 0",
        "AllReduce: 8 Bytes -> Algo Unknown proto Unknown channel{Lo..Hi}={0..0}",
        "8 Bytes -> Algo 12 proto 0 time 1.0",
        "8 Bytes -> Algo -1 proto -1 time 0.0",
        "AllReduce: 8 Bytes -> Al",
        "AllReduce: tuner chunk size 4096 exceeds buffer max 2048, clamping",
    ):
        assert parse(PREFIX + line) is None, line


def test_the_last_line_counts():
    lines = [f"{PREFIX}AllReduce: 8 Bytes -> Algo {name} proto LL" for name in ("TREE", "RING")]
    assert parse("\n".join([*lines, "cut: 8 Byt"])) == {"algorithm": "RING", "protocol": "LL"}


RUNS = """
from oddrank.bench import choice
library = ctypes.CDLL(_native.load_nccl()["path"])
library.ncclAllReduce(0, 0, ctypes.c_size_t(2))
found = choice.seen(lambda: library.ncclAllReduce(0, 0, ctypes.c_size_t(16)))
library.ncclAllReduce(0, 0, ctypes.c_size_t(3))
answer = [found, {name: os.environ.get(name) for name in ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS")}]
"""
RING = {"algorithm": "RING", "protocol": "LL", "channels": 16}
NONE = {"NCCL_DEBUG": None, "NCCL_DEBUG_SUBSYS": None}


@pytest.mark.needs("cuda-build")
def test_the_log_is_open_for_one_run_only_and_leaves_nothing_behind(tmp_path: Path):
    fake, logs = make_fake(tmp_path / "fake"), tmp_path / "logs"
    logs.mkdir()
    environ = {"ODDRANK_NCCL_LIBRARY": str(fake), "TMPDIR": str(logs)}
    answer, printed = in_process(RUNS, **environ)
    assert answer == [RING, NONE]
    assert not list(logs.iterdir())
    assert not printed
    set_before = {"NCCL_DEBUG": "WARN", "NCCL_DEBUG_SUBSYS": "NET"}
    assert in_process(RUNS, **environ, **set_before)[0] == [RING, set_before]


@pytest.mark.needs("cuda-build")
def test_an_nccl_that_cannot_open_its_log_again_tells_nothing_but_what_the_user_logs(
    tmp_path: Path,
):
    without = make_fake(tmp_path / "without", "-DWITHOUT_RESET")
    assert in_process(RUNS, ODDRANK_NCCL_LIBRARY=str(without))[0] == [None, NONE]
    for fake in (without, make_fake(tmp_path / "fake")):
        log = fake.with_name("log")
        users = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(log)}
        assert in_process(RUNS, ODDRANK_NCCL_LIBRARY=str(fake), **users)[0][0] == RING
        assert [line.split()[5] for line in log.read_text().splitlines()] == ["8", "64", "12"]


RANKS = """
from types import SimpleNamespace
from oddrank.bench import native, sweep
library = ctypes.CDLL(_native.load_nccl()["path"])

class Operation(native.NativeOperation):
    def __init__(self): ...
    def once(self): library.ncclAllReduce(0, 0, ctypes.c_size_t(2))
    def mean(self, n): library.ncclAllReduce(0, 0, ctypes.c_size_t(8 * n))

context = SimpleNamespace(step=lambda *_, **__: None)
answer = [
    sweep._chosen(SimpleNamespace(rank=rank, context=context), Operation(),
                  sweep.SweepOptions(0.01, 1, 1, graph=graph, algorithm=True))
    for rank in (0, 1) for graph in (0, 4)
]
"""


@pytest.mark.needs("cuda-build")
def test_the_first_rank_reads_it_and_a_graph_is_captured_for_it(tmp_path: Path):
    answer, _ = in_process(RANKS, ODDRANK_NCCL_LIBRARY=str(make_fake(tmp_path)))
    assert answer == [{**RING, "channels": 2}, {**RING, "channels": 8}, None, None]


REAL = """
from oddrank.bench import choice
reset, cuda = choice._reset_function(), _native.cuda()

def fail():  # NCCL logs why
    error_of(cuda.Communicator, cuda.nccl_unique_id(), 0, 1, seconds=5)

fail()
with choice.opened(reset, "ALL") as log:
    fail()
    inside = log.read_text()
fail()
answer = [inside, log.exists()]
"""


@pytest.mark.needs("cuda-build")
def test_the_real_nccl_writes_to_our_log_and_then_to_nowhere():
    if in_process("answer = _native.cuda().driver_version()")[0]:
        pytest.skip("this machine has a driver")
    (inside, exists), printed = in_process(REAL, ODDRANK_NCCL_LIBRARY=real_nccl())
    assert "NCCL WARN" in inside
    assert not exists
    assert "NCCL" not in printed
