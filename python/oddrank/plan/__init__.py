"""Sums for a training run: FLOPs, MFU, batch sizes, memory, checkpoints.

oddrank.plan.flops_of_parameters(52e9, 2048, 1024)   # FLOPs of an iteration
oddrank.plan.peak("a100", "bf16").tflops             # dense peak of a GPU, with its source
oddrank.plan.state_memory(7.5e9, dp=64, zero=2)      # bytes of parameters, gradients, optimizer
oddrank.plan.daly_interval(save=40, mtbf=604800)     # seconds between two checkpoints

All functions are pure. They raise OddrankError, one line, for values that can't be.
"""

from oddrank.plan.downtime import daly_interval, lost_share, young_interval
from oddrank.plan.flops import (
    flops_of_layers,
    flops_of_parameters,
    tflops,
    utilization,
)
from oddrank.plan.memory import ADAM, Bytes, State, activation_memory, state_memory
from oddrank.plan.parallel import bubble, data_parallel, microbatches
from oddrank.plan.peaks import PEAKS, Peak, peak

__all__ = [
    "ADAM",
    "PEAKS",
    "Bytes",
    "Peak",
    "State",
    "activation_memory",
    "bubble",
    "daly_interval",
    "data_parallel",
    "flops_of_layers",
    "flops_of_parameters",
    "lost_share",
    "microbatches",
    "peak",
    "state_memory",
    "tflops",
    "utilization",
    "young_interval",
]
