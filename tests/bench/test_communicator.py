"""NCCL is found, and its communicators end by their deadline, even if ranks are missing."""

import os
from functools import partial
from pathlib import Path

import pytest

from bench.nccl_process import in_process, make_fake, real_nccl
from golden import Golden
from patience import PATIENCE, at_once
from texts import texts

pytestmark = pytest.mark.needs("cuda-build")

LOAD = "answer = _native.load_nccl()"
# Simulates a machine without the wheel.
NO_WHEEL = "_native.nccl_wheel = lambda: ''\n"
# A deadline that comes only after all that ends before it, also on a busy machine.
LONG = max(6.0, PATIENCE.seconds(2))


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fake(tmp_path_factory.mktemp("fake"))


def test_the_wheel_s_library_is_found_and_answers_with_its_version():
    nccl, _ = in_process(LOAD)
    assert nccl["source"] == "nvidia-nccl wheel"
    assert nccl["path"] == os.path.realpath(real_nccl())
    assert nccl["version"] >= 22800
    assert nccl["version_text"].startswith("2.")
    assert nccl["missing"] == []
    assert nccl["mapped"] == [nccl["path"]]
    assert nccl["warning"] == ""


def test_it_is_looked_for_in_the_documented_order(fake: Path, tmp_path: Path):
    toolkit, in_toolkit = {"CUDA_HOME": str(tmp_path)}, make_fake(tmp_path / "lib64")
    loader = {"LD_LIBRARY_PATH": str(fake.parent)}
    loaded = f"ctypes.CDLL({str(fake)!r})\n"
    for begin, environ, source, path in (
        ("", {"ODDRANK_NCCL_LIBRARY": str(fake)}, "ODDRANK_NCCL_LIBRARY", fake),
        (loaded, {}, "already loaded", fake),
        ("", loader, "nvidia-nccl wheel", os.path.realpath(real_nccl())),
        (NO_WHEEL, loader | toolkit, "system", fake),
        (NO_WHEEL, toolkit, "CUDA toolkit", in_toolkit),
    ):
        nccl, _ = in_process(begin + LOAD, **environ)
        assert (nccl["source"], nccl["path"]) == (source, str(path))


def test_what_is_not_there_or_no_nccl_is_refused_in_words(tmp_path: Path, golden: Golden):
    old = make_fake(tmp_path / "old", "-DWITHOUT_ABORT")
    load, said = "answer = error_of(_native.load_nccl)", []
    for code, environ in (
        (NO_WHEEL + load, {"CUDA_HOME": str(tmp_path)}),
        (load, {"ODDRANK_NCCL_LIBRARY": str(old)}),
        (load, {"ODDRANK_NCCL_LIBRARY": "libm.so.6"}),
        ("answer = error_of(_native.cuda().nccl_unique_id)", {}),
    ):
        said.append(in_process(code, **environ)[0])
    golden("\n".join(said).replace(str(tmp_path), "FOLDER"))


def test_a_wrong_variable_is_an_error_and_nothing_else_is_tried():
    code = """
first = error_of(_native.load_nccl)
del os.environ["ODDRANK_NCCL_LIBRARY"]
answer = [first, _native.load_nccl()["source"]]
"""
    (said, source), _ = in_process(code, ODDRANK_NCCL_LIBRARY="/nowhere/libnccl.so.2")
    assert "ODDRANK_NCCL_LIBRARY: /nowhere/libnccl.so.2: cannot open" in said
    assert source == "nvidia-nccl wheel", "a failed load can be tried again"


def test_newer_functions_that_a_library_lacks_are_listed(fake: Path):
    nccl, _ = in_process(LOAD, ODDRANK_NCCL_LIBRARY=str(fake))
    assert nccl["version_text"] == "2.23.4"
    assert nccl["missing"] == [
        "ncclMemAlloc", "ncclMemFree", "ncclCommRegister", "ncclCommDeregister", "ncclAlltoAll",
        "ncclGather", "ncclScatter", "ncclCommWindowRegister", "ncclCommWindowDeregister",
    ]  # fmt: skip


def test_two_nccls_in_one_process_are_told(fake: Path):
    code = f"ctypes.CDLL({str(fake)!r})\n{LOAD}"
    nccl, _ = in_process(code, ODDRANK_NCCL_LIBRARY=real_nccl())
    assert sorted(nccl["mapped"]) == sorted([str(fake), os.path.realpath(real_nccl())])
    assert nccl["warning"].startswith("several NCCLs are loaded")


