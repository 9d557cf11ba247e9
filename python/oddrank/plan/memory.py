"""GPU memory of a training: parameters, gradients, optimizer by ZeRO stage; activations."""

from dataclasses import dataclass

from oddrank.errors import OddrankError
from oddrank.plan.flops import positive

ZERO = "Rajbhandari et al. 2020, ZeRO (arXiv 1910.02054), section 3.1 and figure 1"
ACTIVATIONS = "Korthikanti et al. 2022 (arXiv 2205.05198), table 2"
_16_BITS = 2
_MOST_GROUPS = 4096  # larger sizes of TP and PP are not searched for


@dataclass(frozen=True)
class Bytes:
    """Bytes of each parameter's state. optimizer: Adam's moments, and a master copy if any."""

    parameters: int
    gradients: int
    optimizer: int

    @property
    def saved(self) -> int:
        """Bytes in a checkpoint: all but the gradients."""
        return self.parameters + self.optimizer


ADAM: dict[str, Bytes] = {
    "mixed": Bytes(2, 2, 12),  # bf16 or fp16, and fp32 copy, momentum, variance
    "mixed-fp32-grads": Bytes(2, 4, 12),  # Megatron with bf16, and BLOOM
    "fp32": Bytes(4, 4, 8),
}
"""Precision of training -> bytes with Adam. mixed: 16-bit parameters, an fp32 master copy."""


@dataclass(frozen=True)
class State:
    """Bytes of one GPU."""

    parameters: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        return self.parameters + self.gradients + self.optimizer


def state_memory(
    parameters: float, *, tp: int = 1, pp: int = 1, dp: int = 1, zero: int = 0, adam: str = "mixed"
) -> State:
    """Returns the bytes of parameters, gradients and Adam's state on one GPU.

    parameters: of the whole model, split evenly over TP x PP. dp: replicas. zero: ZeRO stage; 1
    splits the optimizer's state over DP, 2 the gradients too, 3 the parameters too (FSDP). adam: a
    key of ADAM. Buffers for communication and fragmentation come on top.
    Source: Rajbhandari et al. 2020 (ZeRO), section 3.1: 2 + 2 + 12 bytes for mixed precision.
    """
    if adam not in ADAM:
        raise OddrankError(f"{adam[:40]!r} is no precision: use {', '.join(ADAM)}")
    if zero not in (0, 1, 2, 3):
        raise OddrankError(f"{zero} is no ZeRO stage: use 0, 1, 2 or 3")
    positive(parameters=parameters, tp=tp, pp=pp, dp=dp)
    own, bytes_ = parameters / (tp * pp), ADAM[adam]
    return State(
        own * bytes_.parameters / (dp if zero >= 3 else 1),
        own * bytes_.gradients / (dp if zero >= 2 else 1),
        own * bytes_.optimizer / (dp if zero >= 1 else 1),
    )


def check_shape(layers: int, heads: int, *, tp: int = 1, pp: int = 1) -> None:
    """Raises OddrankError if a stage has no layer, or attention heads don't divide by TP.

    Source: Megatron-LM, megatron/training/arguments.py, which refuses both. Stages may differ in
    their layers, as those of DeepSeek-V3 do: 61 on 16.
    """
    if layers < pp:
        raise OddrankError(f"{layers} layers don't fill {pp} stages: give a PP up to {layers}")
    if heads % tp:
        raise OddrankError(
            f"{heads} attention heads don't divide by TP {tp}: use {_nearest_divisors(heads, tp)}"
        )


def _nearest_divisors(value: int, near: int) -> str:
    """Returns the divisors of `value` next to `near`, which is none: "6 or 8"."""
    found = [one for one in range(1, min(value, _MOST_GROUPS) + 1) if not value % one]
    below, above = (one for one in found if one < near), (one for one in found if one > near)
    return " or ".join(str(one) for one in (max(below), min(above, default=0)) if one)


def activation_memory(
    layers: int,
    hidden: int,
    heads: int,
    seq_length: int,
    micro_batch: int,
    *,
    tp: int = 1,
    sequence_parallel: bool = False,
    recompute: str = "none",
) -> float:
    """Returns the bytes of activations on a GPU of the first pipeline stage.

    heads: attention heads. micro_batch: samples. recompute: none, selective (attention scores are
    computed again, as flash attention does) or full (each layer keeps its input only).
    Activations in 16 bits. PP does not matter: with 1F1B the first stage holds PP micro-batches of
    1/PP of the layers. Leaves out embeddings and logits.
    Source: Korthikanti et al. 2022, table 2, with s, b, h, a, t: none sbh (10 + 24/t + 5as/ht),
    with sequence parallelism sbh (34/t + 5as/ht); selective drops 5as/ht; full keeps 2 sbh.
    """
    positive(
        layers=layers, hidden=hidden, heads=heads,
        seq_length=seq_length, micro_batch=micro_batch, tp=tp,
    )  # fmt: skip
    if recompute not in RECOMPUTE:
        raise OddrankError(f"{recompute[:40]!r} is no recomputation: use {', '.join(RECOMPUTE)}")
    tokens = float(seq_length) * micro_batch * hidden
    scores = 5 * heads * seq_length / (hidden * tp) if recompute == "none" else 0.0
    if recompute == "full":
        per_layer = float(_16_BITS)
    elif sequence_parallel:
        per_layer = 34 / tp + scores
    else:
        per_layer = 10 + 24 / tp + scores
    return layers * tokens * per_layer


RECOMPUTE = ("none", "selective", "full")
