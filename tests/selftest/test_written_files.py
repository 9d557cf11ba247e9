"""A real run names a rank with another torch, and writes files for schedulers and monitors."""

import os
import re
from pathlib import Path

import pytest

from job import job
from oddrank.control import runner
from processes import typed
from prometheus_text import read

pytestmark = pytest.mark.timeout(180)


@pytest.mark.needs("torch")
def test_a_rank_with_another_torch_and_a_port_that_goes_down_are_told_in_all_files(tmp_path):
    leave_out, figures = tmp_path / "nodes", tmp_path / "oddrank.prom"
    inject = (
        "set:rank=2,stage=environment,name=torch,value=1.0",
        "set:rank=2,stage=counters,name=counters,value=1",
        'set:rank=2,stage=counters_recheck,name=grown,value={"mlx5_0/1 link_downed": 2}',
    )
    files = ("--write-exclude", str(leave_out), "--prometheus", str(figures))
    verdict = job(
        4, command=("selftest", "--only", "counters,device", *files), inject=";".join(inject),
        environ={"NCCL_ALGO": "Ring"}, deadline=60,
    )  # fmt: skip
    found = {one["cause"]: one for one in verdict.report["findings"]}
    assert found.keys() == {"other-version", "errors-counted"}, verdict
    version, errors = found["other-version"], found["errors-counted"]
    assert (version["stage"], version["who"]["ranks"]) == ("environment", [2])
    assert (version["condition"], version["confidence"]["level"]) == ("different", "high")
    assert (errors["stage"], errors["who"]["ranks"]) == ("counters_recheck", [0, 1, 2, 3])
    data = verdict.report["data"]
    assert [one["ranks"] for one in data["environment"]["differing"]["torch"]] == ["0-1,3", "2"]
    assert data["environment"]["common"]["kernel"] == os.uname().release
    assert data["environment"]["common"]["settings"]["NCCL_ALGO"] == "Ring"
    (node,) = data["nodes"]
    assert (node["ranks"], 0 < node["joined_s"] < 60) == ("0-3", True)
    assert [rank["metrics"]["device"]["device"] for rank in data["ranks"]] == ["CPU"] * 4
    first, stays = leave_out.read_text().splitlines()
    assert first == "# oddrank selftest: no nodes to leave out"
    assert re.match(rf"# {os.uname().nodename} stays: rank 2 .* \(other-version\)$", stays)
    families = read(figures.read_text())
    named = [dict(one) for one in families["oddrank_selftest_named"].samples]
    assert [one["rank"] for one in named if one["cause"] == "other-version"] == ["2"]


@pytest.fixture(autouse=True)
def _stops_before_its_first_rank(monkeypatch):
    monkeypatch.setattr(runner, "run", lambda *_, **options: pytest.fail("it runs"))


def test_what_can_not_be_meant_is_one_line_and_exit_code_2(golden, tmp_path):
    Path(tmp_path, "x").mkdir()
    lines = []
    for options in (
        "--write-exclude {}/absent/file", "--prometheus {}/absent/file.prom",
        "--write-exclude - --prometheus -",
        "--write-exclude {}/nodes.prom --prometheus {}/x/../nodes.prom",
        "--prometheus {}/oddrank.txt", "--prometheus /dev/shm/oddrank.txt",
        "--prometheus /dev/null --only=", "--only=", "--only rech", "--only speed --skip speed",
        "--quick --full", "--full --quick", "--only device --path /data",
    ):  # fmt: skip
        done = typed("selftest", *options.format(tmp_path, tmp_path).split())
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), options
        lines += [options, f"  {done.stderr.rstrip()}"]
    golden("\n".join(lines).replace(str(tmp_path), "{}"))
    assert not Path(tmp_path, "absent").exists()


def test_help_says_when_all_is_over_and_what_only_takes_along():
    done = typed("selftest", "--help")
    said = " ".join(done.stdout.split())
    assert done.returncode == 0
    for part in (
        "Default: 120 with --quick, 1800 with --full, else 300.", "2 s later no process is left",
        "connect 120 s,",
        "Run only these stages, and those that they need.",
    ):  # fmt: skip
        assert part in said
