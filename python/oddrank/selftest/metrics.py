"""The figures that peers are compared by: one row each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypedDict, cast

from oddrank.control.stages import RunState

Scope = Literal["host", "gpu"]


@dataclass(frozen=True)
class Metric:
    """A figure that every rank measures repeatedly: `result[name]` of stage speed, rates.

    smallest: the smallest effect looked for, as a share. scope: its peers are ranks with the same
    class of host or GPU; ranks without that class are not compared. repeats: in the first
    measurement. most: at most so many in the recheck.
    """

    name: str
    label: str
    unit: str
    smallest: float
    scope: Scope
    repeats: int = 0
    most: int = 0

    @property
    def doubt(self) -> float:
        """Ranks within so many standard errors below the line measure again.

        One in 20 ranks that are as slow as the line is missed. 0 for hosts: other programs there
        would cause doubts in every run.
        """
        return 0.0 if self.scope == "host" else 1.645


class Measured(TypedDict):
    """A rank's result of the stages speed and speed_recheck.

    Also has, by name, a list of figures for each metric that it measured: see `figures_of`.
    classes: scope -> its class.
    """

    classes: dict[Scope, str]


def results(run: RunState) -> Mapping[int, Measured]:
    """Returns the results of stage speed."""
    return run.of(SPEED)


def figures_of(result: Measured, metric: Metric) -> list[float] | None:
    """Returns a rank's figures of a metric; None if it has not measured it."""
    return cast("list[float] | None", result.get(metric.name))


SPEED = "speed"

# Ranks share their host with each other and with other programs: only large effects count there. A
# GPU has one rank.
_HOST = 0.3
_HBM = 0.03
_GEMM = 0.05  # clocks follow the power that each chip needs
_LINK = 0.1  # other GPUs of the host use its memory and switches at the same time

TABLE = (
    Metric("host_read", "host memory read", "GB/s", _HOST, "host", 9, 20),
    Metric("host_write", "host memory write", "GB/s", _HOST, "host", 9, 20),
    Metric("host_copy", "host memory copy", "GB/s", _HOST, "host", 9, 20),
    Metric("host_compute", "host arithmetic", "GFLOP/s", _HOST, "host", 5, 8),
    # A repeat of GPU memory takes a millisecond or two: there is time for many.
    Metric("gpu_read", "GPU memory read", "GB/s", _HBM, "gpu", 9, 400),
    Metric("gpu_write", "GPU memory write", "GB/s", _HBM, "gpu", 9, 400),
    Metric("gpu_copy", "GPU memory copy", "GB/s", _HBM, "gpu", 9, 400),
    Metric("pcie_to_device", "host to GPU", "GB/s", _LINK, "gpu", 9, 200),
    Metric("pcie_to_host", "GPU to host", "GB/s", _LINK, "gpu", 9, 200),
    Metric("gemm_bf16", "bf16 matrix product", "TFLOP/s", _GEMM, "gpu", 9, 45),
    Metric("gemm_fp16", "fp16 matrix product", "TFLOP/s", _GEMM, "gpu", 9, 45),
    Metric("gemm_tf32", "tf32 matrix product", "TFLOP/s", _GEMM, "gpu", 9, 45),
    Metric("gemm_fp32", "fp32 matrix product", "TFLOP/s", _GEMM, "gpu", 9, 45),
    Metric("gemm_fp8", "fp8 matrix product", "TFLOP/s", _GEMM, "gpu", 9, 45),
)
