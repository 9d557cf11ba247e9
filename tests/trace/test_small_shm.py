"""With a /dev/shm of 64 MiB, as in containers, a job runs as without oddrank."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oddrank.trace import jobs, ranks

pytestmark = [pytest.mark.needs("torch", "netns"), pytest.mark.timeout(180)]
PROGRAM = Path(__file__).with_name("small_shm_program.py")
IN_64_MIB = (
    'mount -t tmpfs -o size=64m tmpfs /dev/shm && "$@"; code=$?; ls -R /dev/shm >&2; exit $code'
)


def run(armed, folder):
    environ = {**os.environ, "TMPDIR": str(folder), "MASTER_ADDR": "here", "MASTER_PORT": "29500"}
    environ.pop("ODDRANK_DIR", None)
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", IN_64_MIB, "sh", sys.executable, PROGRAM, armed],
        env=environ, capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip


def test_eight_ranks_with_32_workers_run_and_are_recorded_elsewhere(tmp_path):
    plain, armed = run("0", tmp_path), run("1", tmp_path)
    assert plain.returncode == 0, plain.stderr
    assert armed.stdout == plain.stdout
    assert plain.stdout.startswith("[0, 0, 0, 0, 0, 0, 0, 0] ")
    assert ".trace" not in armed.stderr
    (job,) = (tmp_path / f"oddrank-{os.geteuid()}").iterdir()
    found, refused = ranks.read(jobs.find([str(job)]).files)
    assert not refused
    assert sorted(rank.rank for rank in found if not rank.is_child) == list(range(8))
    assert sum(rank.is_child for rank in found) == 32
    assert {rank.step for rank in found if not rank.is_child} == {11}
