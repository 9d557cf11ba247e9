"""The rendezvous file of a host: owned by this user, whole or absent."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

from oddrank import job
from oddrank.control.address import leave_address, path_under

ADDRESS = "10.0.0.1:29511#secret"


def test_the_name_belongs_to_whoever_started_the_ranks_and_to_one_run(tmp_path, monkeypatch):
    first = path_under(tmp_path, "0")
    assert first == path_under(tmp_path, "0")
    assert first != path_under(tmp_path, "1")
    assert f"-{os.getppid()}-" in first
    monkeypatch.setattr(job, "start_time", lambda pid: 0)  # it is gone
    assert path_under(tmp_path, "0") == ""


def test_a_program_between_launcher_and_rank_changes_no_name():
    names = "RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 "
    environ = {**os.environ, **dict(one.split("=") for one in names.split())}
    code = "import os; from oddrank import launch; print(launch.starter(), os.getppid())"
    rank = [sys.executable, "-c", code]

    def starter(*line, **environ):
        done = subprocess.run(line, env={**os.environ, **environ}, stdout=-1, text=True, check=True)
        return [int(pid) for pid in done.stdout.split()]

    between = ("sh", "-c", '"$@"; true', "sh")
    for line in (rank, [*between, *rank], [*between, *between, *rank]):
        for run in ({"TORCHELASTIC_RUN_ID": "none"}, {}):  # torchrun's, and started by hand
            assert starter(*line, **environ, **run)[0] == os.getpid()
    found, parent = starter("sh", "-c", f'{names} "$@"; true', "sh", *rank, RANK="0")
    assert found == parent  # a launcher that has a RANK itself


def test_the_address_is_left_for_this_user_alone(tmp_path):
    path = tmp_path / "new" / "user" / "job" / "root"
    for address in (ADDRESS, ADDRESS, "10.0.0.2:1#of a later run"):
        leave_address(str(path), address)
        assert path.read_text() == address
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]  # no temporary file is left


def test_no_room_is_no_error_and_a_folder_that_leads_elsewhere_is_not_used(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    elsewhere, file = tmp_path / "elsewhere", tmp_path / "file"
    elsewhere.mkdir()
    (tmp_path / "job").symlink_to(elsewhere)
    file.write_text("")
    for path in ("", "/proc/oddrank/root", file / "job" / "root", tmp_path / "job" / "root"):
        leave_address(str(path), ADDRESS)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)  # folders of another user
    leave_address(str(tmp_path / "job2" / "root"), ADDRESS)
    left = {path.name for path in tmp_path.rglob("*")}
    assert left == {"elsewhere", "file", "job"}
    assert file.read_text() == ""
    assert not Path("/proc/oddrank").exists()


def test_what_killed_guards_have_left_is_cleared_with_the_folders_that_held_nothing_else(tmp_path):
    def left_behind(name, days=2.0):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(ADDRESS)
        os.utime(file, (time.time() - days * 86400,) * 2)
        return file

    alone = left_behind("slurm-1.0/root-4194304-7-0")
    beside = left_behind("slurm-2.0/root-4194304-7-0.4711")  # not even renamed
    kept = [
        left_behind("slurm-2.0/rank0-1-1.trace"),
        left_behind("slurm-3.0/root-4194304-7-0", days=0.5),
    ]
    leave_address(str(tmp_path / "slurm-5.0" / "root-1-1-0"), ADDRESS)
    assert not alone.parent.exists()
    assert not beside.exists()
    assert all(path.exists() for path in kept)
