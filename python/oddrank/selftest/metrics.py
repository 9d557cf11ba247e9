"""What peers are compared by: a row a figure."""

from dataclasses import dataclass
from typing import Literal

Scope = Literal["host", "gpu"]


@dataclass(frozen=True)
class Metric:
    """A figure that every rank measures repeatedly: `result[name]` of its stage, a list.

    smallest: the effect looked for, as a share. scope: whose class its peers are of; ranks without
    such a class are not compared. repeats: of the first look; most: of the second, which only some
    take part in.
    """

    name: str
    stage: str
    label: str
    unit: str
    better: Literal["low", "high"]
    smallest: float
    scope: Scope
    repeats: int = 0
    most: int = 0

    @property
    def doubt(self) -> float:
        """So many standard errors this side of the line ranks measure again: one in 20 that are as
        slow as the line is missed. Whatever else runs on a host would bring up doubts every time.
        """
        return 0.0 if self.scope == "host" else 1.645


SPEED = "speed"

# Ranks share their host with each other and with whatever else runs there: of that only large
# effects are judged. A GPU has one rank.
_HOST = 0.3
_HBM = 0.03
_GEMM = 0.05  # clocks follow the power that each chip needs
_LINK = 0.1  # other GPUs of the host use its memory and switches at the same time

TABLE = (
    Metric("host_read", SPEED, "host memory read", "GB/s", "high", _HOST, "host", 9, 20),
    Metric("host_write", SPEED, "host memory write", "GB/s", "high", _HOST, "host", 9, 20),
    Metric("host_copy", SPEED, "host memory copy", "GB/s", "high", _HOST, "host", 9, 20),
    Metric("host_compute", SPEED, "host arithmetic", "GFLOP/s", "high", _HOST, "host", 5, 8),
    # A repeat of memory takes a millisecond or two: there is time for very many.
    Metric("gpu_read", SPEED, "GPU memory read", "GB/s", "high", _HBM, "gpu", 9, 1600),
    Metric("gpu_write", SPEED, "GPU memory write", "GB/s", "high", _HBM, "gpu", 9, 1600),
    Metric("gpu_copy", SPEED, "GPU memory copy", "GB/s", "high", _HBM, "gpu", 9, 1600),
    Metric("pcie_to_device", SPEED, "host to GPU", "GB/s", "high", _LINK, "gpu", 9, 200),
    Metric("pcie_to_host", SPEED, "GPU to host", "GB/s", "high", _LINK, "gpu", 9, 200),
    Metric("gemm_bf16", SPEED, "bf16 matrix product", "TFLOP/s", "high", _GEMM, "gpu", 9, 45),
    Metric("gemm_fp16", SPEED, "fp16 matrix product", "TFLOP/s", "high", _GEMM, "gpu", 9, 45),
    Metric("gemm_tf32", SPEED, "tf32 matrix product", "TFLOP/s", "high", _GEMM, "gpu", 9, 45),
    Metric("gemm_fp32", SPEED, "fp32 matrix product", "TFLOP/s", "high", _GEMM, "gpu", 9, 45),
    Metric("gemm_fp8", SPEED, "fp8 matrix product", "TFLOP/s", "high", _GEMM, "gpu", 9, 45),
)


def of_stage(stage: str) -> tuple[Metric, ...]:
    return tuple(metric for metric in TABLE if metric.stage == stage)
