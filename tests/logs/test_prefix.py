"""`oddrank run --prefix`: what is covered, and that the scanner reads the prefix back."""

import os
import subprocess
import sys

from logs.logs_command import oddrank, written
from patience import PATIENCE
from texts import texts

SCRIPT = texts(__file__)["script"]


def run(folder, *options, rank=3):
    script = written(folder / "train.py", SCRIPT)
    world = {"RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "4",
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "oddrank", "run", "--no-watch", *options, script],
        # Unbuffered: else a forked child has its parent's lines, too.
        env={**os.environ, **world, "ODDRANK_DIR": str(folder), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE.limit, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    return done.stdout.decode().removesuffix("\n")


def test_lines_of_python_code_bear_host_and_rank_and_are_else_as_without_the_option(tmp_path):
    said = run(tmp_path, "--prefix")
    lines = said.split("\n")
    bare = [line for line in lines if ":rank3] " not in line]
    assert bare == ["raw bytes"]
    for text in ("printed whole", "one", "two", "logged", "warned", "of a thread", "of a child",
                 " 20%", "Traceback", "ValueError: boom"):  # fmt: skip
        assert any(text in line for line in lines), text
    host = said[1 : said.index(":rank3]")]
    bare = said.replace(f"[{host}:rank3] ", "").split("\n")
    assert sorted(bare) == sorted(run(tmp_path).split("\n"))


def test_the_prefix_is_read_back(tmp_path):
    log = tmp_path / "job.log"
    log.write_text(run(tmp_path, "--prefix", rank=2))
    oddrank("split", log, "-o", tmp_path / "out", check=0)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"rank2.log", "no-rank.log"}
    done = oddrank("first-error", log, check=1)
    assert "rank 2: raised ValueError: boom" in done.stdout