def make(seconds: float = LONG, *, more: str = "{}", aborted: bool = False, **environ: str):
    """Returns (error, whether it took so long, output). aborted: waits for the thread's abort."""
    code = texts(__file__)["make"].format(seconds=seconds, more=more, aborted=aborted)
    (said, took, id_bytes), printed = in_process(code, **environ)
    assert id_bytes == 128, "NCCL works on"
    return said, took >= seconds, printed.split("\n")


def test_without_a_driver_the_error_names_the_call_and_the_reason():
    if in_process("answer = _native.cuda().driver_version()")[0]:
        pytest.skip("this machine has a driver")
    said, *_ = make()
    assert said.startswith("ncclCommInitRankConfig failed with NCCL error 1")
    assert "no CUDA driver" in said
    said, *_ = make(more='{"device": 0}')
    assert said.startswith("no CUDA driver"), "before NCCL"


def test_what_does_not_end_by_its_deadline_is_aborted_once(tmp_path: Path, golden: Golden):
    first, ready = ["aborted first"], {"FAKE_NCCL_READY": "1"}
    left = ["finalized first", "destroyed first", "aborted twin"]
    library = str(make_fake(tmp_path))
    cases = (
        (0.3, {}, first),  # the other rank never comes
        (0.1, {"FAKE_NCCL_ABORT_HANGS": "1"}, first),
        (LONG, {**ready, "FAKE_NCCL_SPLIT_HANGS": "1"}, first),
        # The communicator whose twin is ready is not waited for any longer.
        (LONG, {**ready, "FAKE_NCCL_DESTROY_HANGS": "first"}, left),
    )
    all_found = at_once(
        partial(make, seconds, aborted=True, ODDRANK_NCCL_LIBRARY=library, **environ)
        for seconds, environ, _ in cases
    )
    for (_, environ, printed), found in zip(cases, all_found, strict=True):
        assert found[1:] == (True, printed), environ
    golden("\n".join(said for said, *_ in all_found))


def live(code: str, fake: Path, **environ: str):
    """Runs `code` with `made`, a communicator that all ranks have joined: (answer, output)."""
    begin = """
_native.load_nccl()
made = _native.cuda().Communicator(bytes(128), 0, 2, seconds=50)
"""
    environ |= {"ODDRANK_NCCL_LIBRARY": str(fake), "FAKE_NCCL_READY": "1"}
    answer, printed = in_process(begin + code, **environ)
    return answer, printed.split("\n")


def test_it_is_exchanged_for_a_twin_where_it_can_be_split(tmp_path: Path):
    code = "answer = made.direct\nmade.close()"
    ended = ["finalized first", "destroyed first"]
    twin = ["finalized twin", "destroyed twin"]
    assert live(code, make_fake(tmp_path / "a")) == (True, ended + twin)
    assert live(code, make_fake(tmp_path / "b", "-DWITHOUT_SPLIT")) == (False, ended)
    # A twin that ends in its own time is destroyed only after that.
    _, printed = live(code, make_fake(tmp_path / "c"), FAKE_NCCL_ENDS_LATE="1")
    assert printed == [*ended, twin[0], "ended twin", twin[1]]


def test_an_end_that_hangs_does_not_hold_us(tmp_path: Path, golden: Golden):
    """NCCL makes a destruction blocking, whatever the communicator is."""
    whole, old = make_fake(tmp_path / "a"), make_fake(tmp_path / "b", "-DWITHOUT_SPLIT")
    code = f"answer = error_of(made.close, seconds={LONG})\nmade.close()"
    found = at_once(
        partial(live, code, fake, **{f"FAKE_NCCL_{hangs}_HANGS": comm})
        for fake, hangs, comm in (
            (whole, "FINALIZE", "1"),
            (old, "DESTROY", "first"),
            (whole, "DESTROY", "twin"),
        )
    )
    last = ["finalized twin", "destroyed first", "destroyed twin"]
    assert [printed[-1] for _, printed in found] == last
    golden("\n".join(answer for answer, _ in found))


def test_what_cannot_be_is_refused_in_words(tmp_path: Path, golden: Golden):
    fake = make_fake(tmp_path)
    said = [
        in_process(
            "_native.load_nccl()\nanswer = error_of(_native.cuda().Communicator, b'short', 0, 2)"
        )[0],
        live("made.close()\nanswer = error_of(_native.cuda().Memory, made, 16)", fake)[0],
        live(
            "answer = error_of(_native.cuda().Memory, made, 16, register='buffer')\nmade.close()",
            fake,
        )[0],
    ]
    for value in ("0", "1"):  # a setting that overrules how it is made
        environ = {"ODDRANK_NCCL_LIBRARY": str(fake), "NCCL_COMM_BLOCKING": value}
        refused, _, printed = make(FAKE_NCCL_READY="1", **environ)
        assert printed == [""], "no communicator was made"
        said.append(refused)
    golden("\n".join(said))
