"""make gpu-check: what one call runs, what the next goes on with, and a dry run of all of it."""

import json
import os
import subprocess
import sys
import tarfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

import dry_gpu
from patience import PATIENCE, until
from processes import captured, lives, shell_script

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "gpu_check.py"


def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = spec_from_file_location("gpu_check", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gpu_check", made)  # its dataclasses look there
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with parts that only print, fail, hang, or can't run."""
    made = script(monkeypatch)
    monkeypatch.setattr(made, "_gpus", lambda: ["GPU 0: one"])
    monkeypatch.setattr(made, "_import_torch", lambda environ: "torch 2.11")
    part = made.Part
    parts = (
        part("good", (("-c", "print('well')"),), least=0),
        part("bad", (("-c", "import sys; sys.exit('it broke')"),), least=0),
        part("long", (("-c", "import time; time.sleep(1000)"),), limit=1, least=0),
        part("none", (("{benchmark}", "-c", "import sys; print('no GPU'); sys.exit(2)"),), least=0),
        part("late", (("-c", "pass"),), least=500),
    )
    monkeypatch.setattr(made, "PARTS", parts)
    return made


def states(folder: Path) -> dict[str, str]:
    parts = json.loads((folder / "summary.json").read_text())["parts"]
    return {name: part["state"] for name, part in parts.items()}


def run(check: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", str(folder), *arguments])
    code: int = check.main()
    return code


def test_a_part_that_fails_or_hangs_is_named_and_the_next_ones_run(
    check, monkeypatch, tmp_path, capsys
):
    assert run(check, monkeypatch, tmp_path / "out") == 1
    wanted = {"good": "ok", "bad": "failed", "long": "timeout", "none": "not run", "late": "ok"}
    assert states(tmp_path / "out") == wanted
    said = capsys.readouterr().out
    assert "it broke" in said
    assert "2 failed: bad, long" in said
    with tarfile.open(tmp_path / "out.tar.gz") as archive:
        assert {"out/bad.log", "out/summary.json"} <= set(archive.getnames())


def test_a_part_that_hangs_leaves_no_rank_behind(check, monkeypatch, tmp_path):
    told = tmp_path / "pid"

    class Begun(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            until(lambda: told.exists() and told.read_text())  # the part's time begins here

    code = (
        "import subprocess, sys, time; from pathlib import Path;"
        "rank = subprocess.Popen(['sleep', '1000'], start_new_session=True);"  # as torchrun does
        f"Path({str(told)!r}).write_text(str(rank.pid)); time.sleep(1000)"
    )
    monkeypatch.setattr(check, "PARTS", (check.Part("job", (("-c", code),), limit=1, least=0),))
    monkeypatch.setattr(subprocess, "Popen", Begun)
    assert run(check, monkeypatch, tmp_path / "out") == 1
    assert states(tmp_path / "out") == {"job": "timeout"}
    rank = int(told.read_text())
    until(lambda: not lives(rank))


WELL = '{"verdict": "healthy", "summary": "well"}'
DIES = "import sys; from pathlib import Path; Path(sys.argv[1]).write_text(WELL); sys.exit(1)"


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize("earlier", [False, True])
def test_a_job_that_dies_behind_a_healthy_report_or_an_earlier_one_has_failed(
    check, monkeypatch, tmp_path, dry, earlier
):
    out = tmp_path / "out"
    commands = (("-c", DIES.replace("WELL", repr(WELL)), "{out}/quick.json"),)
    if earlier:
        out.mkdir()
        (out / "quick.json").write_text(WELL)
        commands = (("-c", "raise SystemExit(1)"),)
    part = check.Part("quick", commands, least=0, report="quick.json")
    monkeypatch.setattr(check, "PARTS", (part,))
    monkeypatch.setattr(dry_gpu, "environ", lambda folder: {})
    assert run(check, monkeypatch, out, *(["--dry"] if dry else [])) == 1
    assert states(out) == {"quick": "failed"}


def test_a_call_with_a_limit_leaves_the_rest_to_the_next(check, monkeypatch, tmp_path, capsys):
    some = ("--parts", "good,late")
    assert run(check, monkeypatch, tmp_path / "out", *some, "--limit", "60") == 1
    assert states(tmp_path / "out") == {"good": "ok"}
    assert "no time was left for late" in capsys.readouterr().out
    assert run(check, monkeypatch, tmp_path / "out", *some, "--limit", "600") == 0
    assert "good " not in capsys.readouterr().out
    assert states(tmp_path / "out") == {"good": "ok", "late": "ok"}
    assert run(check, monkeypatch, tmp_path / "out", *some, "--limit", "600") == 0
    assert "good " in capsys.readouterr().out  # all had ended: this call began anew


def test_without_a_gpu_it_says_so_and_how_to_run_it_dry(check, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(check, "_gpus", list)
    assert run(check, monkeypatch, tmp_path / "out") == 2
    assert "make gpu-check DRY=1" in capsys.readouterr().out


def test_every_gpu_test_and_benchmark_is_in_a_part(monkeypatch):
    made = script(monkeypatch)
    checked = made.Check(Path("/out"), False, 0.0, {}, 1)
    words = {word for part in made.PARTS for c in part.commands for word in checked.arguments(c)}
    mark = "pytest.mark." + "gpu"  # in two, or this file would have it
    files = (ROOT / "tests").rglob("test_*.py")
    tests = {str(file.relative_to(ROOT)) for file in files if mark in file.read_text()}
    benchmarks = {str(f.relative_to(ROOT)) for f in (ROOT / "benchmarks/gpu").glob("*.py")}
    assert tests <= words
    assert benchmarks <= words
    assert "8:1G:x8" in words
    assert not [word for word in words if "{" in word]


@pytest.mark.parametrize(
    ("said", "built"),
    [("9.0\n9.0\n12.0", "120-real;90-real"),
     ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", ""),
     ("No devices were found", "")],
)  # fmt: skip
def test_it_builds_for_the_gpus_that_are_here(tmp_path: Path, said: str, built: str):
    (tmp_path / "said").write_text(said + "\n")
    shell_script(tmp_path / "nvidia-smi", f"cat {tmp_path}/said")  # on stdout, as that tool does
    done = captured(
        ["make", "-s", "--eval", "show: ; @echo '[$(gpu_architectures)]'", "show"], cwd=ROOT,
        PATH=f"{tmp_path}:{os.environ['PATH']}",
    )  # fmt: skip
    assert done.stdout == f"[{built}]\n", done.stderr


@pytest.mark.job
@pytest.mark.needs("torch")
@pytest.mark.timeout(400)
def test_a_dry_run_runs_every_part_and_writes_every_file(tmp_path: Path):
    out = tmp_path / "out"
    done = captured(
        [sys.executable, str(SCRIPT), str(out), "--dry"], cwd=ROOT, limit=PATIENCE.seconds(380),
        OMP_NUM_THREADS="1",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(states(out).values()) == {"ok"}, done.stdout
    names = {file.name for file in out.iterdir()}
    for report in ("doctor", "quick", "sweep"):
        assert json.loads((out / f"{report}.json").read_text())["tool"]
    for script in (ROOT / "benchmarks" / "gpu").glob("*.py"):
        figures = json.loads((out / f"{script.stem}.json").read_text())
        assert figures["benchmark"] == f"gpu/{script.stem}"
        assert figures["rows"]
    assert {"values.xml", "tests.xml", "jobs.xml", "memcheck.xml", "racecheck.xml"} <= names


def test_a_kernel_that_is_called_wrongly_fails_the_dry_run():
    cuda = dry_gpu.Cuda()
    assert cuda.time_copies(0, 1 << 20, 3) == [1e-3] * 3
    with pytest.raises(TypeError, match="repeats"):
        cuda.time_copies(0, 1 << 20, passes=3)
