"""The scripts under examples/ that start ranks do what their first lines say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from netns import PATH, two_hosts
from patience import PATIENCE
from processes import captured, injected, shell_script

# The first test that needs SLURM starts it, within its timeout.
pytestmark = [pytest.mark.needs("torch"), pytest.mark.timeout(600)]
EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS = 200


@pytest.fixture
def environ(tmp_path):
    """Returns the variables that the scripts read; a test may change them."""
    return {
        "PYTHON": sys.executable, "OMP_NUM_THREADS": "1", "REPORT": str(tmp_path / "report.json"),
        "EXCLUDE": str(tmp_path / "exclude.txt"), "DEADLINE": "90", "SIZES": "8:64K:x8",
        "RANKS_PER_NODE": "1",
    }  # fmt: skip


def report(environ):
    return json.loads(Path(environ["REPORT"]).read_text())


def names_in(environ):
    """Returns the nodes to leave out."""
    lines = Path(environ["EXCLUDE"]).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.job  # a shell script starts it
def test_torchruns_selftest_on_one_node(environ, tmp_path):
    line = [EXAMPLES / "torchrun" / "selftest.sh", "--quick"]
    own = environ | {"RANKS_PER_NODE": "2"}
    done = captured(line, cwd=tmp_path, limit=PATIENCE.seconds(SECONDS), **own)
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
            said = [node.communicate(timeout=PATIENCE.seconds(SECONDS))[0] for node in nodes]
        finally:
            for node in nodes:
                node.terminate()  # torchrun then ends its ranks
                node.wait(PATIENCE.seconds(10))
    assert [node.returncode for node in nodes] == [0, 0], "\n".join(said)
    assert [text.count("bench: healthy") for text in said] == [1, 0]
    assert {row["n"] for row in report(environ)["data"]["rows"]} == {2}


@pytest.fixture
def submit(environ, tmp_path, slurm, monkeypatch):
    """Submits a script of examples/slurm with `environ`; returns its end and its output's lines."""

    def call(script, *words, options=(), ends=("COMPLETED", 0)):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        where = [f"--ntasks-per-node={environ['RANKS_PER_NODE']}", f"--chdir={tmp_path}", *options]
        line = [*where, str(EXAMPLES / "slurm" / script), *words]
        ended = slurm.batch(*line, output=tmp_path / "output", seconds=PATIENCE.seconds(SECONDS))
        assert (ended.state, ended.code) == ends, ended.output
        return ended.output

    return call


@pytest.fixture
def stand_in(environ, tmp_path):
    """Makes a shell script stand in for the scripts' Python."""

    def make(text):
        environ["PYTHON"] = str(shell_script(tmp_path / "python", text))

    return make


FAILS = ("FAILED", 1)


@pytest.mark.needs("slurm", "netns")
def test_slurms_bench_submitted(environ, submit):
    assert submit("bench.sbatch", "--budget", "3").count("bench: healthy") == 1
    assert {row["n"] for row in report(environ)["data"]["rows"]} == {2}


SPOILT = "value:rank=1,stage=collectives;value:rank=1,stage=localise"


@pytest.mark.needs("slurm", "netns")
@pytest.mark.parametrize(
    ("inject", "stage", "verdict"),
    [
        pytest.param(SPOILT, "collectives", "odd", id="odd"),
        pytest.param("kill:rank=1,stage=device", "device", "odd", id="dead"),
        pytest.param("", "file_system", "unknown", id="folder that no node has"),
    ],
)
def test_slurms_selftest_that_finds_something_keeps_the_job_from_starting(
    environ, submit, inject, stage, verdict
):
    environ |= injected(inject, "", {})
    folder = ("--path", environ["REPORT"] + ".unmounted") * (stage == "file_system")
    output = submit("selftest.sbatch", "--only", stage, *folder, ends=FAILS)
    assert report(environ)["verdict"] == verdict
    assert f"the report is {environ['REPORT']}" in output
    if stage == "collectives":
        assert "rank 1 (node1, local rank 0)" in output
        assert names_in(environ) == ["node1"]
        assert output.splitlines()[-1] == "node1"


@pytest.mark.needs("slurm", "netns")
@pytest.mark.parametrize("code", [2, 3])
def test_slurms_selftest_that_could_not_tell_lets_the_job_start(environ, submit, stand_in, code):
    stand_in(f"exit {code}")
    Path(environ["REPORT"]).write_text('{"verdict": "odd"}')  # of an earlier run
    assert f"ended with {code} and named nobody" in submit("selftest.sbatch")


@pytest.mark.needs("slurm", "netns")
def test_slurms_selftest_says_where_the_nodes_to_leave_out_were_not_written(
    environ, submit, stand_in
):
    stand_in('[ "$1" = -c ] && echo odd && exit\nexit 1')
    output = submit("selftest.sbatch", ends=FAILS)
    assert f"is not known: {environ['EXCLUDE']} was not written" in output


# In place of the training: its verdict blames the first node that it gets, or nobody.
ENDS_ONCE = """[ "$1" = -c ] && exec {python} "$@"
echo "attempt on $(hostname)"
[ -n "${{SLURM_RESTART_COUNT:-}}" ] && exit 0
while [ "$1" != --json ]; do shift; done
cat >"$2" <<END
{{"data": {{"decision": {{"action": "{action}", "why": "a test", "nodes": ["$(hostname)"]}}}}}}
END
exit 1"""


@pytest.mark.needs("slurm", "netns")
@pytest.mark.parametrize("action", ["exclude", "same-nodes", "do-not-restart"])
def test_slurms_training_is_queued_again_as_the_verdict_says(submit, stand_in, action):
    stand_in(ENDS_ONCE.format(python=sys.executable, action=action))
    gives_up = action == "do-not-restart"
    ends = FAILS if gives_up else ("COMPLETED", 0)
    output = submit("train.sbatch", "train.py", options=["--nodes=1"], ends=ends)
    hosts = [line.split()[-1] for line in output.splitlines() if "attempt on" in line]
    assert len(hosts) == (1 if gives_up else 2), output
    assert f"attempt 0 ended with 1: {action}, a test" in output
    if action == "exclude":
        assert hosts[0] != hosts[1]
