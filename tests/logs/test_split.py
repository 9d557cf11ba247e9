"""`oddrank logs split`: each byte in one file, real prefixes, hostile names."""

import os
import sys

import pytest

from logs.logs_command import oddrank, output, report, written
from oddrank import _native
from texts import texts


def files(folder):
    return {path.name: path.read_bytes().decode() for path in folder.iterdir()}


DASHES = 74 * "-"
LONG = f"[pod/a-0/x] [1,0]<stdout>:{300_000 * 'x'}"
HOSTILE = ["(Worker pid=7, ip=../../etc) x", "[pod/../a] y", "[..:12] z", "node-1/../../x9: w"]


@pytest.mark.parametrize(
    ("logs", "strip", "expected"),
    [
        ({"job.log": ["start", "[rank0]: a", "[rank1]: b[rank0]: c", "[rank1]: d"]}, False,
         {"rank0.log": "[rank0]: a\n[rank0]: c\n", "rank1.log": "[rank1]: b\n[rank1]: d\n",
          "no-rank.log": "start\n"}),
        ({"job.log": ["head", "[rank1]: a[rank0]: b", "[rank1]: c\r"]}, True,
         {"rank0.log": "b\n", "rank1.log": "a\nc\r\n", "no-rank.log": "head\n"}),
        # Local ranks become ranks where the log tells them.
        ({"job.log": ["[default0]:a", "[default1]:b", "[default1]:[rank5]: c",
                      "[default0]:[rank4]: d"]}, True,
         {"rank4.log": "a\nd\n", "rank5.log": "b\nc\n"}),
        ({"rank_0.log": ["of 0"], "rank_1.log": ["of 1"], "job.log": ["[rank0]: more"]}, False,
         {"rank0.log": "of 0\n[rank0]: more\n", "rank1.log": "of 1\n"}),
        # A program's own row of dashes does not break its line.
        ({"job.log": [f"[1,0]<stdout>:INFO: {DASHES}", "[1,0]<stdout>:Traceback"]}, True,
         {"rank0.log": f"INFO: {DASHES}\nTraceback\n"}),
        ({"job.log": [LONG]}, False, {"rank0.log": f"{LONG}\n"}),
    ],
    ids=["by writer", "stripped", "local ranks", "several logs", "dashes", "a long line"],
)  # fmt: skip
def test_a_log_is_split_by_writer(tmp_path, logs, strip, expected):
    paths = [written(tmp_path / name, *lines) for name, lines in logs.items()]
    made = report("split", *paths, "-o", tmp_path / "out", *["--strip"] * strip)
    assert files(tmp_path / "out") == expected
    rows = {row["file"]: (row["lines"], row["bytes"]) for row in made["data"]["files"]}
    assert rows == {name: (text.count("\n"), len(text)) for name, text in expected.items()}


def test_hostile_names_stay_in_the_folder(tmp_path):
    log = written(tmp_path / "job.log", *HOSTILE)
    oddrank("split", log, "-o", tmp_path / "out", check=0)
    assert {path.name for path in tmp_path.iterdir()} == {"job.log", "out"}
    assert sum(map(len, files(tmp_path / "out").values())) == log.stat().st_size


def test_a_number_that_no_file_has_is_an_error(tmp_path):
    splitter = _native.core().LogSplitter(str(tmp_path), lambda writer: 7, False)
    splitter.add("rank0.log")
    with pytest.raises(IndexError):
        splitter.feed(b"[rank0]: a\n")


def test_a_last_line_without_an_end_gets_one(tmp_path):
    (tmp_path / "job.log").write_text("[rank0]: a\n[rank0]: no end")
    oddrank("split", tmp_path / "job.log", "-o", tmp_path / "out", check=0)
    assert files(tmp_path / "out") == {"rank0.log": "[rank0]: a\n[rank0]: no end\n"}


TALK = texts(__file__)["talk"]


@pytest.mark.job
@pytest.mark.needs("mpi")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("options", [(), ("--timestamp-output",)])
def test_mpiruns_tagged_output_is_split_into_what_each_rank_printed(tmp_path, options):
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--tag-output", *options,
              "-n", "3", sys.executable]  # fmt: skip
    log = output(tmp_path, mpirun, tmp_path / "job.log", script=TALK, check=True)
    text = log.read_text()
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


# A rank starts later than another, and torchrun reads each rank's lines by itself: no rank goes on
# before the lines of all are in the log.
TEE = texts(__file__)["tee"]


@pytest.mark.job
@pytest.mark.needs("torch")
@pytest.mark.timeout(300)
def test_torchruns_tee_is_split_by_writer(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", "--tee",
                "3"]  # fmt: skip
    # Unbuffered: torchrun would keep lines, too.
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    log = output(tmp_path, torchrun, script=TEE, check=True, env=environ)
    oddrank("split", log, "-o", tmp_path / "out", "--strip", check=0)
    counts = {path.stem: path.read_text().count("at work\n") for path in tmp_path.glob("out/*.log")}
    assert {name: n for name, n in counts.items() if n} == {
        "local-rank-0": 40, "local-rank-1": 20, "local-rank-2": 40
    }  # fmt: skip
