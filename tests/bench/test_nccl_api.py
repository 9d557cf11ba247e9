"""NCCL is found in the documented order; the report has its path, or says that it is missing."""

import os
from pathlib import Path

import pytest

from bench.nccl_process import in_process, make_fake, real_nccl

pytestmark = pytest.mark.needs("cuda-build")

LOAD = "answer = _native.load_nccl()"
# Simulates a machine without the wheel.
NO_WHEEL = "_native.nccl_wheel = lambda: ''\n"


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


def test_unique_ids_have_128_bytes_and_differ():
    ids, _ = in_process(
        "_native.load_nccl()\nanswer = [_native.cuda().nccl_unique_id().hex() for _ in range(2)]"
    )
    assert [len(bytes.fromhex(one)) for one in ids] == [128, 128]
    assert ids[0] != ids[1]


def test_the_variable_comes_first(fake: Path):
    nccl, _ = in_process(LOAD, ODDRANK_NCCL_LIBRARY=str(fake))
    assert (nccl["source"], nccl["path"]) == ("ODDRANK_NCCL_LIBRARY", str(fake))
    assert nccl["version_text"] == "2.23.4"


def test_then_the_copy_that_is_in_the_process_already(fake: Path):
    nccl, _ = in_process(f"ctypes.CDLL({str(fake)!r})\n{LOAD}")
    assert (nccl["source"], nccl["path"]) == ("already loaded", str(fake))


def test_then_the_wheel_before_the_system(fake: Path):
    nccl, _ = in_process(LOAD, LD_LIBRARY_PATH=str(fake.parent))
    assert nccl["source"] == "nvidia-nccl wheel"


def test_then_what_the_loader_finds_before_the_toolkit(fake: Path, tmp_path: Path):
    make_fake(tmp_path / "lib64")
    nccl, _ = in_process(NO_WHEEL + LOAD, LD_LIBRARY_PATH=str(fake.parent), CUDA_HOME=str(tmp_path))
    assert (nccl["source"], nccl["path"]) == ("system", str(fake))


def test_then_the_toolkit(tmp_path: Path):
    in_toolkit = make_fake(tmp_path / "lib64")
    nccl, _ = in_process(NO_WHEEL + LOAD, CUDA_HOME=str(tmp_path))
    assert (nccl["source"], nccl["path"]) == ("CUDA toolkit", str(in_toolkit))


def test_where_there_is_none_the_error_says_where_it_looked_and_what_to_type(tmp_path: Path):
    said, _ = in_process(NO_WHEEL + "answer = error_of(_native.load_nccl)", CUDA_HOME=str(tmp_path))
    for place in (
        "ODDRANK_NCCL_LIBRARY: not set",
        "in this process: not loaded",
        "nvidia-nccl wheel: not installed",
        "system: libnccl.so.2",
        f"CUDA toolkit: {tmp_path}/lib64/libnccl.so.2",
        "pip install nvidia-nccl-cu",
    ):
        assert place in said


def test_a_wrong_variable_is_an_error_and_nothing_else_is_tried():
    code = """
first = error_of(_native.load_nccl)
del os.environ["ODDRANK_NCCL_LIBRARY"]
answer = [first, _native.load_nccl()["source"]]
"""
    (said, source), _ = in_process(code, ODDRANK_NCCL_LIBRARY="/nowhere/libnccl.so.2")
    assert "ODDRANK_NCCL_LIBRARY: /nowhere/libnccl.so.2: cannot open" in said
    assert source == "nvidia-nccl wheel", "a failed load can be tried again"


def test_a_library_that_lacks_a_needed_function_is_refused_by_its_name(tmp_path: Path):
    old = make_fake(tmp_path, "-DWITHOUT_ABORT")
    said, _ = in_process("answer = error_of(_native.load_nccl)", ODDRANK_NCCL_LIBRARY=str(old))
    assert f"{old}, 2.23.4" in said
    assert "it lacks ncclCommAbort" in said


def test_a_library_that_is_no_nccl_is_refused():
    said, _ = in_process("answer = error_of(_native.load_nccl)", ODDRANK_NCCL_LIBRARY="libm.so.6")
    assert "not an NCCL" in said


def test_newer_functions_that_a_library_lacks_are_listed(fake: Path):
    nccl, _ = in_process(LOAD, ODDRANK_NCCL_LIBRARY=str(fake))
    assert nccl["missing"] == [
        "ncclMemAlloc",
        "ncclMemFree",
        "ncclCommRegister",
        "ncclCommDeregister",
        "ncclAlltoAll",
        "ncclGather",
        "ncclScatter",
        "ncclCommWindowRegister",
        "ncclCommWindowDeregister",
    ]


def test_two_nccls_in_one_process_are_told(fake: Path):
    code = f"ctypes.CDLL({str(fake)!r})\n{LOAD}"
    nccl, _ = in_process(code, ODDRANK_NCCL_LIBRARY=real_nccl())
    assert sorted(nccl["mapped"]) == sorted([str(fake), os.path.realpath(real_nccl())])
    assert nccl["warning"].startswith("several NCCLs are loaded")


def test_a_call_before_loading_is_an_error_and_no_crash():
    said, _ = in_process("answer = error_of(_native.cuda().nccl_unique_id)")
    assert "NCCL is not loaded yet" in said
