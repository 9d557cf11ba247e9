"""Facts and rates that a rank publishes from a made-up GPU."""

import sys
from types import SimpleNamespace
from typing import ClassVar
from unittest.mock import Mock

import pytest

from oddrank import OddrankError, _native
from oddrank.selftest import speed_judge
from oddrank.selftest.probes import gpu
from processes import captured
from texts import texts

HERE = SimpleNamespace(rank=3, local_rank=1, local_world=4)
PLACE = SimpleNamespace(
    index=1, name="NVIDIA H200", uuid="GPU-ab", architecture=(9, 0), cpus=frozenset()
)
GOLDEN = {"fp32": 1, "tensor_fp16": 2}


class FakeCuda:
    build_info: ClassVar = {"nvcc": "nvcc 13.0"}

    def __init__(self, free=64 << 30, seen=((0, 0, GOLDEN), (1, 0, GOLDEN))):
        self.free, self.seen, self.sizes = free, seen, []

    def set_rank(self, rank):
        assert rank == 3

    def memory_info(self, index):
        return self.free, 80 << 30

    def time_device_memory(self, index, size, repeats):
        assert index == 1
        self.sizes.append(size)
        times = {"read": [1e-3] * repeats, "write": [2e-3] * repeats, "copy": [1e-3] * repeats}
        return {"bytes": 2 * 10**9, **times}

    def time_transfers(self, index, size, repeats):
        return {"bytes": 10**9, "to_device": [0.02] * repeats, "to_host": [0.025] * repeats}

    def gpu_fingerprint(self, index, enough, *, seconds):
        assert seconds > enough
        return {"code": 90, "multiprocessors": 2, "computed": 24, "golden": GOLDEN,
                "seen": list(self.seen)}  # fmt: skip


@pytest.fixture
def use(monkeypatch):
    def used(cuda, health=None):
        def asked(uuid):
            if health is None:
                raise OddrankError("no NVML")
            return health

        monkeypatch.setattr(_native, "cuda", lambda: cuda)
        monkeypatch.setattr(gpu.nvml, "gpu_health", asked)
        monkeypatch.setattr(gpu.placement, "of_rank", lambda launch: PLACE)
        monkeypatch.setattr(gpu, "products", lambda index, repeats: {})
        return cuda

    return used


def test_rates_of_what_is_wanted_are_in_gb_a_second_and_a_copy_moves_each_byte_twice(use):
    cuda = use(FakeCuda())
    assert gpu.speed(HERE, {"pcie_to_host": 1}) == {"pcie_to_host": [pytest.approx(40)]}
    assert cuda.sizes == []
    wanted = {"gpu_read": 2, "gpu_copy": 2, "gpu_write": 2, "pcie_to_device": 3, "pcie_to_host": 3}
    assert gpu.speed(HERE, wanted) == {
        "gpu_read": pytest.approx([2000] * 2), "gpu_write": pytest.approx([1000] * 2),
        "gpu_copy": pytest.approx([4000] * 2), "pcie_to_device": pytest.approx([50] * 3),
        "pcie_to_host": pytest.approx([40] * 3),
    }  # fmt: skip


def test_a_small_part_of_the_free_memory_is_streamed_through(use):
    for free, size in ((64 << 30, 2 << 30), (8 << 30, 512 << 20), (0, 1 << 20)):
        cuda = use(FakeCuda(free))
        gpu.speed(HERE, {"gpu_read": 1})
        assert cuda.sizes == [size]


def test_peers_have_the_same_gpu_or_slice_and_the_same_power_cap(use):
    for health, kind in (
        ({"gpu": "H200 MIG 1g.18gb", "readings": {"power_cap_mW": 700_000}},
         "H200 MIG 1g.18gb, 700 W"),
        ({"gpu": "", "readings": {}}, "NVIDIA H200"),
        (None, "NVIDIA H200"),
    ):  # fmt: skip
        use(FakeCuda(), health)
        assert gpu.kind(HERE) == kind


def test_an_odd_multiprocessor_is_told_by_its_number(use):
    use(FakeCuda(seen=[(0, 0, GOLDEN), (1, 0, GOLDEN), (1, 7, {**GOLDEN, "tensor_fp16": 9})]))
    odd = {"unit": "tensor_fp16", "place": "SM 1", "repeat": 7, "got": f"{9:016x}"}
    assert gpu.fingerprint(HERE, 0.5).items() >= {
        "kind": "compute capability 9.0, code of 9, nvcc 13.0", "places": 2, "places_there": 2,
        "computed": 24, "odd_count": 1, "odd": [odd],
    }.items()  # fmt: skip


def test_a_format_of_the_table_that_is_not_to_be_had_has_a_reason(monkeypatch):
    table = {m.name for m in speed_judge.TABLE if m.name.startswith("gemm_")}
    assert table == set(gpu._FORMATS)
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(gpu, "reasons", {})
    if torch.cuda.is_available():
        monkeypatch.setattr(torch.cuda, "device", Mock(side_effect=RuntimeError("no GPU")))
    assert gpu.products(0, {"gemm_bf16": 2}) == {}
    assert gpu.reasons["gemm_bf16"]


def event(ends=True):
    """Returns a CUDA event's class: whatever is timed takes 10 ms, if it ends."""
    made = SimpleNamespace(record=int, query=lambda: ends, elapsed_time=lambda end: 10.0)
    return SimpleNamespace(Event=lambda enable_timing: made)


def test_a_rate_is_operations_over_the_gpus_own_time():
    calls = []

    def prepare(torch, device, rows):
        return lambda: calls.append(rows)

    torch = SimpleNamespace(
        cuda=event(),
        get_float32_matmul_precision=lambda: "highest",
        set_float32_matmul_precision=calls.append,
    )
    rates = gpu._products(torch, None, 1000, prepare, 4)
    # 3 products in 10 ms: 6 of them fill 20 ms, and 6 products of 2 GFLOP in 10 ms are 1.2 TFLOP/s.
    assert rates == pytest.approx([1.2] * 4)
    assert calls.count(1000) == 1 + 3 + 4 * 6
    assert calls[-1] == "highest", "other code's precision is as it was"


def test_products_that_do_not_end_are_given_up(monkeypatch):
    monkeypatch.setattr(gpu, "_PATIENCE", 0.01)
    with pytest.raises(OddrankError, match="did not end in"):
        gpu._timed(SimpleNamespace(cuda=event(ends=False)), lambda: None, 1)


@pytest.mark.needs("cuda-build")
def test_without_a_driver_or_a_gpu_each_native_probe_says_so():
    program = texts(__file__)["without a gpu"]
    done = captured([sys.executable, "-c", program], check=True, CUDA_VISIBLE_DEVICES="")
    lines = done.stdout.splitlines()
    assert len(lines) == 5, done.stdout
    assert all(line.startswith(("no CUDA driver", "no CUDA device")) for line in lines), lines


@pytest.mark.needs("cuda-build")
def test_a_unit_that_there_is_not_is_refused():
    with pytest.raises(OddrankError, match="a fingerprint has no unit fp4"):
        _native.cuda().gpu_fingerprint(0, 0.0, spoil="fp4")
