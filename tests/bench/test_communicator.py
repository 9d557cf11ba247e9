"""Making a communicator ends by its deadline, even if ranks are missing; the process goes on."""

from pathlib import Path

import pytest

from bench.nccl_process import in_process, make_fake

pytestmark = pytest.mark.needs("cuda-build")

MAKE = """
_native.load_nccl()
cuda = _native.cuda()
begin = time.monotonic()
said = error_of(cuda.Communicator, cuda.nccl_unique_id(), {rank}, 2, seconds={seconds}, **{more})
took = time.monotonic() - begin
if {aborted}:
    fake = ctypes.CDLL(os.environ["ODDRANK_NCCL_LIBRARY"])
    while not fake.fake_nccl_aborts():
        time.sleep(0.01)
answer = [said, took, len(cuda.nccl_unique_id())]
"""
# A deadline that comes only after all that ends before it, also on a busy machine.
LONG = 5.0


def make(*, seconds: float = LONG, more: str = "{}", aborted: bool = False, **environ: str):
    """aborted: waits until the thread that aborts has told the fake so."""
    code = MAKE.format(rank=0, seconds=seconds, more=more, aborted=aborted)
    return in_process(code, **environ)


def test_without_a_driver_the_real_nccl_s_error_names_the_call_and_the_reason():
    if in_process("answer = _native.cuda().driver_version()")[0]:
        pytest.skip("this machine has a driver")
    (said, _, id_bytes), _ = make()
    assert said.startswith("ncclCommInitRankConfig failed with NCCL error 1")
    assert "no CUDA driver" in said
    assert id_bytes == 128, "NCCL works on"


def test_without_a_driver_choosing_a_gpu_fails_before_nccl():
    if in_process("answer = _native.cuda().driver_version()")[0]:
        pytest.skip("this machine has a driver")
    (said, _, id_bytes), _ = make(more='{"device": 0}')
    assert said.startswith("no CUDA driver")
    assert id_bytes == 128


def test_where_the_others_never_come_the_half_made_communicator_is_aborted(tmp_path: Path):
    fake = make_fake(tmp_path)
    environ = {"ODDRANK_NCCL_LIBRARY": str(fake)}
    (said, took, _), printed = make(seconds=0.3, aborted=True, **environ)
    assert "the 2 ranks did not agree before the deadline (rank 0)" in said
    assert took >= 0.3
    assert printed == "aborted first", "once, and the one that was made"


def test_an_abort_that_hangs_does_not_hold_us(tmp_path: Path):
    fake = make_fake(tmp_path)
    environ = {"ODDRANK_NCCL_LIBRARY": str(fake), "FAKE_NCCL_ABORT_HANGS": "1"}
    (said, _, id_bytes), printed = make(seconds=0.1, aborted=True, **environ)
    assert "did not agree" in said
    assert printed == "aborted first"
    assert id_bytes == 128


def test_an_id_of_the_wrong_size_is_refused():
    said, _ = in_process(
        "_native.load_nccl()\nanswer = error_of(_native.cuda().Communicator, b'short', 0, 2)"
    )
    assert said == "an NCCL unique id has 128 bytes, not 5"


def live(code: str, fake: Path, **environ: str):
    """Runs `code` with `made`, a communicator that all ranks have joined."""
    begin = """
_native.load_nccl()
made = _native.cuda().Communicator(bytes(128), 0, 2, seconds=50)
"""
    return in_process(begin + code, ODDRANK_NCCL_LIBRARY=str(fake), FAKE_NCCL_READY="1", **environ)


def test_it_is_exchanged_for_a_twin_that_launches_in_the_caller_s_thread(tmp_path: Path):
    direct, printed = live("answer = made.direct\nmade.close()", make_fake(tmp_path))
    assert direct
    assert printed.split("\n") == [
        "finalized first",
        "destroyed first",
        "finalized twin",
        "destroyed twin",
    ]


