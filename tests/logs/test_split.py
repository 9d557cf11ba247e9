"""`oddrank logs split`: each byte in one file, growing logs, real prefixes, hostile names."""

import os
import signal
import subprocess
import sys

import pytest

from logs.logs_command import oddrank, report, written
from oddrank.logs.following import Follower
from patience import until


def files(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_log_is_split_by_writer(tmp_path):
    log = written(tmp_path / "job.log", "start", "[rank0]: a", "[rank1]: b[rank0]: c", "[rank1]: d")
    made = report("split", log, "-o", tmp_path / "out")
    assert files(tmp_path / "out") == {
        "rank0.log": "[rank0]: a\n[rank0]: c\n",
        "rank1.log": "[rank1]: b\n[rank1]: d\n",
        "no-rank.log": "start\n",
    }
    rows = {row["file"]: row["lines"] for row in made["data"]["files"]}
    assert rows == {"rank0.log": 2, "rank1.log": 2, "no-rank.log": 1}


def test_local_ranks_become_ranks_where_the_log_tells_them(tmp_path):
    log = written(tmp_path / "job.log", "[default0]:a", "[default1]:b", "[default1]:[rank5]: c",
                  "[default0]:[rank4]: d")  # fmt: skip
    oddrank("split", log, "-o", tmp_path / "out", "--strip", check=0)
    assert files(tmp_path / "out") == {"rank4.log": "a\nd\n", "rank5.log": "b\nc\n"}


def test_several_logs_share_the_ranks_files(tmp_path):
    logs = [written(tmp_path / f"rank_{rank}.log", f"of {rank}") for rank in (0, 1)]
    logs.append(written(tmp_path / "job.log", "[rank0]: more"))
    oddrank("split", *logs, "-o", tmp_path / "out", check=0)
    assert files(tmp_path / "out") == {
        "rank0.log": "of 0\n[rank0]: more\n", "rank1.log": "of 1\n",
    }  # fmt: skip


def test_each_byte_of_a_long_tagged_line_behind_a_prefix_is_in_one_file(tmp_path):
    log = written(tmp_path / "job.log", f"[pod/a-0/x] [1,0]<stdout>:{300_000 * 'x'}")
    oddrank("split", log, "-o", tmp_path / "out", check=0)
    assert list(files(tmp_path / "out").values()) == [log.read_text()]


def test_a_programs_own_row_of_dashes_does_not_break_its_line(tmp_path):
    log = written(tmp_path / "job.log", f"[1,0]<stdout>:INFO: {74 * '-'}",
                  "[1,0]<stdout>:Traceback")  # fmt: skip
    oddrank("split", log, "-o", tmp_path / "out", "--strip", check=0)
    assert files(tmp_path / "out") == {"rank0.log": f"INFO: {74 * '-'}\nTraceback\n"}


def test_hostile_names_stay_in_the_folder(tmp_path):
    log = written(tmp_path / "job.log", "(Worker pid=7, ip=../../etc) x", "[pod/../a] y",
                  "[..:12] z", "node-1/../../x9: w")  # fmt: skip
    oddrank("split", log, "-o", tmp_path / "out", check=0)
    assert {path.name for path in tmp_path.iterdir()} == {"job.log", "out"}
    assert sum(map(len, files(tmp_path / "out").values())) == log.stat().st_size


def test_what_cannot_be_split_is_refused_in_one_line(tmp_path):
    log = written(tmp_path / "job.log", "a")
    (tmp_path / "full").mkdir()
    written(tmp_path / "full" / "rank0.log", "precious")
    for arguments, words in (
        ((log, "-o", tmp_path / "full"), "not empty"),
        ((tmp_path / "none", "-o", tmp_path / "out"), "there is no"),
        ((log, log, "-o", tmp_path / "out2", "--follow"), "one file"),
        ((log, "-o", log / "out"), "cannot write"),
    ):
        done = oddrank("split", *arguments, check=2)
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert (tmp_path / "full" / "rank0.log").read_text() == "precious\n"


def read(follower):
    return b"|".join(follower.read()).replace(b"||", b"|")


def test_a_growing_file_is_read_on(tmp_path):
    path = tmp_path / "a.log"
    follower = Follower(path)
    assert read(follower) == b""  # it does not exist yet
    path.write_bytes(b"one\n")
    assert read(follower) == b"one\n"
    with path.open("ab") as file:
        file.write(b"two\n")
    assert (read(follower), read(follower)) == (b"two\n", b"")
    assert follower.restarts == 0


def test_a_rotated_file_is_read_to_its_end_before_the_new_one(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    follower = Follower(path)
    assert read(follower) == b"one\n"
    with path.open("ab") as file:
        path.rename(tmp_path / "a.log.1")
        file.write(b"last\n")
    assert read(follower) == b"last\n"  # the new file has not come yet
    path.write_bytes(b"new\n")
    assert read(follower).replace(b"|", b"") == b"new\n"
    assert follower.restarts == 1


def test_a_truncated_file_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"a long line\n")
    follower = Follower(path)
    assert read(follower) == b"a long line\n"
    path.write_bytes(b"short\n")
    assert read(follower).replace(b"|", b"") == b"short\n"
    assert follower.restarts == 1


def test_a_log_is_split_while_it_grows_is_rotated_and_truncated(tmp_path):
    log = written(tmp_path / "job.log", "[rank0]: a")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "oddrank", "logs", "split", log, "-o", out, "--follow",
               "--for", "100"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        zero, one = out / "rank0.log", out / "rank1.log"
        until(lambda: zero.exists() and zero.read_text() == "[rank0]: a\n")
        with log.open("a") as file:
            file.write("[rank1]: b\n")
        until(lambda: one.exists() and one.read_text() == "[rank1]: b\n")
        log.rename(tmp_path / "job.log.1")
        written(log, "[rank0]: rotated")
        until(lambda: zero.read_text().endswith("rotated\n"))
        written(log, "[rank1]: cut")  # shorter than before
        until(lambda: one.read_text().endswith("cut\n"))
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "rank1.log" in text
    assert zero.read_text() == "[rank0]: a\n[rank0]: rotated\n"


TALK = """
import os, re, sys, time
from pathlib import Path
rank = os.environ["OMPI_COMM_WORLD_RANK"]
log = Path(sys.argv[1])

def say(stream, *words):
    # mpirun drops some of very many short parts in one read: each line waits for the one before.
    print(*words, file=getattr(sys, stream))
    line = " ".join(map(str, words)) + "\\n"
    until = time.monotonic() + 60
    while line not in said(stream):
        assert time.monotonic() < until, f"mpirun has not written {line!r}"
        time.sleep(0.001)

def said(stream):
    text = re.sub(r"\\w{3} \\w{3} +\\d+ [\\d:]+ \\d{4}(?=\\[)", "", log.read_text())
    return "".join(re.findall(rf"\\[1,{rank}\\]<{stream}>:([^[]*)", text))

for line in range(200):
    say("stdout", "  line", line, "of", rank)
    if line % 10 == 0:
        say("stderr", "warning", line, "of", rank)
"""


@pytest.mark.job
@pytest.mark.needs("mpi")
@pytest.mark.parametrize("options", [(), ("--timestamp-output",)])
def test_mpiruns_tagged_output_is_split_into_what_each_rank_printed(tmp_path, options):
    """Unbuffered, print() writes a line in many parts, and mpirun tags each."""
    script = written(tmp_path / "talk.py", TALK)
    log = tmp_path / "job.log"
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--tag-output", *options,
              "-n", "3", sys.executable]  # fmt: skip
    with log.open("wb") as file:
        subprocess.run([*mpirun, script, log], stdout=file, stderr=file, timeout=120, check=True,
                       env={**os.environ, "PYTHONUNBUFFERED": "1"})  # fmt: skip
    text = log.read_text()
    assert text.count("<stdout>:") > 600, "no line came in parts"
    oddrank("split", log, "-o", tmp_path / "out", "--strip", check=0)
    for rank in range(3):
        lines = (tmp_path / "out" / f"rank{rank}.log").read_text().splitlines()
        warnings = [line for line in lines if line.startswith("warning")]
        assert [line for line in lines if line not in warnings] == [
            f"  line {line} of {rank}" for line in range(200)
        ], text
        assert warnings == [f"warning {line} of {rank}" for line in range(0, 200, 10)], text
    oddrank("split", log, "-o", tmp_path / "whole", check=0)
    assert sorted("".join(files(tmp_path / "whole").values())) == sorted(text)
