"""`oddrank trace collect` copies records and nothing else."""

import errno
import json
import os
import signal
import stat
import time
from pathlib import Path

import pytest

from oddrank.errors import OddrankError
from oddrank.trace import collect, states
from trace_command import oddrank

BESIDE = "rank{}-4711-4712.trace"  # a valid name of a record


@pytest.fixture
def job(dead_job, tmp_path):
    """Returns a job's folder with one record; tests add other files."""
    folder = tmp_path / "records" / "127.0.0.1:29500"
    folder.mkdir(parents=True)
    record = next((dead_job / "records").glob("*/rank0-*"))
    (folder / record.name).write_bytes(record.read_bytes())
    return folder


def _link(path, tmp_path):
    (tmp_path / "secret").write_text("of somebody else")
    path.symlink_to(tmp_path / "secret")


def _link_to_a_record(path, _):
    path.symlink_to(next(path.parent.glob("rank0-*")))


def _device(path, _):
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        path.symlink_to("/dev/zero")


def _other_bytes(path, _):
    path.write_text("of somebody else" * 1000)


def _too_large(path, _):
    with path.open("wb") as file:
        file.write(b"oddrank\n")
        file.truncate(1 << 40)


FOREIGN = {
    "a link to a file": _link,
    "a link to a record": _link_to_a_record,
    "a link to nothing": lambda path, _: path.symlink_to("nowhere"),
    "a pipe": lambda path, _: os.mkfifo(path),
    "a device": _device,
    "a folder": lambda path, _: path.mkdir(),
    "an empty file": lambda path, _: path.touch(),
    "other bytes": _other_bytes,
    "a file as large as a disk": _too_large,
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN)
def test_only_records_are_copied(make, job, tmp_path):
    (own,) = job.iterdir()
    foreign = job / BESIDE.format(1)
    make(foreign, tmp_path)
    done = oddrank("collect", tmp_path / "out", folder=job.parent)
    assert done.returncode == 0, done.stderr
    copies = [path for path in (tmp_path / "out").rglob("*") if not path.is_dir()]
    (copy,) = (path for path in copies if path.name != states.NAME)
    assert copy.read_bytes() == own.read_bytes()
    assert f"1 record of job {job.name} in " in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"oddrank: {foreign} was not copied: ")


def test_copies_are_for_their_owner_only_whatever_the_umask_is(job, tmp_path):
    before = os.umask(0)
    try:
        oddrank("collect", tmp_path / "out", folder=job.parent)
    finally:
        os.umask(before)
    (copy,) = (tmp_path / "out").glob("*/*/*.trace")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


def test_a_file_that_was_named_and_is_no_record_is_an_error(job, tmp_path):
    (own,) = job.iterdir()
    pipe = job / BESIDE.format(1)
    os.mkfifo(pipe)
    for paths, copies in (([pipe], 0), ([own, pipe], 1)):
        done = oddrank("collect", tmp_path / "out", *paths, folder=job.parent)
        assert done.returncode == 2
        assert f"{pipe} was not copied: " in done.stderr
        assert len(list((tmp_path / "out").glob("*/*/*.trace"))) == copies


def test_a_record_that_becomes_a_link_while_it_is_looked_at_is_not_followed(
    job, tmp_path, monkeypatch
):
    (own,) = job.iterdir()
    (tmp_path / "secret").write_bytes(own.read_bytes())
    look = collect._jobs

    def looks_then_loses_a_race(files):
        named = list(look(files))
        own.unlink()
        own.symlink_to(tmp_path / "secret")
        return named

    monkeypatch.setattr(collect, "_jobs", looks_then_loses_a_race)
    with pytest.raises(OddrankError, match="symbolic link"):
        collect.collect([own], tmp_path / "out", "host")
    assert not list((tmp_path / "out").rglob("*.trace"))


def test_a_folder_that_cannot_be_is_not_called_too_small(job, tmp_path):
    (tmp_path / "file").touch()
    done = oddrank("collect", tmp_path / "file" / "out", folder=job.parent)
    assert done.returncode == 2
    assert "(Not a directory): name another folder" in done.stderr
    assert "room" not in done.stderr


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "name a folder with room for 4 MiB"),
        (errno.EDQUOT, "name a folder with room for 4 MiB"),
        (errno.EACCES, "name a folder that you may write to"),
        (errno.EROFS, "name a folder that you may write to"),
    ],
)
def test_the_advice_fits_the_reason_why_a_record_cannot_be_copied(
    number, advice, job, tmp_path, monkeypatch
):
    (own,) = job.iterdir()
    with own.open("r+b") as file:
        file.truncate(4 << 20)

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("pathlib.Path.replace", refuse)
    with pytest.raises(OddrankError, match=f"cannot copy .*: {advice}$"):
        collect.collect([own], tmp_path / "out", "host")


def test_the_state_of_each_process_is_kept_with_its_copy_and_through_copies_of_copies(
    waiting, script, tmp_path
):
    process = waiting()
    process.send_signal(signal.SIGSTOP)
    first, second = tmp_path / "first", tmp_path / "second"
    (record,) = (script.folder / "records").rglob("*.trace")
    end = time.monotonic() + 30
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < end
        time.sleep(0.01)
    collect.collect([record], first, "node1")
    process.kill()
    process.wait()
    (copy,) = first.rglob("*.trace")
    collect.collect([copy], second, "node1")
    for folder in (first, second):
        (file,) = folder.glob(f"*/*/{states.NAME}")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        (seen,) = states.parse(json.loads(file.read_text()))
        assert (seen.pid, seen.state, seen.signal) == (process.pid, "stopped", None)
        assert seen.threads[process.pid][0] == "stopped"


def test_a_file_of_states_that_anybody_may_have_written_is_refused():
    for broken in ({}, [], {"schema": states.SCHEMA}, {"schema": states.SCHEMA, "processes": [{}]}):
        with pytest.raises(ValueError, match="it "):
            states.parse(broken)
