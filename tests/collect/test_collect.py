"""`oddrank collect` copies records and nothing in their place, and packs all it wrote.

The job is named: other jobs may run on this machine, which may be newer.
"""

import json
import os
import socket
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from collect.collecting import JOB, RANK, collect, killed_job, lacks, manifest, node, process
from oddrank.trace import ranks
from processes import stop

BESIDE = "rank{}-4711-4712.trace"  # a valid name of a record
WAITS = "import sys, oddrank\noddrank.arm()\nprint('ready', flush=True)\nsys.stdin.readline()\n"


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    (found,) = killed_job(tmp_path_factory.mktemp("records")).glob("*.trace")
    return found


@pytest.fixture
def job(record, tmp_path):
    """Returns a job's folder with one record; tests add other files."""
    folder = tmp_path / "records" / JOB
    folder.mkdir(parents=True)
    (folder / record.name).write_bytes(record.read_bytes())
    return folder


def _device(path):
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        path.symlink_to("/dev/zero")


def _too_large(path):
    path.write_bytes(b"oddrank\n")
    os.truncate(path, 1 << 40)


FOREIGN = {
    "a link to a file": lambda path: path.symlink_to("/etc/hostname"),
    "a link to a record": lambda path: path.symlink_to(next(path.parent.glob("rank0-*"))),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a pipe": os.mkfifo,
    "a device": _device,
    "a folder": os.mkdir,
    "an empty file": Path.touch,
    "other bytes": lambda path: path.write_text("of somebody else" * 1000),
    "a file as large as a disk": _too_large,
}


def test_only_records_are_copied(job, tmp_path):
    (own,) = job.iterdir()
    foreign = {name: job / BESIDE.format(n) for n, name in enumerate(FOREIGN, 1)}
    for name, path in foreign.items():
        FOREIGN[name](path)
    done = collect(JOB, "-o", tmp_path / "out", records=job.parent)
    assert done.returncode == 0, done.stderr
    (copy,) = (tmp_path / "out").rglob("*.trace")
    assert copy.read_bytes() == own.read_bytes()
    assert done.stdout.startswith(f"1 record of job {job.name} and ")
    for name, path in foreign.items():
        assert str(path) in lacks(tmp_path / "out"), name
        assert f"oddrank: {path} was not collected: " in done.stderr, name


def test_a_file_that_was_named_and_is_no_record_is_an_error(job, tmp_path):
    (own,) = job.iterdir()
    pipe = job / BESIDE.format(1)
    os.mkfifo(pipe)
    for number, paths in enumerate(([pipe], [own, pipe])):
        out = tmp_path / f"out{number}"
        done = collect("-o", out, *paths, records=job.parent)
        assert done.returncode == 2
        assert f"{pipe} was not collected: " in done.stderr
        assert len(list(out.rglob("*.trace"))) == number


def test_what_cannot_be_collected_is_a_line_and_changes_nothing(job, tmp_path, golden):
    out, records = tmp_path / "out", job.parent
    (tmp_path / "file").touch()
    asked = {
        "a job that is not here": (records, ("other-job", "-o", out)),
        "to where it is": (records, (job, "-o", job)),
        "to where it is, in a folder that is no base": (tmp_path / "elsewhere", (job, "-o", job)),
        "to a folder that cannot be": (records, (JOB, "-o", tmp_path / "file" / "out")),
    }
    before, told = sorted(tmp_path.rglob("*")), []
    for name, (records, arguments) in asked.items():
        done = collect(*arguments, records=records)
        assert (done.returncode, done.stdout) == (2, ""), name
        told.append(f"== {name}\n{done.stderr}")
        assert sorted(tmp_path.rglob("*")) == before, name
    text = "".join(told).replace(str(tmp_path), "FOLDER")
    golden(text.replace(f"/{socket.gethostname()} ", "/HOST "))


def test_the_manifest_lists_what_the_folder_has_and_only_the_owner_reads_it(job, tmp_path):
    out, before = tmp_path / "out", os.umask(0)
    try:
        collect(JOB, "-o", out, records=job.parent)
    finally:
        os.umask(before)
    files = [path for path in out.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    listed = [file for one in manifest(out)["sources"] for file in one["files"]]
    sizes = {str(path.relative_to(node(out))): path.stat().st_size for path in files}
    del sizes["manifest.json"]
    assert {file["name"]: file["bytes"] for file in listed} == sizes
    assert manifest(out)["complete"]


def test_what_has_no_room_within_the_limit_is_left_out_and_said(job, tmp_path):
    (own,) = job.glob("rank0-*")
    os.truncate(own, 8 << 20)
    done = collect(JOB, "--limit", "4M", "-o", tmp_path / "out", records=job.parent)
    assert done.returncode == 0
    assert "over the share of its source: raise --limit" in lacks(tmp_path / "out")[str(own)]
    assert not list((tmp_path / "out").rglob("*.trace"))


def kept(folder):
    """Returns the state of the only process that was collected."""
    (seen,) = ranks.parse_states(json.loads((node(folder) / ranks.STATES_FILE).read_text()))
    return seen


def test_the_state_of_each_process_is_kept_with_its_copy_and_through_copies_of_copies(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    with process(WAITS, RANK, tmp_path) as running:
        stop(running.pid)
        collect(JOB, "-o", first, records=tmp_path / "records")
    # Again to the same folder, once it is gone; and from that folder to another one.
    collect(JOB, "-o", first, records=tmp_path / "records")
    collect(first, "-o", second, records=tmp_path / "none")
    for seen in map(kept, (first, second)):
        assert (seen.pid, seen.state, seen.signal) == (running.pid, "stopped", None)
        assert seen.threads[running.pid][0] == "stopped"


def test_how_a_process_ended_is_kept_if_the_judge_of_run_left_it_there(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    with process(WAITS, RANK, tmp_path):
        collect(JOB, "-o", first, records=tmp_path / "records")
    beside = second / node(first).parent.name
    beside.mkdir(parents=True)
    left = replace(kept(first), state="dead", signal=9)
    (beside / ranks.STATES_FILE).write_text(ranks.states_text([left]))
    collect(JOB, "-o", second, records=tmp_path / "records")
    found = kept(second)
    assert (found.pid, found.state, found.signal) == (left.pid, "dead", 9)


def test_a_file_of_states_that_anybody_may_have_written_is_refused():
    for broken in (
        {},
        [],
        {"schema": ranks.STATES_SCHEMA},
        {"schema": ranks.STATES_SCHEMA, "processes": [{}]},
    ):
        with pytest.raises(ValueError, match="it "):
            ranks.parse_states(broken)


def test_one_task_a_node_collects(job, tmp_path):
    more = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    done = collect(JOB, "-o", tmp_path / "out", records=job.parent, more=more)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "out").exists()
