"""What joins GPUs to each other: NVML's word on it."""

import pytest

from nvml import fake_nvml
from oddrank.bench import report
from oddrank.errors import OddrankError
from oddrank.machine import nvml

pytestmark = pytest.mark.xdist_group("nvml")  # the fakes are built once

HGX = {"nvlinks": 18, "nvlink_MBps": 26562, "pcie": 5, "pcie_width": 16}


def ask(library, uuid="GPU-fake", **fake):
    environ = {name.upper(): value for name, value in fake.items()}
    return fake_nvml.ask("gpu_links", library, uuid, **environ)


# What the driver says of links and PCIe -> what differs from HGX.
TOLD = (
    ({"links": 18}, {}), ({"links": 18, "down": 2}, {"nvlinks": 16}),
    ({"links": 18, "gap": 0}, {"nvlinks": 17}),
    ({"width": 8}, {"nvlinks": 0, "nvlink_MBps": 0, "pcie_width": 8}),
)  # fmt: skip


def test_what_the_driver_tells_of_links_and_pcie(fakes, golden):
    for fake, differs in TOLD:
        assert ask(fakes["new"], **fake) == HGX | differs, fake
    assert ask(fakes["old"], links=18) == HGX
    # The same text on every rank: no name of a GPU in it.
    said = [ask(fakes["new"], **fake) for fake in (
        {"init": 9}, {"uuid": "GPU-slice"}, {"links": 18, "lost": 5},
    )]  # fmt: skip
    golden("\n".join([ask("libnothing-of-the-kind.so").partition(": libnothing")[0], *said]))


def test_links_are_told_for_people():
    assert report.links_text(HGX) == "18 NVLinks of 26.6 GB/s, PCIe 5 x16"
    assert report.links_text({**HGX, "nvlinks": 0}) == "0 NVLinks, PCIe 5 x16"
    assert report.links_text({"unknown": "no NVML"}) == "unknown: no NVML"
    assert report.links_text(None) is None


def told_or_said(uuid):
    """Returns a real GPU's links; None if its driver says in words that it can't tell, as in a
    virtual machine: nvmlDeviceGetNvLinkState may then return any error."""
    try:
        return nvml.gpu_links(uuid)
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
        nvml.gpu_links("GPU-none")
