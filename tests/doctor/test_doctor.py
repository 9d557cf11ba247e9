"""doctor tells what is here and what is not, and never hangs on what it asks."""

import copy
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import oddrank
from oddrank import _native, cli
from oddrank.doctor import command, probes
from processes import captured
from reports import valid


def doctor(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return captured([sys.executable, "-m", "oddrank", "doctor", *arguments], **environ)


def examined(**environ: str):
    done = doctor("--json", "-", **environ)
    assert done.returncode == 0, done.stderr
    return valid(done.stdout), done.stderr


@cache
def _this_machine():
    return examined()


def this_machine():
    """Returns what doctor writes and prints without any option. Asks only once: it loads torch."""
    return copy.deepcopy(_this_machine())


def on_path(folder: Path, body: str) -> str:
    """A PYTHONPATH on which torch is a module with this body."""
    package = folder / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(body)
    info = folder / "torch-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
    return str(folder)


def test_the_json_is_the_envelope_and_the_table_is_beside_it():
    report, table = this_machine()
    assert report["tool"] == "doctor"
    assert "verdict" not in report
    build = report["data"]["parts"]["_core"]["build"]
    assert build["compiler"]
    assert build["flags"].startswith("-O")
    for name in ("oddrank", "Python", "_core", "_cuda", "_torch", "torch", "NCCL", "job folder"):
        assert any(line.split()[:1] == [name.split()[0]] for line in table.splitlines()), name


@pytest.mark.needs("torch")
def test_torch_is_told_with_its_version_and_backends_and_built_for_a_proven_one():
    data = this_machine()[0]["data"]
    assert "gloo" in data["torch"]["backends"]
    assert data["torch"]["version"][0].isdigit()
    if data["parts"]["_torch"]["present"]:
        assert "2.13" in data["parts"]["_torch"]["build"]["proven"].split()


@pytest.mark.needs("cuda-build")
def test_the_nccl_that_a_benchmark_would_load_is_told():
    report, _ = this_machine()
    assert report["data"]["nccl"]["version"] >= 22800
    assert Path(report["data"]["nccl"]["path"]).name.startswith("libnccl.so")


@pytest.mark.needs("cuda-build")
def test_without_a_driver_the_table_says_what_to_do():
    if _native.cuda().driver_version():
        pytest.skip("this machine has a driver")
    report, table = this_machine()
    assert report["data"]["cuda"]["driver"] is None
    assert report["data"]["cuda"]["runtime"]
    assert "no CUDA driver: libcuda.so.1" in table


def test_a_missing_part_says_why_and_what_to_type(monkeypatch: pytest.MonkeyPatch):
    absent = _native.Part("_cuda", None, "nvcc was not found", "Install the CUDA toolkit")
    data = {"present": False, "reason": absent.reason, "advice": absent.advice}
    assert probes.part_facts(absent) == data
    assert command._part_row("_cuda", data) == (
        "_cuda", "missing", "nvcc was not found. Install the CUDA toolkit",
    )  # fmt: skip


def test_a_part_that_is_older_than_its_sources_is_told(tmp_path, monkeypatch):
    source = tmp_path / "csrc" / "os" / "clock.cpp"
    source.parent.mkdir(parents=True)
    source.touch()
    monkeypatch.setattr(oddrank, "__file__", str(tmp_path / "python" / "oddrank" / "__init__.py"))
    for seconds, state in ((-1, "ok"), (1, "warning")):
        built = Path(_native.core().__file__).stat().st_mtime
        os.utime(source, (built + seconds, built + seconds))
        row = command._part_row("_core", probes.part_facts(_native.core_part()))
        assert row[1] == state
    assert f"{source} has changed since it was built. Type: pip install" in row[2]


def test_packages_that_options_take_are_told_and_what_installs_them():
    report, table = this_machine()
    assert all(name in table for name in ("jinja2", "matplotlib", "tensorboard"))
    report["data"]["packages"]["jinja2"] = False
    row = next(row for row in command.rows(report["data"]) if row[0] == "jinja2")
    assert row[1:] == ("missing", "--html. pip install jinja2")


@pytest.mark.parametrize(("version", "state"), [("2.13.0+cu130", "ok"), ("2.11.0", "warning")])
def test_the_versions_of_torch_that_are_proven_are_told(version: str, state: str):
    build = {"compiler": "GNU 12", "flags": "-O2", "torch": version, "proven": "2.12 2.13"}
    row = command._part_row("_torch", {"present": True, "build": build})
    assert row[1] == state
    assert f"for torch {version}, proven with 2.12, 2.13" in row[2]
    assert ("tests have not run" in row[2]) == (state == "warning")


def test_a_torch_for_rocm_is_told_not_to_be_supported():
    report, _ = this_machine()
    torch = {**report["data"]["torch"], "version": "2.11.0+rocm7.1", "cuda": None, "rocm": "7.1"}
    torch |= {"problem": "", "backends": ["gloo", "nccl"], "import_seconds": 1.0, "folder": "/t"}
    rows = {
        part: (state, text) for part, state, text in command.rows(report["data"] | {"torch": torch})
    }
    assert "ROCm 7.1" in rows["torch"][1]
    assert rows["ROCm"][0] == "missing"
    assert "AMD GPUs are not supported" in rows["ROCm"][1]


@pytest.fixture
def broken_torch(tmp_path: Path) -> str:
    """Returns a PYTHONPATH with a torch that fails at once: the real one takes a second."""
    return on_path(tmp_path, "print('hello', flush=True)\nraise ImportError('no')")


def test_the_table_is_the_output_and_fits_a_terminal_of_80_columns(broken_torch: str):
    done = doctor(COLUMNS="80", PYTHONPATH=broken_torch)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert any(line.startswith("_core") for line in lines)
    assert len(lines) > 10
    assert max(map(len, lines)) <= 80
    # What torch prints does not confuse the probe.
    assert "import torch fails: ImportError: no" in " ".join(done.stdout.split())


def test_a_job_folder_that_cannot_be_made_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for folder, good in ((tmp_path / "new" / "x", True), ("/proc/nope", False),
                         (tmp_path / "file" / "x", False)):  # fmt: skip
        monkeypatch.setenv("ODDRANK_DIR", str(folder))
        facts = probes._launch()
        (row,) = (row for row in command._launch_rows(facts) if row[0] == "job folder")
        assert (row[1] == "ok") == good, row
        assert ("set ODDRANK_DIR" in row[2]) == (not good)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_cannot_be_used_is_told(tmp_path, broken_torch):
    open_to_all, mine = tmp_path / "open", tmp_path / "mine"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    for folder, is_used in ((open_to_all, False), (mine, True)):
        report, _ = examined(ODDRANK_DIR=str(folder), PYTHONPATH=broken_torch)
        files = report["data"]["files"]
        assert files["lock"].startswith(str(folder)) == is_used
        assert (files["problem"] == "") == is_used
        assert is_used or str(folder) in files["problem"]


@pytest.mark.parametrize("gpu", [True, False])
def test_what_only_gpus_need_is_missing_only_where_there_is_one(gpu):
    report, _ = this_machine()
    data = report["data"] | {"gpu_expected": gpu}
    absent = {"present": False, "reason": "nvcc was not found", "advice": "Install the toolkit."}
    data["parts"] = data["parts"] | {"_cuda": absent}
    data |= {"cuda": {"problem": "no _cuda"}, "nccl": {"problem": "no _cuda"}}
    states = {part: (state, text) for part, state, text in command.rows(data)}
    assert {states[part][0] for part in ("_cuda", "GPUs", "NCCL")} == (
        {"missing", "unknown"} if gpu else {"not needed"}
    )
    assert ("no GPU here" in states["_cuda"][1]) != gpu
    assert ("Install the toolkit" in states["_cuda"][1]) == gpu


def test_a_gpu_that_the_build_has_no_code_for_is_told_with_what_to_do():
    gpu = {
        "index": 0, "name": "Tesla V100-SXM2-32GB", "memory_bytes": 32 << 30,
        "compute_capability": [7, 0], "uuid": "GPU-ab", "pci_bus_id": "0000:1B:00.0",
    }  # fmt: skip
    cuda = {
        "runtime": [13, 0], "driver": [13, 0], "gpus": [gpu, {**gpu, "compute_capability": [7, 5]}],
    }  # fmt: skip
    old, new = [row for row in command._cuda_rows(cuda, "75-real 120-virtual") if "GPU" in row[0]]
    assert old[1] == "unsupported"
    assert "no code for Tesla V100-SXM2-32GB (sm_70)" in old[2]
    assert "ODDRANK_CUDA_ARCHITECTURES=70" in old[2]
    assert new[1] == "ok"


def test_a_deadline_that_is_none_is_refused_in_one_line(capsys):
    for deadline in ("inf", "nan", "0", "2h"):
        assert cli._run(["doctor", "--deadline", deadline]) == 2, deadline
        assert capsys.readouterr().err.count("\n") == 1, deadline


def test_a_torch_whose_import_hangs_costs_the_deadline_and_no_more(tmp_path: Path):
    path = on_path(tmp_path, "import time\ntime.sleep(1000)")
    done = doctor("--deadline", "2", PYTHONPATH=path)  # which ends by its own timeout
    assert done.returncode == 0
    assert "the torch probe: no answer within 2 s" in done.stdout
    assert "NCCL" in done.stdout


def test_a_torch_that_crashes_is_named_with_its_signal(tmp_path: Path):
    says, dies = "os.write(2, b'a\\nCUDA: no\\n\\n')", "os.kill(os.getpid(), signal.SIGSEGV)"
    path = on_path(tmp_path, f"import os, signal\n{says}\n{dies}")
    said = "the torch probe: SIGSEGV ended it; its last words: CUDA: no"
    assert said in " ".join(doctor(PYTHONPATH=path).stdout.split())


def test_contradicting_launch_variables_are_a_row(broken_torch: str):
    place = {"RANK": "5", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    done = doctor(PYTHONPATH=broken_torch, **place)
    assert done.returncode == 0
    (launcher,) = [line for line in done.stdout.splitlines() if line.startswith("launcher")]
    assert "wrong" in launcher
    assert "RANK" in launcher


def test_a_world_size_without_a_rank_is_told(broken_torch: str):
    report, table = examined(PYTHONPATH=broken_torch, WORLD_SIZE="4")
    assert report["data"]["launch"]["stray"] == "WORLD_SIZE=4"
    assert report["data"]["torch"]["version"] == "9.9"
    (launcher,) = [line for line in table.splitlines() if line.startswith("launcher")]
    assert "alone, rank 0 of 1" in launcher
    assert "WORLD_SIZE=4" in table


def test_in_a_job_one_rank_of_a_node_speaks(tmp_path: Path):
    place = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost",
             "MASTER_PORT": "1", "RANK": "1", "LOCAL_RANK": "1"}  # fmt: skip
    done = doctor("--json", str(tmp_path / "report.json"), **place)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "report.json").exists()
