"""`oddrank trace export`: the choice of records; the file is whole or absent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chrome_trace import ChromeTrace
from oddrank.errors import OddrankError
from oddrank.trace import jobs
from oddrank.trace.export import export
from trace_command import oddrank

SCRIPT = """
import os
import oddrank
oddrank.arm()

def work():
    oddrank.mark("works")

work()
os._exit(0)
"""


@pytest.fixture(scope="module")
def job(run_ranks, tmp_path_factory):
    return run_ranks(tmp_path_factory.mktemp("job"), SCRIPT)


def test_a_cut_record_is_reported_and_the_others_are_written(job, tmp_path):
    good, other = jobs.find([str(job)]).files
    cut = tmp_path / "cut.trace"
    cut.write_bytes(other.read_bytes()[:100_000])
    target = tmp_path / "some.json.gz"
    written = export([good, cut], target)
    assert written.processes == 1
    assert "it was cut" in written.notes[0]
    ChromeTrace(target)


def test_a_file_that_was_named_and_is_no_record_is_an_error_beside_others_too(job, tmp_path):
    good = jobs.find([str(job)]).files[0]
    bad = tmp_path / "bad.trace"
    bad.write_bytes(b"x" * 5000)
    target = tmp_path / "out.json.gz"
    done = oddrank("export", "-o", target, good, bad, folder=tmp_path)
    assert done.returncode == 2
    assert "bad.trace is not a record" in done.stderr
    assert " of 1 processes of job " in done.stdout
    ChromeTrace(target)
    target.unlink()
    done = oddrank("export", "-o", target, bad, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert not target.exists()


def test_the_number_of_a_rank_is_never_taken_for_the_file_to_write(job, tmp_path):
    done = oddrank("export", "1", folder=job.parent, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--output" in done.stderr
    assert not list(tmp_path.iterdir())


def test_several_nodes_do_not_write_one_file(job, tmp_path, monkeypatch):
    for name, value in {
        "RANK": "2", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    out = tmp_path / "out.json"
    for command in (
        ["export", "-o", out], ["where", "--json", out], ["stats", "--json", out],
        ["diff", "0", "1", "--json", out],
    ):  # fmt: skip
        done = oddrank(*command, folder=job.parent)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"each of 2 nodes would write {out}: " in done.stderr
        assert "oddrank collect" in done.stderr
    assert not out.exists()
    assert oddrank("where", "--json", "-", folder=job.parent).returncode == 0


def test_an_export_that_fails_leaves_nothing(job, tmp_path):
    bad = tmp_path / "bad.trace"
    bad.write_bytes(b"x" * 5000)
    inputs = sorted(tmp_path.iterdir())
    for files, why in (([bad], "is not a record"), ([], "in 0 files")):
        with pytest.raises(OddrankError, match=why):
            export(files, tmp_path / "out.json.gz")
    files = jobs.find([str(job)]).files
    pipe = tmp_path.parent / f"{tmp_path.name}.pipe"
    os.mkfifo(pipe)
    for target, why in (
        (tmp_path / "nowhere" / "out.json.gz", "No such file"),
        (bad / "out.json", "Not a directory"),
        (tmp_path / ("x" * 250), "name too long"),
        (tmp_path, "it is a folder"),
        (pipe, "no regular file"),
    ):
        with pytest.raises(OddrankError, match=why):
            export(files, target)
    assert sorted(tmp_path.iterdir()) == inputs


def test_a_record_of_another_boot_whose_clock_was_seen_once_is_left_out_and_told(script):
    script("\nimport os, oddrank; oddrank.arm(); os._exit(0)")
    (file,) = jobs.find([str(script.folder / "records")]).files
    boot = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    record = file.read_bytes()
    assert record.count(boot) == 1
    elsewhere = script.folder / "elsewhere.trace"
    elsewhere.write_bytes(record.replace(boot, b"0" * len(boot)))
    target = script.folder / "out.json"
    with pytest.raises(OddrankError, match="its clock can only be read on its own host"):
        export([elsewhere], target)
    assert not target.exists()
    (note,) = export([elsewhere, file], target).notes
    assert "is left out" in note


def test_a_link_stays_one_and_what_was_there_is_replaced(job, tmp_path):
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    export(jobs.find([str(job)]).files, link)
    assert link.is_symlink()
    ChromeTrace(target)


def test_ranks_of_two_hosts_with_the_same_pid_stay_apart(job, tmp_path):
    file, _ = jobs.find([str(job)]).files
    target = tmp_path / "twice.json"
    export([file, file], target)
    assert len({e["pid"] for e in ChromeTrace(target).events}) == 2


def test_earlier_runs_of_a_rank_are_left_out_unless_asked_for(run_ranks, tmp_path):
    job = run_ranks(tmp_path, SCRIPT, (0, 1, 0))
    files = jobs.find([str(job)]).files
    written = export(files, tmp_path / "last.json")
    assert (written.processes, written.earlier) == (2, 1)
    written = export(files, tmp_path / "all.json", all_runs=True)
    assert (written.processes, written.earlier) == (3, 0)


def test_the_command_writes_a_file_and_says_where(job, tmp_path):
    target = tmp_path / "job.json.gz"
    done = subprocess.run(
        [sys.executable, "-m", "oddrank", "trace", "export", "-o", target, job],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "of 2 processes of job 127.0.0.1:29500" in done.stdout
    assert (done.stderr, done.stdout.count("\n")) == ("", 1)
    ChromeTrace(target)
