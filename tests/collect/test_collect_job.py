"""Real jobs hang, are collected and end: triage says the same of the folder as of the live job."""

import json
import os
import shutil
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import forked
from collect.collecting import collect, environ, names, node, process
from patience import until
from processes import stop, typed

RECORD_JOB = Path(__file__).parents[1] / "triage" / "record_job.py"
SECRET = "a-secret-of-5f0c1d"
SLEEPS = "import sys\nprint('ready', flush=True)\nsys.stdin.readline()\n"
CULPRIT = 2


def verdict(*paths):
    """Returns what triage says, without the names of files."""
    report = json.loads(typed("triage", *paths, "--json", "-").stdout)
    keys = ("cause", "what", "confidence")
    found = [(f["who"]["ranks"], *(f[key] for key in keys)) for f in report["findings"]]
    return report["verdict"], report["summary"], found


@pytest.mark.needs("torch-build")
@pytest.mark.job
@pytest.mark.timeout(1800)
def test_of_a_job_under_torchrun_a_packed_folder_gives_the_verdict_of_the_live_job(tmp_path):
    records, out, said = (tmp_path / name for name in ("records", "out", "said"))
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4",
              "--master-addr", "127.0.0.1", "--master-port", "0", "--rdzv-backend", "c10d",
              "--rdzv-endpoint", "127.0.0.1:0", str(RECORD_JOB), "dataloader"]  # fmt: skip
    with said.open("wb") as output:
        job = forked.popen(
            launch,
            env=environ(records, {"OMP_NUM_THREADS": "1", "API_TOKEN": SECRET}),
            stdout=output,
            stderr=output,
        )
    try:
        until(lambda: job.poll() is not None or said.read_text().count("ready") == 4, 1500)
        live = verdict(*records.rglob("*.trace"))
        while live[2][0][1] == "moving":  # it has just begun to stand still
            live = verdict(*records.rglob("*.trace"))
        done = collect("-o", out, records=records)
        assert done.returncode == 0, done.stderr
    finally:
        ranks = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text()
        for pid in map(int, ranks.split()):  # they end with a signal only
            os.kill(pid, signal.SIGKILL)
        job.kill()
        job.wait()
    found = names(out)
    assert sum(name.endswith(".process.json") for name in found) == 4
    assert {"manifest.json", "states.json", "cgroups.json"} <= found
    files = [file for file in out.rglob("*") if file.is_file()]
    assert not any(SECRET.encode() in file.read_bytes() for file in files)
    archive = shutil.make_archive(str(tmp_path / "packed"), "gztar", node(out).parent)
    of_archive = verdict(archive)
    assert of_archive == verdict(node(out)) == verdict(out)
    assert of_archive[0] == live[0] == "odd"
    ranks, cause, _, confidence = of_archive[2][0]
    assert (ranks, cause) == live[2][0][:2]
    assert ranks == [CULPRIT]
    assert confidence["level"] != "low"


def test_a_stopped_rank_of_a_job_without_oddrank_is_named_after_its_end(tmp_path):
    name = f"oddrank-test-{os.getpid()}"
    with ExitStack() as stack:
        job = {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": name,
               "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1",
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}  # fmt: skip
        each = [job | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(3)]
        ranks = [stack.enter_context(process(SLEEPS, own, tmp_path)) for own in each]
        stop(ranks[1].pid)
        done = collect(name, "-o", tmp_path / "out", records=tmp_path / "records")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"0 records of job {name} and ")
        ranks[1].send_signal(signal.SIGCONT)
    verdict_, summary, findings = verdict(node(tmp_path / "out"))
    assert (verdict_, findings[0][:2]) == ("odd", ([1], "host-stopped"))
    assert "rank 1" in summary
