"""What joins GPUs to each other: NVML's word on it, and what is expected of them then."""

import pytest

from nvml import fake_nvml
from oddrank import _native
from oddrank.bench import topology
from oddrank.bench.case import Case
from oddrank.bench.expected import expected
from oddrank.bench.topology import Facts
from oddrank.errors import OddrankError

pytestmark = pytest.mark.xdist_group("nvml")  # the fakes are built once

HGX = {"nvlinks": 18, "nvlink_MBps": 26562, "pcie": 5, "pcie_width": 16, "fabric": ""}
NVL72 = {**HGX, "fabric": "07" * 16 + ".3"}


def ask(library, uuid="GPU-fake", **fake):
    environ = {name.upper(): value for name, value in fake.items()}
    return fake_nvml.ask("gpu_links", library, uuid, **environ)


def test_the_links_that_are_active_count_and_have_their_speed(fakes):
    assert ask(fakes["new"], links=18) == HGX
    assert ask(fakes["new"], links=18, down=2)["nvlinks"] == 16
    assert ask(fakes["new"], links=18, gap=0)["nvlinks"] == 17


def test_a_gpu_without_nvlink_has_pcie_with_the_lanes_that_it_uses(fakes):
    found = ask(fakes["new"], width=8)
    assert (found["nvlinks"], found["nvlink_MBps"]) == (0, 0)
    assert (found["pcie"], found["pcie_width"]) == (5, 8)


def test_a_fabric_is_the_same_text_on_all_gpus_of_its_clique(fakes):
    assert ask(fakes["new"], links=18, cluster=7, clique=3) == NVL72
    assert ask(fakes["new"], cluster=7, clique=4)["fabric"] == "07" * 16 + ".4"


def test_a_gpu_that_is_in_no_fabric_or_not_registered_yet_has_none(fakes):
    assert ask(fakes["new"], cluster=0)["fabric"] == ""
    assert ask(fakes["new"], cluster=7, state=2)["fabric"] == ""
    assert ask(fakes["old"], links=18) == HGX


def test_what_cannot_be_told_is_said_in_words(fakes):
    assert ask("libnothing-of-the-kind.so").startswith(
        "NVML, the library of the NVIDIA driver, cannot be loaded: lib"
    )
    assert ask(fakes["new"], init=9) == "NVML: nvmlInit_v2: Driver Not Loaded"
    # The same text on every rank: no name of a GPU in it.
    assert ask(fakes["new"], uuid="GPU-slice") == "NVML: nvmlDeviceGetHandleByUUID: Not Found"
    assert ask(fakes["new"], links=18, lost=5) == "NVML: nvmlDeviceGetNvLinkState: a fake error"


def test_ranks_are_as_well_joined_as_the_worst_of_them():
    assert topology.joined([HGX] * 8) == {"link": "nvlink", "links": 18, "pcie": 5, "domain": None}
    assert topology.joined([HGX, {**HGX, "nvlinks": 17}])["links"] == 17
    assert topology.joined([HGX, {**HGX, "nvlinks": 0}])["link"] == "pcie"
    assert topology.joined([HGX, {**HGX, "pcie_width": 8}])["pcie"] is None
    assert topology.joined([NVL72] * 72)["domain"] == 72
    assert topology.joined([NVL72, {**NVL72, "fabric": "other"}])["domain"] is None
    nothing = {"link": None, "links": None, "pcie": None, "domain": None}
    assert topology.joined([HGX, {"unknown": "no NVML"}]) == nothing
    assert topology.joined([None, None]) == nothing


@pytest.mark.parametrize("nodes", [2, 4])  # of 16 GPUs there is no figure
def test_nodes_of_one_fabric_are_never_expected_to_reach_what_their_nics_can(nodes):
    case = Case("all_reduce", "float32", 8 << 30)
    n = 4 * nodes

    def told(*ranks):
        facts = Facts(
            "NVIDIA GB200", 4, nodes, "nccl", "2.29.7", nics=(400.0,) * 4, fabric="rdma",
            nvls=True, **topology.joined(ranks),
        )  # fmt: skip
        return expected(facts, case)

    apart = told(*[HGX] * n)
    assert "NIC" in apart.note
    together = told(*[NVL72] * n)
    assert (together and together.note.split(",")[0]) == ("NVLS" if n == 8 else None)


def test_links_are_told_for_people():
    assert topology.links_text(HGX) == "18 NVLinks of 26.6 GB/s, PCIe 5 x16"
    assert topology.links_text({**HGX, "nvlinks": 0}) == "0 NVLinks, PCIe 5 x16"
    assert topology.links_text({"unknown": "no NVML"}) == "unknown: no NVML"
    assert topology.links_text(None) is None


def told_or_said(uuid):
    """Returns a real GPU's links; None if its driver says in words that it can't tell, as in a
    virtual machine: nvmlDeviceGetNvLinkState may then return any error."""
    try:
        return _native.core().gpu_links(uuid)
    except OddrankError as error:
        if not str(error).startswith("NVML: nvmlDeviceGet"):
            raise
        return None


@pytest.mark.gpu
def test_a_real_driver_tells_of_every_gpu():
    torch = pytest.importorskip("torch")
    for device in range(torch.cuda.device_count()):
        uuid = torch.cuda.get_device_properties(device).uuid
        found = told_or_said(f"GPU-{uuid}")
        if found is not None:
            assert found["pcie"] >= 1
            assert found["pcie_width"] in (1, 2, 4, 8, 16, 32)
            assert found["nvlinks"] == 0 or found["nvlink_MBps"] > 10_000
    with pytest.raises(OddrankError, match="NVML: nvmlDeviceGetHandleByUUID"):
        _native.core().gpu_links("GPU-none")
