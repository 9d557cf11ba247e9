"""Records of several jobs are never counted together, and no job hides another."""

import json
import os
import re
import shutil

import pytest

from run.collecting import collect
from trace_command import oddrank

ARMED = "import oddrank\noddrank.arm()\noddrank.step(5)\n"


@pytest.fixture(scope="module")
def two_jobs(run_ranks, tmp_path_factory):
    """Returns the base folder of two jobs: one with both ranks, a later one with rank 1 only."""
    folder = tmp_path_factory.mktemp("jobs")
    run_ranks(folder, ARMED)
    run_ranks(folder, ARMED, [1], port=29600)
    return folder / "records"


def headings(done):
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("job ")]


APART = [
    "job 127.0.0.1:29500: 2 of 2 ranks, 0 alive",
    "job 127.0.0.1:29600: 1 of 2 ranks, 0 alive; no record here of 0",
]


def test_jobs_that_were_collected_into_one_folder_stay_apart(two_jobs, tmp_path):
    for name in ("127.0.0.1:29500", "127.0.0.1:29600"):
        done = collect("-o", tmp_path, two_jobs / name, records=two_jobs)
        (archive,) = (tmp_path / name).glob("*.tar.*")
        assert f" of job {name} and " in done.stdout
        assert f", packed as {archive}\n" in done.stdout
    where = oddrank("where", tmp_path, folder=tmp_path)
    assert headings(where) == APART
    assert "not shown" not in where.stdout
    assert headings(oddrank("where", tmp_path / name, folder=tmp_path)) == APART[1:]


def test_jobs_whose_records_an_older_version_has_mixed_are_told_apart_by_what_they_say(
    two_jobs, tmp_path
):
    (tmp_path / "host").mkdir()
    for file in two_jobs.glob("*/*.trace"):
        shutil.copy(file, tmp_path / "host")
    done = oddrank("where", "--json", "-", tmp_path, folder=tmp_path)
    ranks = [(rank["job"], rank["rank"]) for rank in json.loads(done.stdout)["data"]["ranks"]]
    assert sorted(ranks) == [
        ("127.0.0.1:29500", 0), ("127.0.0.1:29500", 1), ("127.0.0.1:29600", 1)
    ]  # fmt: skip
    assert headings(oddrank("where", tmp_path, folder=tmp_path)) == APART


ALSO = re.compile(
    r"oddrank: also here: oddrank trace where (.*) \(2 ranks, last event at [\d: -]+\)\n"
)


def test_the_newest_job_hides_no_other(two_jobs, tmp_path):
    for command in (
        ["where"], ["where", "1"], ["stats"], ["export", "-o", tmp_path / "out.json"],
        ["tail", "1"], ["diff", "1", "1"],
    ):  # fmt: skip
        done = oddrank(*command, folder=two_jobs)
        assert done.returncode == 0, done.stderr
        also = ALSO.fullmatch(done.stderr)
        assert also, done.stderr
        assert also[1] == "127.0.0.1:29500"
    named = oddrank("where", also[1], folder=two_jobs)
    assert (headings(named), named.stderr) == (APART[:1], "")


def test_a_dead_job_of_fewer_ranks_is_not_worth_a_line(run_ranks, tmp_path):
    run_ranks(tmp_path, ARMED, [1], port=29600)
    run_ranks(tmp_path, ARMED)
    done = oddrank("where", folder=tmp_path / "records")
    assert (headings(done), done.stderr) == (APART[:1], "")


