"""A real run names a rank with another torch, and writes files for schedulers and monitors."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from job import job
from prometheus_text import read

pytestmark = pytest.mark.timeout(180)


@pytest.mark.needs("torch")
def test_a_rank_with_another_torch_is_told_in_report_and_files(tmp_path):
    leave_out, figures = tmp_path / "nodes", tmp_path / "oddrank.prom"
    verdict = job(
        4,
        command=("selftest", "--only", "device",
                 "--exclude", str(leave_out), "--prometheus", str(figures)),
        inject="set:rank=2,stage=environment,name=torch,value=1.0",
        environ={"NCCL_ALGO": "Ring"},
        deadline=60,
    )  # fmt: skip
    assert verdict.names(rank=2, stage="environment"), verdict
    (found,) = verdict.report["findings"]
    assert (found["condition"], found["confidence"]["level"]) == ("different", "high")
    data = verdict.report["data"]
    assert [one["ranks"] for one in data["environment"]["differing"]["torch"]] == ["0-1,3", "2"]
    assert data["environment"]["common"]["kernel"] == os.uname().release
    assert data["environment"]["common"]["settings"]["NCCL_ALGO"] == "Ring"
    (node,) = data["nodes"]
    assert (node["ranks"], 0 < node["joined_s"] < 60) == ("0-3", True)
    assert [rank["metrics"]["device"]["device"] for rank in data["ranks"]] == ["CPU"] * 4
    first, stays = leave_out.read_text().splitlines()
    assert first == "# oddrank selftest: no nodes to leave out"
    assert re.match(rf"# {os.uname().nodename} stays: rank 2 .* \(other-version\)$", stays)
    families = read(figures.read_text())
    (named,) = families["oddrank_selftest_named"].samples
    assert dict(named)["rank"] == "2"


@pytest.mark.parametrize("option", ["--exclude", "--prometheus"])
def test_a_file_that_can_not_be_written_is_told_before_the_run(option, tmp_path):
    verdict = job(
        1, command=("selftest", option, str(tmp_path / "absent" / "file.prom")), launcher="env"
    )
    assert verdict.report is None
    assert f"give {option} a file" in verdict.output
    assert not Path(tmp_path, "absent").exists()


def test_two_of_the_files_can_not_both_be_stdout():
    verdict = job(1, command=("selftest", "--exclude", "-", "--prometheus", "-"), launcher="env")
    assert "only one of --exclude and --prometheus can be -" in verdict.output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ["--exclude", "{}/nodes.prom", "--prometheus", "{}/x/../nodes.prom"],
            "each need a file of their own",
        ),
        (
            ["--prometheus", "{}/oddrank.txt"],
            "would never be read: give --prometheus a file named *.prom",
        ),
        (["--prometheus", "/dev/shm/oddrank.txt"], "would never be read"),
        (["--prometheus", "/dev/null", "--only", ""], "no stage is named"),
        (["--only", ""], "no stage is named: choose from"),
        (["--only", "rech"], "; did you mean reach? See "),
        (["--only", "speed", "--skip", "speed"], "--skip leaves nothing of --only"),
        (["--quick", "--full"], "--quick and --full contradict each other"),
        (["--full", "--quick"], "--quick and --full contradict each other"),
        (["--only", "device", "--path", "/data"], "stage file_system, which --only leaves out"),
    ],
)
def test_what_can_not_be_meant_is_one_line_and_exit_code_2(options, says, tmp_path):
    Path(tmp_path, "x").mkdir()
    command = [sys.executable, "-m", "oddrank", "selftest", *(o.format(tmp_path) for o in options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_help_says_when_all_is_over_and_what_only_takes_along():
    command = [sys.executable, "-m", "oddrank", "selftest", "--help"]
    said = " ".join(subprocess.check_output(command, text=True, timeout=60).split())
    assert "Default: 120 with --quick, 300, 1800 with --full." in said
    assert "2 s later no process is left" in said
    assert "connect 120 s," in said
    assert "Run only these stages and those that they need, also if --quick leaves them out" in said
