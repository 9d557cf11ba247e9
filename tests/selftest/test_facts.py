"""Facts read from the kernel's files: missing or odd files never raise an error."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from oddrank import launch
from oddrank.machine import placement
from oddrank.selftest import facts
from oddrank.selftest.facts import NOT_READABLE, Fact, Here
from oddrank.selftest.stages.environment import FACTS, STEPS
from patience import PATIENCE
from processes import shell_script

TORCH = SimpleNamespace(__version__="2.13.0", version=SimpleNamespace(cuda="13.0"))


def here(**changes):
    known = {"torch": TORCH, "master": "", "gpus": {"gpus": 0, "gpu": None}}
    return Here(launch.current({}), **{**known, **changes})


def test_what_is_not_there_is_none_what_can_not_be_read_is_said_and_a_long_text_is_cut():
    def value(error=None, said=None):
        def read(here):
            if error:
                raise error
            return said

        return Fact("x", read, "odd").value(here())

    assert value(FileNotFoundError()) is None
    assert value(PermissionError()) == value(ValueError()) == NOT_READABLE
    assert value(said="a" * 10_000) == "a" * 200
    assert len(json.dumps(value(said={str(i): "b" * 500 for i in range(1000)}))) < 30_000


def test_every_fact_of_this_host_is_read_and_is_json():
    said = {fact.name: fact.value(here()) for facts in STEPS.values() for fact in facts}
    assert len(said) == len(FACTS)
    assert json.loads(json.dumps(said)) == said
    assert (said["torch"], said["cuda"], said["gpus"]) == ("2.13.0", "13.0", 0)
    assert said["kernel"] == os.uname().release
    assert said["memory_bytes"] > 1 << 20


@pytest.mark.needs("netns")
def test_a_dev_shm_that_is_mounted_read_only_is_seen_by_root_too():
    program = "from oddrank.selftest import facts; print(facts._shm_writable(None))"
    for mode, writable in (("rw", True), ("ro", False)):
        mount = f'mount -t tmpfs -o {mode} none /dev/shm && exec "$@"'
        said = subprocess.check_output(
            ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, "-c", program],
            text=True, timeout=PATIENCE.limit,
        )  # fmt: skip
        assert said.strip() == str(writable)


def test_settings_are_of_a_closed_list(monkeypatch):
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("NCCL_SECRET_TOKEN", "hidden")
    assert "hidden" not in json.dumps([fact.value(here()) for fact in facts.HOST_FACTS])
    (settings,) = (fact.value(here()) for fact in facts.HOST_FACTS if fact.name == "settings")
    assert settings["NCCL_ALGO"] == "Ring"


def files(root, **texts):
    for name, text in texts.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_rdma_ports_have_state_rate_and_kind(tmp_path):
    link = {"rate": "400 Gb/sec (4X NDR)\n", "link_layer": "InfiniBand\n"}
    for name, state in (("mlx5_0", "4: ACTIVE\n"), ("mlx5_1", "1: DOWN\n")):
        for file, text in {"state": state, **link}.items():
            files(tmp_path, **{f"{name}__ports__1__{file}": text})
    assert facts.ports(here(), tmp_path) == {
        "mlx5_0/1": "ACTIVE, 400 Gb/sec (4X NDR), InfiniBand",
        "mlx5_1/1": "DOWN, 400 Gb/sec (4X NDR), InfiniBand",
    }
    assert facts.ports(here(), tmp_path / "absent") == {}


def test_cards_are_counted_by_speed_and_virtual_ones_are_not_cards(tmp_path):
    files(tmp_path, eth0__device="", eth0__speed="200000\n", eth0__operstate="up\n",
          eth1__device="", eth1__speed="200000\n", eth1__operstate="up\n",
          eth2__device="", eth2__speed="-1\n", eth2__operstate="down\n",
          docker0__speed="10000\n", docker0__operstate="up\n")  # fmt: skip
    assert facts.cards(here(), tmp_path) == "1 down (speed not readable), 2 up (200 Gb/s)"


def test_the_mtu_is_that_of_the_interface_in_use(tmp_path, monkeypatch):
    files(tmp_path, eth7__mtu="9000\n")
    for name, mtu in (("eth7,eth8", 9000), ("../eth7", None), (".", None), ("", None)):
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", name)
        assert facts.mtu(here(), tmp_path) == mtu, name


def test_numa_nodes_and_governors_are_those_of_the_processors_in_use(tmp_path):
    files(tmp_path, node0__cpulist="0-3,8\n", node1__cpulist="4-7\n", node2__cpulist="\n")
    assert facts.numa_nodes({8}, tmp_path) == {"0": "used", "1": "not used"}
    assert facts.numa_nodes({3, 4}, tmp_path) == {"0": "used", "1": "used"}
    assert facts.governor(here(), tmp_path) is None
    for cpu in os.sched_getaffinity(0):
        files(tmp_path, **{f"cpu{cpu}__cpufreq__scaling_governor": "powersave\n"})
    files(tmp_path, cpu99999__cpufreq__scaling_governor="performance\n")
    assert facts.governor(here(), tmp_path) == "powersave"


def test_the_loaded_nccl_is_the_one_in_the_map_of_the_process(tmp_path):
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r-xp 00000000 08:01 1    /usr/lib/libc.so.6\n")
    assert facts.loaded_nccl(here(), maps) is None
    maps.write_text("7f00-7f01 r-xp 00000000 08:01 1    /absent/libnccl.so.2\n" * 2)
    with pytest.raises(OSError, match="libnccl"):
        facts.loaded_nccl(here(), maps)


def test_the_image_is_what_the_container_says(tmp_path, monkeypatch):
    for name in facts._IMAGE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    podman = tmp_path / ".containerenv"
    podman.write_text('engine="podman"\nimage="x"\nimageid="1a2b"\n')
    assert facts.image(here(), podman) == "1a2b"
    monkeypatch.setenv("SINGULARITY_CONTAINER", "/images/train.sif")
    assert facts.image(here(), podman) == "/images/train.sif"


def test_a_slice_of_a_gpu_is_told_from_its_neighbour_and_the_numa_node_is_the_kernels(
    monkeypatch, tmp_path
):
    own = SimpleNamespace(uuid="u", pci_domain_id=0, pci_bus_id=0x1B, pci_device_id=0)
    monkeypatch.setattr(facts, "_own_gpu", lambda here: own)
    monkeypatch.setattr(facts, "gpu_index", lambda launch: 1)
    (uuid,) = (fact for fact in facts.GPU_FACTS if fact.name == "gpu_uuid")
    assert uuid.value(here()) == "u"
    for visible, said in (("MIG-7,MIG-8", "MIG-8"), ("GPU-7,GPU-8", "u"), ("MIG-7", "u")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert uuid.value(here()) == said
    monkeypatch.setattr(placement, "PCI_DEVICES", tmp_path)
    for text, node in (("1\n", 1), ("-1\n", None)):
        files(tmp_path, **{"0000:1b:00.0__numa_node": text})
        assert facts.gpu_numa_node(here()) == node


def git(path, *arguments):
    return subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        cwd=path, check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip


def test_the_commit_is_what_git_says_in_every_kind_of_folder(tmp_path):
    whole, other = tmp_path / "whole", tmp_path / "other"
    whole.mkdir()
    assert facts.commit(here(), whole) is None
    git(whole, "init", "-q", "-b", "main")
    assert Fact("x", lambda here: facts.commit(here, whole), "odd").value(here()) is None
    git(whole, "commit", "-q", "--allow-empty", "-m", "one")
    one = git(whole, "rev-parse", "HEAD")
    (whole / "deep").mkdir()
    assert facts.commit(here(), whole / "deep") == one
    git(whole, "worktree", "add", "-q", "-b", "side", str(other))
    git(other, "commit", "-q", "--allow-empty", "-m", "two")
    two = git(other, "rev-parse", "HEAD")
    for command in ("status", "pack-refs --all", f"checkout -q --detach {one}"):
        git(whole, *command.split())
        found = [facts.commit(here(), folder) for folder in (whole, other)]
        assert found == [one, two], command


def test_a_git_that_fails_says_nothing_of_the_commit(tmp_path, monkeypatch):
    git(tmp_path, "init", "-q")
    for line in ("echo broken >&2; exit 1", "exit 127", "kill -9 $$"):
        shell_script(tmp_path / "bin" / "git", line)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin")
        assert facts.commit(here(), tmp_path) == NOT_READABLE, line
