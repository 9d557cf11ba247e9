"""The table of peaks: dense numbers, each with a source, found by people's names and torch's."""

from functools import partial
from pathlib import Path

import pytest

from bench.told import refused_calls
from oddrank import plan
from oddrank.gpus import DTYPES, GPUS

REFUSED = (
    "h100 = fp16", "v100 = fp16", "AMD Instinct MI250X = fp16",  # several GPUs
    "b220 = bf16", " = bf16",
    # Slower GPUs of nearly the same name are none of the table.
    "NVIDIA GeForce RTX 4090 Laptop GPU = bf16", "NVIDIA GeForce RTX 5090 D = bf16", "A10G = bf16",
    "NVIDIA GeForce RTX 3090 Ti = bf16",
    "H800 PCIe = bf16", "NVIDIA A100-SXM4-40GB MIG 1g.5gb = bf16",
    "V100 SXM = bf16", "a100 = int4",  # types that it does not have
)  # fmt: skip


def test_a_gpu_is_found_by_its_name_and_by_torchs():
    for line in Path(__file__).with_name("data").joinpath("peaks.txt").read_text().splitlines():
        name, _, expected = line.partition(" = ")
        dtype, tflops = expected.split()
        assert plan.peak(name, dtype)[1] == float(tflops), line


def test_a_name_of_several_or_no_gpu_and_a_type_that_it_does_not_have_are_refused(golden):
    golden(refused_calls({line: partial(plan.peak, *line.split(" = ")) for line in REFUSED}))


def test_every_row_has_a_source_and_is_found_by_its_own_name_and_has_no_sparse_numbers():
    """A sparse number among dense ones would be twice too high."""
    for gpu in GPUS:
        assert gpu.source
        for dtype in DTYPES:
            if getattr(gpu, dtype):
                assert plan.peak(gpu.name, dtype) == (gpu, getattr(gpu, dtype))
        for wide, narrow in (("tf32", "bf16"), ("bf16", "fp8")):
            if getattr(gpu, wide) and getattr(gpu, narrow):
                ratio = getattr(gpu, narrow) / getattr(gpu, wide)
                assert ratio == pytest.approx(2, rel=0.02), (gpu.name, wide, narrow)
