"""What a sweep says of what it was measured with."""

import pytest

from oddrank.bench import report
from oddrank.control.stages import RankState, RunState
from oddrank.machine import settings


def test_what_a_sweep_was_measured_with_is_of_all_ranks():
    facts = {"torch": "2.11.0", "cuda": None, "driver": None}
    run = RunState(2, {rank: RankState(rank, f"n{rank}") for rank in range(2)})
    run.results["devices"] = {
        0: {**facts, "settings": {"NCCL_ALGO": "Ring"}},
        1: {**facts, "settings": {}},
    }
    connected = {"nccl": None, "links": None}
    run.results["connect"] = {
        rank: {**connected, "gloo_interface": f"eth{rank}"} for rank in range(2)
    }
    assert report._setup(run) == {
        "hosts": ["n0", "n1"], **facts, "nccl": None, "gloo_interface": {"eth0": 1, "eth1": 1},
        "links": None, "settings": {"NCCL_ALGO": {"Ring": 1, "not set": 1}},
    }  # fmt: skip


def test_only_settings_of_a_closed_list_leave_a_rank(monkeypatch):
    pytest.importorskip("torch")
    for name in settings.SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("NCCL_SECRET_TOKEN", "hidden")
    assert settings.of_rank()["settings"] == {"NCCL_ALGO": "Ring"}


def test_lists_of_nics_that_differ_at_their_ends_are_not_the_same(monkeypatch):
    pytest.importorskip("torch")
    nics = [f"mlx5_{i}:1:{i // 2}:{i % 2}" for i in range(32)]
    told = []
    for listed in (nics, nics[:-1]):
        monkeypatch.setenv("NCCL_IB_HCA", "=" + ",".join(listed))
        told.append(settings.of_rank()["settings"]["NCCL_IB_HCA"])
    assert told[0] != told[1]
    monkeypatch.setenv("NCCL_IB_HCA", "x" * 1_000_000)
    assert len(settings.of_rank()["settings"]["NCCL_IB_HCA"]) < 10_000
