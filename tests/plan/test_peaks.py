"""The table of peaks: dense numbers, each with a source, found by people's names and torch's."""

import pytest

from oddrank import OddrankError, plan
from oddrank.plan.peaks import DTYPES, PEAKS


@pytest.mark.parametrize(
    ("name", "dtype", "tflops"),
    [
        ("a100", "bf16", 312),
        ("NVIDIA A100-SXM4-80GB", "tf32", 156),
        ("NVIDIA A100-PCIE-40GB", "bf16", 312),
        ("Tesla V100-SXM2-32GB", "fp16", 125),
        ("NVIDIA H100 80GB HBM3", "bf16", 989),
        ("NVIDIA H100 80GB HBM3", "FP8", 1979),
        ("NVIDIA H100 PCIe", "bf16", 756),
        ("NVIDIA H100 NVL", "bf16", 835),
        ("h200", "bf16", 989),
        ("NVIDIA GH200 480GB", "bf16", 989),
        ("NVIDIA B200", "bf16", 2250),
        ("NVIDIA GB200", "bf16", 2500),
        ("NVIDIA H20", "fp8", 296),
        ("NVIDIA H800", "bf16", 989),
        ("NVIDIA A800-SXM4-80GB", "bf16", 312),
        ("NVIDIA B300 SXM6 AC", "bf16", 2250),
        ("NVIDIA L4", "fp16", 121),
        ("NVIDIA A10", "tf32", 62.5),
        ("NVIDIA A30", "bf16", 165),
        ("NVIDIA GeForce RTX 4090", "bf16", 165.2),
        ("5090", "bf16", 209.5),
        ("AMD Instinct MI355X", "fp8", 5033),
        ("mi250x gcd", "bf16", 191.5),
        ("AMD Instinct MI300X", "bf16", 1307),
    ],
)
def test_a_gpu_is_found_by_its_name_and_by_torchs(name, dtype, tflops):
    assert plan.peak(name, dtype).tflops == tflops


@pytest.mark.parametrize("name", ["h100", "v100", "AMD Instinct MI250X"])
def test_a_name_of_several_gpus_is_refused(name):
    with pytest.raises(OddrankError, match=r"may be .*, .*: name one"):
        plan.peak(name, "fp16")


def test_a_name_of_no_gpu_gets_a_hint():
    with pytest.raises(OddrankError, match="did you mean b200"):
        plan.peak("b220")
    with pytest.raises(OddrankError, match="no GPU of the table"):
        plan.peak("")


@pytest.mark.parametrize(
    "name",
    ["NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 5090 D", "A10G", "H800 PCIe"],
)
def test_a_slower_gpu_of_nearly_the_same_name_is_none_of_the_table(name):
    with pytest.raises(OddrankError, match="no GPU of the table"):
        plan.peak(name)


def test_a_type_that_a_gpu_does_not_have_is_refused():
    with pytest.raises(OddrankError, match="V100 SXM has no matrix unit for bf16: use fp16"):
        plan.peak("V100 SXM", "bf16")
    with pytest.raises(OddrankError, match="no type of the table"):
        plan.peak("a100", "int4")


@pytest.mark.parametrize("gpu", PEAKS, ids=lambda row: row.name)
def test_every_row_has_a_source_and_is_found_by_its_own_name(gpu):
    assert gpu.source
    for dtype in DTYPES:
        if getattr(gpu, dtype):
            found = plan.peak(gpu.name, dtype)
            assert (found.gpu, found.source) == (gpu.name, gpu.source)


@pytest.mark.parametrize("gpu", PEAKS, ids=lambda row: row.name)
def test_each_type_has_twice_the_speed_of_the_one_twice_as_wide(gpu):
    """A sparse number among dense ones would be twice too high."""
    for wide, narrow in (("tf32", "bf16"), ("bf16", "fp8")):
        if getattr(gpu, wide) and getattr(gpu, narrow):
            ratio = getattr(gpu, narrow) / getattr(gpu, wide)
            assert ratio == pytest.approx(2, rel=0.02), (wide, narrow)
