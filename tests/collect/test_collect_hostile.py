"""`oddrank collect` where things go wrong: dead file systems, full disks, signals."""

import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from collect.collecting import collect, killed_job, lacks, manifest, names
from dead_fuse import dead_file_system
from oddrank.collect import node
from oddrank.collect.children import Stop
from oddrank.collect.sources import Source
from patience import at_once, until
from processes import lives
from texts import texts


@pytest.fixture(autouse=True)
def no_job_here(tmp_path, monkeypatch):
    """Other tests' jobs run on this machine: this one has a record, which comes first."""
    records = tmp_path / "records"
    killed_job(records)
    monkeypatch.setenv("ODDRANK_DIR", str(records))
    return records


def gather(out, sources, records, *, limit=64 << 20, deadline=600.0):
    folder = next(records.iterdir())
    return node.gather(
        [str(folder)], out, "node1", limit=limit, deadline=deadline, stop=Stop(), sources=sources
    )


def puts(content):
    return Source("puts", 300.0, 0.5, lambda target, part, sink: sink.put("file.txt", content))


def test_a_source_that_hangs_or_breaks_is_named_and_all_others_are_there(tmp_path, no_job_here):
    def hangs(target, part, sink):
        sink.put("before.txt", b"before")
        sink.at("/nfs/data")
        time.sleep(1000)

    def breaks(target, part, sink):
        raise KeyError("unexpected")

    seconds, why = 1, "no answer within 1 s"
    while why == f"no answer within {seconds} s":  # it had no core to begin in
        seconds *= 4
        out = tmp_path / f"out{seconds}"
        own = Source("hangs", float(seconds), 0.1, hangs)
        sources = [own, Source("breaks", 300.0, 0.1, breaks), puts(b"x")]
        done = gather(out, sources, no_job_here)
        why = lacks(out)["hangs"]
    assert lacks(out) == {
        "hangs": f"no answer within {seconds} s, at /nfs/data",
        "breaks": "KeyError('unexpected')",
    }
    assert names(out) == {"before.txt", "file.txt", "manifest.json"}
    assert (done.why, done.files) == ("", 2)


def test_a_file_that_grows_while_it_is_read_stays_below_the_limit(tmp_path, no_job_here):
    def endless(target, part, sink):
        sink.put("endless", iter(lambda: b"x" * (1 << 20), None))

    gather(tmp_path / "out", [Source("endless", 300.0, 1.0, endless)], no_job_here, limit=4 << 20)
    assert "raise --limit" in lacks(tmp_path / "out")["endless"]
    assert names(tmp_path / "out") == {"manifest.json"}


def test_a_signal_keeps_what_is_done_and_the_manifest_says_so(tmp_path, no_job_here):
    program = texts(__file__)["signal"]
    folder, out = next(no_job_here.iterdir()), tmp_path / "out"
    running = subprocess.Popen([sys.executable, "-c", program, folder, out])
    try:
        until(lambda: list(out.rglob("early.txt")) and list(out.rglob("done.txt")), 600)
        running.send_signal(signal.SIGTERM)
        assert running.wait() == 0
    finally:
        running.kill()
        running.wait()
    told = manifest(out)
    assert (told["complete"], told["ended_by"]) == (False, "SIGTERM")
    assert lacks(out)["slow"] == "cut short by SIGTERM, at /nfs/data"
    assert names(out) == {"done.txt", "early.txt", "manifest.json"}


@pytest.fixture
def dead(tmp_path):
    folder = tmp_path / "dead"
    folder.mkdir()
    return folder


@pytest.mark.needs("fuse")
def test_a_dead_output_folder_ends_it_in_words(tmp_path, no_job_here):
    def ended(takes):
        folder = tmp_path / f"takes {takes}"
        folder.mkdir()
        with dead_file_system(folder, takes=takes):
            return collect("--deadline", "20", "-o", folder / "out", records=no_job_here)

    for done in at_once([partial(ended, False), partial(ended, True)]):
        assert (done.returncode, done.stdout) == (2, "")
        assert "no answer within 5 s" in done.stderr
        assert "name another folder with -o" in done.stderr


@pytest.mark.needs("fuse")
def test_records_on_a_dead_file_system_hang_nobody(tmp_path, dead, no_job_here):
    with dead_file_system(dead, takes=True):
        done = collect("--deadline", "20", "-o", tmp_path / "out", records=dead)
    assert done.returncode in (0, 2)
    assert "the records" in done.stderr


@pytest.mark.needs("fuse")  # may mount
def test_a_full_disk_leaves_a_manifest_that_says_what_has_no_room(tmp_path, no_job_here):
    out = tmp_path / "small"
    out.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", out], check=True)
    try:
        gather(out, [puts(b"x" * (1 << 20))], no_job_here)
        assert lacks(out) == {"file.txt": "No space left on device"}
    finally:
        subprocess.run(["umount", "-l", out], check=True)


def test_children_of_a_killed_collect_end_with_it(tmp_path, no_job_here):
    program = texts(__file__)["killed"]
    file = tmp_path / "pid"
    running = subprocess.Popen([sys.executable, "-c", program, file])
    until(lambda: file.exists() and file.read_text(), 600)
    running.kill()
    running.wait()
    until(lambda: not lives(file.read_text()), 600)
