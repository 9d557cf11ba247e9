"""`oddrank advise` on this environment."""

import json
import os
import re

import pytest

from oddrank import launch
from oddrank.advise.checks import here
from processes import typed
from reports import valid

SECRET = "hunter2"
KIN = ("NCCL_", "TORCH", "OMP_", "CUDA_", "PYTORCH_")


def advise(*arguments, **environ):
    with pytest.MonkeyPatch.context() as patch:
        for name in filter(lambda name: name.startswith(KIN), list(os.environ)):
            patch.delenv(name)
        return typed("advise", *arguments, **{"COLUMNS": "200"} | environ)


def report(*arguments, **environ):
    done = advise(*arguments, "--json", "-", **environ)
    assert done.returncode in (0, 1), done.stderr
    return valid(done.stdout), done.stderr


def named(found):
    return {(one["cause"], *one["who"]["ranks"]) for one in found["findings"]}


def test_a_plain_environment_is_healthy():
    done = advise(NCCL_DEBUG="WARN")
    assert done.returncode == 0
    assert "advise: healthy\n1 variable is set of NCCL, torch, CUDA and their kin" in done.stdout
    assert "log level" in done.stdout


def test_this_environment_is_explained_and_warned_of():
    found, said = report(CUDA_LAUNCH_BLOCKING="1", NCCL_ASYNC_ERROR_HANDLING="1", NCLL_DEBUG="INFO")
    assert found["verdict"] == "odd"
    assert named(found) == {("launch-blocking",), ("renamed",), ("misspelt",)}
    rows = {row["name"]: row for row in found["data"]["variables"]}
    assert rows["CUDA_LAUNCH_BLOCKING"]["value"] == "1"
    assert "this environment" in said
    assert "unset CUDA_LAUNCH_BLOCKING" in said


def test_values_that_are_not_on_the_white_list_are_never_shown():
    secrets = {"NCCL_TOKEN": SECRET, "NCCL_DEBUGG": SECRET, "AWS_SECRET_ACCESS_KEY": SECRET,
               "NCCL_CONF_FILE": SECRET, "PASSWORD": SECRET}  # fmt: skip
    found, said = report(**secrets)
    assert SECRET not in said + json.dumps(found)
    rows = {row["name"]: row for row in found["data"]["variables"]}
    assert rows["NCCL_CONF_FILE"]["shown"] is False
    assert "AWS_SECRET_ACCESS_KEY" not in said + json.dumps(found)
    assert "PASSWORD" not in rows


def test_what_torchrun_sets_itself_is_one_row():
    sets = {f"TORCHELASTIC_{name}": "0" for name in ("RUN_ID", "RESTART_COUNT", "MAX_RESTARTS")}
    said = advise(**sets, OMP_NUM_THREADS="1").stdout
    assert re.search(r"\nTORCHELASTIC_\* +3 that torchrun sets itself: see --json\n", said)
    assert "\nOMP_NUM_THREADS=1 " in said
    assert "TORCHELASTIC_RUN_ID" not in said


def test_escapes_in_a_value_do_not_reach_the_terminal():
    done = advise(NCCL_SOCKET_IFNAME="\x1b[2Jeth0\x07\nnext")
    assert "\x1b" not in done.stdout + done.stderr
    assert "NCCL_SOCKET_IFNAME=\\x1b[2Jeth0" in done.stdout


def test_a_narrow_terminal_breaks_no_name():
    done = advise(COLUMNS="80", TORCH_NCCL_ASYNC_ERROR_HANDLING="3", NCCL_IB_HCA="=mlx5_0," * 9)
    lines = done.stdout.splitlines()
    assert any(line.startswith("TORCH_NCCL_ASYNC_ERROR_HANDLING=3 ") for line in lines)
    assert max(map(len, lines)) <= 80


def test_values_that_variables_can_not_take_are_not_healthy():
    found, said = report(NCCL_IB_TIMEOUT="abc", OMP_NUM_THREADS="-1", NCCL_DEBUG="BOGUS")
    assert found["verdict"] == "odd"
    assert [one["cause"] for one in found["findings"]] == ["impossible"] * 3
    assert "NCCL_DEBUG takes NONE, VERSION, WARN, INFO, ABORT or TRACE" in said


def test_fail_on_lets_a_prolog_pass():
    assert advise("--fail-on", "none", CUDA_LAUNCH_BLOCKING="1").returncode == 0


def test_in_a_job_one_rank_of_each_node_prints():
    place = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "n1", "NCCL_DEBUG": "WARN"}
    for rank, local, prints in ((0, 0, True), (1, 1, False), (2, 0, True)):
        done = advise(**place, RANK=str(rank), LOCAL_RANK=str(local), OMP_NUM_THREADS="1")
        assert (done.returncode, "NCCL_DEBUG" in done.stdout) == (0, prints)


def test_this_process_keeps_no_value_of_an_unknown_variable(monkeypatch):
    monkeypatch.setenv("NCCL_TOKEN", SECRET)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    variables = here(launch.current()).variables
    assert variables["NCCL_TOKEN"] is None
    assert "AWS_SECRET_ACCESS_KEY" not in variables