def test_where_the_library_cannot_split_it_stays_as_it_is(tmp_path: Path):
    fake = make_fake(tmp_path, "-DWITHOUT_SPLIT")
    direct, printed = live("answer = made.direct\nmade.close()", fake)
    assert not direct
    assert printed.split("\n") == ["finalized first", "destroyed first"]


def test_a_split_that_does_not_end_is_aborted_at_the_deadline(tmp_path: Path):
    environ = {"FAKE_NCCL_READY": "1", "FAKE_NCCL_SPLIT_HANGS": "1"}
    environ["ODDRANK_NCCL_LIBRARY"] = str(make_fake(tmp_path))
    (said, took, _), printed = make(seconds=LONG, aborted=True, **environ)
    assert "ncclCommSplit: the 2 ranks did not agree before the deadline" in said
    assert took >= LONG
    assert printed == "aborted first"


def test_an_end_that_hangs_does_not_hold_us(tmp_path: Path):
    code = "answer = error_of(made.close, seconds=0.2)\nmade.close()"
    said, _ = live(code, make_fake(tmp_path), FAKE_NCCL_FINALIZE_HANGS="1")
    assert "was not ended before the deadline" in said


def test_a_destruction_that_hangs_does_not_hold_us(tmp_path: Path):
    """NCCL makes it blocking, whatever the communicator is."""
    code = f"answer = error_of(made.close, seconds={LONG})\nmade.close()"
    for number, (comm, *flags) in enumerate([("first", "-DWITHOUT_SPLIT"), ("twin",)]):
        fake = make_fake(tmp_path / str(number), *flags)
        said, printed = live(code, fake, FAKE_NCCL_DESTROY_HANGS=comm)
        assert "was not ended before the deadline (rank 0); it is left behind" in said
        assert printed.split("\n")[-1] == f"destroyed {comm}"


def test_a_communicator_whose_twin_is_ready_is_not_waited_for_longer(tmp_path: Path):
    environ = {"FAKE_NCCL_READY": "1", "FAKE_NCCL_DESTROY_HANGS": "first"}
    environ["ODDRANK_NCCL_LIBRARY"] = str(make_fake(tmp_path))
    (said, took, _), printed = make(seconds=LONG, aborted=True, **environ)
    assert "ncclCommDestroy: the communicator was not ended before the deadline" in said
    assert took >= LONG
    assert printed.split("\n") == ["finalized first", "destroyed first", "aborted twin"]


def test_a_twin_that_ends_in_its_own_time_is_destroyed_only_after_that(tmp_path: Path):
    code = "answer = made.direct\nmade.close()"
    _, printed = live(code, make_fake(tmp_path), FAKE_NCCL_ENDS_LATE="1")
    assert printed.split("\n")[-3:] == ["finalized twin", "ended twin", "destroyed twin"]


@pytest.mark.parametrize("value", ["0", "1"])
def test_a_setting_that_overrules_how_it_is_made_is_refused(tmp_path: Path, value: str):
    environ = {"ODDRANK_NCCL_LIBRARY": str(make_fake(tmp_path)), "FAKE_NCCL_READY": "1"}
    (said, _, _), printed = make(NCCL_COMM_BLOCKING=value, **environ)
    assert said.startswith("NCCL_COMM_BLOCKING is set")
    assert said.endswith("unset it")
    assert printed == "", "no communicator was made"


def test_memory_on_a_closed_communicator_is_refused(tmp_path: Path):
    code = "made.close()\nanswer = error_of(_native.cuda().Memory, made, 16)"
    said, _ = live(code, make_fake(tmp_path))
    assert said == "the communicator is closed"


def test_registration_that_the_library_lacks_is_refused(tmp_path: Path):
    code = 'answer = error_of(_native.cuda().Memory, made, 16, register="buffer")\nmade.close()'
    said, _ = live(code, make_fake(tmp_path))
    assert said.startswith("NCCL 2.23.4 can't register buffers")
