"""Facts read from the kernel's files: missing or odd files never raise an error."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from oddrank import launch
from oddrank.machine import placement
from oddrank.selftest.facts import NOT_READABLE, Fact, Here, host, software
from oddrank.selftest.stages.environment import FACTS, STEPS

TORCH = SimpleNamespace(__version__="2.13.0", version=SimpleNamespace(cuda="13.0"))


def here(**changes):
    known = {"torch": TORCH, "master": "", "gpus": {"gpus": 0, "gpu": None}}
    return Here(launch.current({}), **{**known, **changes})


def fails(error):
    def read(here):
        raise error

    return Fact("x", read, "odd").value(here())


def test_what_is_not_there_is_none_and_what_can_not_be_read_is_said():
    assert fails(FileNotFoundError()) is None
    assert fails(PermissionError()) == NOT_READABLE
    assert fails(ValueError()) == NOT_READABLE


def test_every_fact_of_this_host_is_read_and_is_json():
    said = {fact.name: fact.value(here()) for facts in STEPS.values() for fact in facts}
    assert len(said) == len(FACTS)
    assert json.loads(json.dumps(said)) == said
    assert (said["torch"], said["cuda"], said["gpus"]) == ("2.13.0", "13.0", 0)
    assert said["kernel"] == os.uname().release
    assert said["memory_bytes"] > 1 << 20


def test_a_long_text_is_cut():
    assert Fact("x", lambda here: "a" * 10_000, "odd").value(here()) == "a" * 200
    many = {str(i): "b" * 500 for i in range(1000)}
    assert len(json.dumps(Fact("x", lambda here: many, "odd").value(here()))) < 30_000


@pytest.mark.needs("netns")
@pytest.mark.parametrize(("mode", "writable"), [("rw", True), ("ro", False)])
def test_a_dev_shm_that_is_mounted_read_only_is_seen_by_root_too(mode, writable):
    program = "from oddrank.selftest.facts import host; print(host._shm_writable(None))"
    mount = f'mount -t tmpfs -o {mode} none /dev/shm && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    assert done.stdout.strip() == str(writable)


def test_settings_are_of_a_closed_list(monkeypatch):
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("NCCL_SECRET_TOKEN", "hidden")
    assert "hidden" not in json.dumps([fact.value(here()) for fact in host.HOST_FACTS])
    (settings,) = (fact.value(here()) for fact in host.HOST_FACTS if fact.name == "settings")
    assert settings["NCCL_ALGO"] == "Ring"


def files(root, **texts):
    for name, text in texts.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_rdma_ports_have_state_rate_and_kind(tmp_path):
    for name, state in (("mlx5_0", "4: ACTIVE\n"), ("mlx5_1", "1: DOWN\n")):
        port = f"{name}__ports__1__"
        files(tmp_path, **{f"{port}state": state, f"{port}rate": "400 Gb/sec (4X NDR)\n",
                           f"{port}link_layer": "InfiniBand\n"})  # fmt: skip
    assert host.ports(here(), tmp_path) == {
        "mlx5_0/1": "ACTIVE, 400 Gb/sec (4X NDR), InfiniBand",
        "mlx5_1/1": "DOWN, 400 Gb/sec (4X NDR), InfiniBand",
    }
    assert host.ports(here(), tmp_path / "absent") == {}


def test_cards_are_counted_by_speed_and_virtual_ones_are_not_cards(tmp_path):
    files(tmp_path, eth0__device="", eth0__speed="200000\n", eth0__operstate="up\n",
          eth1__device="", eth1__speed="200000\n", eth1__operstate="up\n",
          eth2__device="", eth2__speed="-1\n", eth2__operstate="down\n",
          docker0__speed="10000\n", docker0__operstate="up\n")  # fmt: skip
    assert host.cards(here(), tmp_path) == "1 down (speed not readable), 2 up (200 Gb/s)"


def test_the_mtu_is_that_of_the_interface_in_use(tmp_path, monkeypatch):
    files(tmp_path, eth7__mtu="9000\n")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7,eth8")
    assert host.mtu(here(), tmp_path) == 9000
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "../eth7")
    assert host.mtu(here(), tmp_path) is None
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    assert host.mtu(here(), tmp_path) is None


def test_numa_nodes_are_told_with_where_a_rank_may_run(tmp_path):
    files(tmp_path, node0__cpulist="0-3,8\n", node1__cpulist="4-7\n", node2__cpulist="\n")
    assert host.numa_nodes({8}, tmp_path) == {"0": "used", "1": "not used"}
    assert host.numa_nodes({3, 4}, tmp_path) == {"0": "used", "1": "used"}


def test_the_governor_is_that_of_the_processors_in_use(tmp_path):
    assert host.governor(here(), tmp_path) is None
    for cpu in os.sched_getaffinity(0):
        files(tmp_path, **{f"cpu{cpu}__cpufreq__scaling_governor": "powersave\n"})
    assert host.governor(here(), tmp_path) == "powersave"


def test_the_loaded_nccl_is_the_one_in_the_map_of_the_process(tmp_path):
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r-xp 00000000 08:01 1    /usr/lib/libc.so.6\n")
    assert software.loaded_nccl(here(), maps) is None
    maps.write_text("7f00-7f01 r-xp 00000000 08:01 1    /absent/libnccl.so.2\n" * 2)
    with pytest.raises(OSError, match="libnccl"):
        software.loaded_nccl(here(), maps)


def test_the_image_is_what_the_container_says(tmp_path, monkeypatch):
    for name in software._IMAGE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    podman = tmp_path / ".containerenv"
    podman.write_text('engine="podman"\nimage="x"\nimageid="1a2b"\n')
    assert software.image(here(), podman) == "1a2b"
    monkeypatch.setenv("SINGULARITY_CONTAINER", "/images/train.sif")
    assert software.image(here(), podman) == "/images/train.sif"


def test_a_slice_of_a_gpu_is_told_from_its_neighbour(monkeypatch):
    monkeypatch.setattr(host, "_own_gpu", lambda here: SimpleNamespace(uuid="u"))
    monkeypatch.setattr(host, "gpu_index", lambda launch: 1)
    (uuid,) = (fact for fact in host.GPU_FACTS if fact.name == "gpu_uuid")
    assert uuid.value(here()) == "u"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-7,MIG-8")
    assert uuid.value(here()) == "MIG-8"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-7,GPU-8")
    assert uuid.value(here()) == "u"


@pytest.mark.parametrize(("text", "expected"), [("1\n", 1), ("-1\n", None)])
def test_the_numa_node_of_a_gpu_is_the_kernels(tmp_path, monkeypatch, text, expected):
    own = SimpleNamespace(pci_domain_id=0, pci_bus_id=0x1B, pci_device_id=0)
    monkeypatch.setattr(host, "_own_gpu", lambda here: own)
    files(tmp_path, **{"0000:1b:00.0__numa_node": text})
    monkeypatch.setattr(placement, "PCI_DEVICES", tmp_path)
    assert host.gpu_numa_node(here()) == expected


def git(path, *arguments):
    return subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        cwd=path, check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip


def test_the_commit_is_what_git_says_in_every_kind_of_folder(tmp_path):
    whole, other = tmp_path / "whole", tmp_path / "other"
    whole.mkdir()
    assert software.commit(here(), whole) is None
    git(whole, "init", "-q", "-b", "main")
    assert Fact("x", lambda here: software.commit(here, whole), "odd").value(here()) is None
    git(whole, "commit", "-q", "--allow-empty", "-m", "one")
    one = git(whole, "rev-parse", "HEAD")
    (whole / "deep").mkdir()
    assert software.commit(here(), whole / "deep") == one
    git(whole, "worktree", "add", "-q", "-b", "side", str(other))
    git(other, "commit", "-q", "--allow-empty", "-m", "two")
    two = git(other, "rev-parse", "HEAD")
    assert (software.commit(here(), whole), software.commit(here(), other)) == (one, two)
    git(whole, "pack-refs", "--all")
    assert (software.commit(here(), whole), software.commit(here(), other)) == (one, two)
    git(whole, "checkout", "-q", "--detach", two)
    assert software.commit(here(), whole) == two


@pytest.mark.parametrize("head", ["ref: ../../etc/passwd", "ref: /etc/passwd", "garbage", ""])
def test_a_head_that_is_none_of_gits_gives_nothing(tmp_path, head):
    files(tmp_path, **{".git__HEAD": head, ".git__packed-refs": "x refs/heads/main\n"})
    assert software.commit(here(), tmp_path) is None
