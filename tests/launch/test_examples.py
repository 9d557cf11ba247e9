"""The scripts under examples/ that start ranks do what their first lines say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from netns import PATH, two_hosts

# The first test that needs SLURM starts it, within its timeout.
pytestmark = [pytest.mark.needs("torch"), pytest.mark.timeout(300)]
EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS = 100


@pytest.fixture
def environ(tmp_path):
    return {
        "PYTHON": sys.executable,
        "OMP_NUM_THREADS": "1",
        "REPORT": str(tmp_path / "report.json"),
        "EXCLUDE": str(tmp_path / "exclude.txt"),
        "DEADLINE": "90",
        "SIZES": "8:64K:x8",
        "RANKS_PER_NODE": "1",
    }


def report(environ):
    return json.loads(Path(environ["REPORT"]).read_text())


@pytest.mark.job  # a shell script starts it
def test_torchruns_selftest_on_one_node(environ, tmp_path):
    done = subprocess.run(
        [EXAMPLES / "torchrun" / "selftest.sh", "--quick"],
        env={**os.environ, **environ, "RANKS_PER_NODE": "2"}, cwd=tmp_path, timeout=SECONDS,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all 2 ranks are healthy" in done.stdout
    assert report(environ)["verdict"] == "healthy"
    assert names_in(environ) == []


@pytest.mark.needs("netns")
def test_torchruns_bench_typed_on_each_of_two_nodes(environ, tmp_path):
    with two_hosts() as hosts:
        nodes = [
            subprocess.Popen(
                [*host.prefix, EXAMPLES / "torchrun" / "bench.sh", "--budget", "3"],
                env={
                    **os.environ, **environ, "PATH": PATH,
                    "NODES": "2", "NODE_RANK": str(node), "MASTER_ADDR": hosts[0].address,
                },
                cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for node, host in enumerate(hosts)
        ]  # fmt: skip
        try:
            said = [node.communicate(timeout=SECONDS)[0] for node in nodes]
        finally:
            for node in nodes:
                node.terminate()  # torchrun then ends its ranks
                node.wait(10)
    assert [node.returncode for node in nodes] == [0, 0], "\n".join(said)
    assert [text.count("bench: healthy") for text in said] == [1, 0]
    assert {row["n"] for row in report(environ)["data"]["rows"]} == {2}


@pytest.mark.needs("slurm", "netns")
def test_slurms_bench_submitted(environ, tmp_path, slurm, monkeypatch):
    ended = submit(("bench.sbatch", "--budget", "3"), environ, tmp_path, slurm, monkeypatch)
    assert (ended.state, ended.code) == ("COMPLETED", 0), ended.output
    assert ended.output.count("bench: healthy") == 1
    assert {row["n"] for row in report(environ)["data"]["rows"]} == {2}


@pytest.mark.needs("slurm", "netns")
def test_slurms_selftest_submitted_with_a_rank_that_is_odd_keeps_the_job_from_starting(
    environ, tmp_path, slurm, monkeypatch
):
    spoilt = "value:rank=1,stage=collectives;value:rank=1,stage=localise"
    fault = {"ODDRANK_TESTING": "1", "ODDRANK_INJECT": spoilt}
    script = ("selftest.sbatch", "--only", "collectives")
    ended = submit(script, environ | fault, tmp_path, slurm, monkeypatch)
    assert (ended.state, ended.code) == ("FAILED", 1), ended.output
    assert "rank 1 (node1, local rank 0)" in ended.output
    assert report(environ)["verdict"] == "odd"
    assert names_in(environ) == ["node1"]
    assert ended.output.splitlines()[-1] == "node1"


@pytest.mark.needs("slurm", "netns")
def test_slurms_selftest_submitted_with_a_rank_that_dies(environ, tmp_path, slurm, monkeypatch):
    fault = {"ODDRANK_TESTING": "1", "ODDRANK_INJECT": "kill:rank=1,stage=device"}
    script = ("selftest.sbatch", "--only", "device")
    ended = submit(script, environ | fault, tmp_path, slurm, monkeypatch)
    assert (ended.state, ended.code) == ("FAILED", 1), ended.output
    assert "the report is" in ended.output
    assert report(environ)["verdict"] == "odd"


@pytest.mark.needs("slurm", "netns")
@pytest.mark.parametrize("code", [2, 3])
def test_slurms_selftest_that_could_not_tell_lets_the_job_start(
    environ, tmp_path, slurm, monkeypatch, code
):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexit {code}\n")
    python.chmod(0o755)
    script, changed = ("selftest.sbatch",), environ | {"PYTHON": str(python)}
    Path(environ["REPORT"]).write_text('{"verdict": "odd"}')  # of an earlier run
    ended = submit(script, changed, tmp_path, slurm, monkeypatch)
    assert (ended.state, ended.code) == ("COMPLETED", 0), ended.output
    assert f"ended with {code} and named nobody" in ended.output


@pytest.mark.needs("slurm", "netns")
def test_slurms_selftest_submitted_with_a_folder_that_no_node_has_keeps_the_job_from_starting(
    environ, tmp_path, slurm, monkeypatch
):
    script = ("selftest.sbatch", "--only", "file_system", "--path", str(tmp_path / "unmounted"))
    ended = submit(script, environ, tmp_path, slurm, monkeypatch)
    assert (ended.state, ended.code) == ("FAILED", 1), ended.output
    assert "something is wrong, and nobody can be named" in ended.output
    assert report(environ)["verdict"] == "unknown"


ENDS_ODD = """#!/bin/sh
if [ "$1" = -c ]; then
    echo odd
    exit
