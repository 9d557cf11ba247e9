"""Sums for a training run: FLOPs, MFU, batch sizes, memory, checkpoints.

oddrank.plan.flops(52e9, 2048, 1024)              # FLOPs of an iteration
oddrank.plan.peak("a100", "bf16")                 # row and dense peak of a GPU, in TFLOP/s
oddrank.plan.state_memory(7.5e9, dp=64, zero=2)   # bytes of parameters, gradients, optimizer
oddrank.plan.daly_interval(save=40, mtbf=604800)  # seconds between two checkpoints

All functions are pure. They raise OddrankError, one line, for values that can't be.
"""

from oddrank.gpus import GPUS, peak
from oddrank.plan.formulas import (
    ADAM,
    activation_memory,
    bubble,
    daly_interval,
    data_parallel,
    flops,
    lost_share,
    microbatches,
    parameters,
    state_memory,
    utilization,
    young_interval,
)

__all__ = [
    "ADAM", "GPUS", "activation_memory", "bubble", "daly_interval", "data_parallel", "flops",
    "lost_share", "microbatches", "parameters", "peak", "state_memory", "utilization",
    "young_interval",
]  # fmt: skip