def test_a_job_is_named_as_it_is_shown_or_by_the_beginning_of_its_name(two_jobs, tmp_path):
    def run(*arguments):
        return oddrank(*arguments, folder=two_jobs, cwd=tmp_path)

    for name in ("127.0.0.1:29500", "127.0.0.1:295"):
        where = run("where", name)
        assert (headings(where), where.stderr) == (APART[:1], "")
        assert run("stats", name).stdout.startswith("job 127.0.0.1:29500\n")
        copied = collect(name, "-o", tmp_path / name, records=two_jobs)
        assert copied.stdout.startswith("2 records of job 127.0.0.1:29500 ")
        exported = run("export", "-o", "out.json", name).stdout
        assert " of 2 processes of job 127.0.0.1:29500 to " in exported
    for name in ("127.0.0.1:29600", "127.0.0.1:296"):
        tail = run("tail", name)
        assert (tail.returncode, tail.stderr) == (0, "")
        assert run("diff", name, name).returncode == 0
    several = run("where", "127.0")
    assert (several.returncode, several.stdout) == (2, "")
    (line,) = several.stderr.splitlines()
    assert "2 jobs begin with 127.0 (127.0.0.1:29500, 127.0.0.1:29600): type more" in line
    none = run("where", "128")
    assert (none.returncode, none.stdout) == (2, "")


def test_a_number_is_a_rank_first_and_then_a_job(run_ranks, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "4711")
    run_ranks(tmp_path, ARMED, [0])
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    run_ranks(tmp_path, ARMED)
    records = tmp_path / "records"
    assert oddrank("where", "4711", folder=records).stdout.startswith("job 4711: 1 of 2 ranks")
    assert "\nrank 1 (" in oddrank("where", "1", folder=records).stdout
    assert oddrank("where", "47", folder=records).returncode == 2


def test_the_record_of_one_process_among_what_was_named(two_jobs, tmp_path):
    files = sorted((two_jobs / "127.0.0.1:29500").iterdir())
    for file in files:
        pid = file.name.split("-")[1]
        for path in (two_jobs, "127.0.0.1:29500", file):
            done = oddrank("where", path, "--pid", pid, folder=two_jobs)
            assert done.returncode == 0, done.stderr
            (title,) = (line for line in done.stdout.splitlines() if line.startswith("rank"))
            assert f"pid {pid})" in title
    other = oddrank("where", files[0], "--pid", pid, folder=two_jobs)
    assert (other.returncode, other.stdout) == (2, "")
    assert f"process {pid} has no record in the named files" in other.stderr


def test_a_rank_of_another_job_than_the_newest_is_said_to_be_there(two_jobs):
    done = oddrank("where", "0", folder=two_jobs)
    assert (done.returncode, done.stdout) == (2, "")
    (file,) = (two_jobs / "127.0.0.1:29500").glob("rank0-*")
    (line,) = done.stderr.splitlines()
    assert "the newest job, 127.0.0.1:29600, has no record of rank 0 here; " in line
    assert "127.0.0.1:29500 (2 ranks, last event at " in line
    assert line.endswith(f" has one: name {file}")


def test_an_oddrank_dir_means_no_other_folder(two_jobs, tmp_path, monkeypatch):
    (tmp_path / f"oddrank-{os.geteuid()}").symlink_to(two_jobs)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = oddrank("where", folder=tmp_path / "none")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"no record of yours in {tmp_path / 'none'}: " in done.stderr


@pytest.mark.parametrize("command", [["stats"], ["export", "-o", "out.json"]])
def test_nothing_is_summed_over_jobs(two_jobs, tmp_path, command):
    done = oddrank(*command, two_jobs, folder=two_jobs, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "of 2 jobs (127.0.0.1:29500, 127.0.0.1:29600): name the folder" in line
    assert not list(tmp_path.iterdir())


def test_a_jobs_folder_with_a_bracket_in_its_name_is_told_whole(two_jobs, tmp_path):
    shutil.copytree(two_jobs / "127.0.0.1:29500", tmp_path / "old (night) run")
    shutil.copytree(two_jobs / "127.0.0.1:29600", tmp_path / "new")
    for file in (tmp_path / "new").iterdir():
        os.utime(file)
    done = oddrank("where", folder=tmp_path)
    assert re.search(
        r"also here: oddrank trace where 'old \(night\) run' \(2 ranks, last event at [\d: -]+\)\n",
        done.stderr,
    )