fi
exit 1
"""


@pytest.mark.needs("slurm", "netns")
def test_slurms_selftest_says_where_the_nodes_to_leave_out_were_not_written(
    environ, tmp_path, slurm, monkeypatch
):
    python = tmp_path / "python"
    python.write_text(ENDS_ODD)
    python.chmod(0o755)
    changed = environ | {"PYTHON": str(python)}
    ended = submit(("selftest.sbatch",), changed, tmp_path, slurm, monkeypatch)
    assert (ended.state, ended.code) == ("FAILED", 1), ended.output
    assert f"is not known: {environ['EXCLUDE']} was not written" in ended.output


# In place of the training: its verdict blames the first node that it gets, or nobody.
ENDS_ONCE = """#!/bin/sh
[ "$1" = -c ] && exec {python} "$@"
echo "attempt on $(hostname)"
[ -n "${{SLURM_RESTART_COUNT:-}}" ] && exit 0
while [ "$1" != --json ]; do shift; done
cat >"$2" <<END
{{"data": {{"decision": {{"action": "{action}", "why": "a test", "nodes": ["$(hostname)"]}}}}}}
END
exit 1
"""


@pytest.mark.needs("slurm", "netns")
@pytest.mark.parametrize("action", ["exclude", "same-nodes", "do-not-restart"])
def test_slurms_training_is_queued_again_as_the_verdict_says(
    environ, tmp_path, slurm, monkeypatch, action
):
    attempts = 1 if action == "do-not-restart" else 2
    python = tmp_path / "python"
    python.write_text(ENDS_ONCE.format(python=sys.executable, action=action))
    python.chmod(0o755)
    script = ("--nodes=1", "train.sbatch", "train.py")
    ended = submit(script, environ | {"PYTHON": str(python)}, tmp_path, slurm, monkeypatch)
    hosts = [line.split()[-1] for line in ended.output.splitlines() if "attempt on" in line]
    assert len(hosts) == attempts, ended.output
    assert f"attempt 0 ended with 1: {action}, a test" in ended.output
    assert ended.state == ("FAILED" if attempts == 1 else "COMPLETED"), ended.output
    if action == "exclude":
        assert hosts[0] != hosts[1]


def names_in(environ):
    """Returns the nodes to leave out."""
    lines = Path(environ["EXCLUDE"]).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def submit(script, environ, tmp_path, slurm, monkeypatch):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    tasks = f"--ntasks-per-node={environ['RANKS_PER_NODE']}"
    where = f"--chdir={tmp_path}"
    words = [
        str(EXAMPLES / "slurm" / word) if word.endswith(".sbatch") else word for word in script
    ]
    return slurm.batch(tasks, where, *words, output=tmp_path / "output", seconds=SECONDS)
