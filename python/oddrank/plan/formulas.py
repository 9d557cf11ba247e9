"""The formulas: FLOPs and utilization, memory, sizes of groups and batches, checkpoints.

Model FLOPs count the model's own work: one forward pass, and a backward pass of twice its size.
Hardware FLOPs count the GPUs' work: with full activation recomputation a second forward pass.
"""

import math

from oddrank.errors import OddrankError

PALM = "6 N + 12 L H Q T a token: PaLM (arXiv 2204.02311), appendix B"
WITHOUT_ATTENTION = "6 N a token, without attention"
ZERO = "Rajbhandari et al. 2020, ZeRO (arXiv 1910.02054), section 3.1 and figure 1"
ACTIVATIONS = "Korthikanti et al. 2022 (arXiv 2205.05198), table 2"
YOUNG = "Young 1974, sqrt(2 x save x MTBF)"
DALY = "Daly 2006 (doi 10.1016/j.future.2004.11.016)"

ADAM: dict[str, tuple[int, int, int]] = {
    "mixed": (2, 2, 12),  # bf16 or fp16, and fp32 copy, momentum, variance
    "mixed-fp32-grads": (2, 4, 12),  # Megatron with bf16, and BLOOM
    "fp32": (4, 4, 8),  # also FSDP2 with a mixed precision policy
}
"""Precision of training -> bytes of a parameter, its gradient, and its state in the optimizer."""

RECOMPUTE = ("none", "selective", "full")
_MOST_GROUPS = 4096  # larger sizes of TP are not searched for


def parameters(
    layers: int, hidden: int, vocabulary: int, *, heads: int = 1, kv_heads: int | None = None,
    ffn: int | None = None, experts: int = 1,
) -> float:  # fmt: skip
    """Returns the parameters that multiply a token: attention, feed-forward and output layer.

    kv_heads: key and value heads. ffn: the width of a gated feed-forward layer (SwiGLU);
    None: GPT's, 4 x hidden without a gate. experts: the ones per token, shared ones too.
    Leaves out the input embedding, norms and biases. Example: parameters(32, 4096, 32000, heads=32)
    """
    _positive(layers=layers, hidden=hidden, vocabulary=vocabulary, heads=heads, experts=experts)
    kv_heads = kv_heads or heads
    if heads % kv_heads:
        near = _nearest_divisors(heads, kv_heads)
        raise OddrankError(
            f"{heads} attention heads don't divide by {kv_heads} of keys and values: use {near}"
        )
    attention = 2 * hidden**2 * (1 + kv_heads / heads)
    forward = 8 * hidden**2 if ffn is None else 3 * hidden * ffn
    return layers * (attention + experts * forward) + float(hidden) * vocabulary


def flops(
    parameters: float, seq: int, batch: int, *, layers: int = 0, width: int = 0,
    vocabulary: int = 0, causal: bool = False, recompute: bool = False,
) -> float:  # fmt: skip
    """Returns the FLOPs of an iteration: 6 N + 12 L H Q T for each token.

    parameters: N, of the whole model; with experts, only the ones that a token passes. seq: T,
    tokens of a sample. batch: samples of all GPUs. layers: L, and width: H Q, heads x their size,
    which is the hidden size as a rule; without them attention is left out. causal: counts half of
    attention, as flash attention computes it. recompute: 8 N + 16 L H Q T; the output layer, hidden
    size x vocabulary, is not computed again.
    Source: Chowdhery et al. 2022 (PaLM), appendix B. With N = 12 L h^2 + h V the same as Narayanan
    et al. 2021 (arXiv 2104.04473), equation 3. Example: flops(52e9, 2048, 1024)
    """
    _positive(parameters=parameters, seq=seq, batch=batch)
    attention = 4.0 * layers * width * seq / (2 if causal else 1)
    forward = 2 * parameters + attention
    again = forward - 2.0 * width * vocabulary if recompute else 0.0
    return (3 * forward + again) * seq * batch


def utilization(tflops: float, peak: float) -> float:
    """Returns the share of the peak: MFU for model TFLOPs, HFU for hardware TFLOPs.

    OddrankError if it is over 1: then the peak is another GPU's or another type's.
    Example: utilization(180, peak("a100")[1])
    """
    _positive(tflops=tflops, peak=peak)
    if tflops > peak:
        raise OddrankError(
            f"{tflops:.4g} TFLOP/s are more than the peak of {peak:.4g}: check the number of GPUs,"
            " the GPU and the type, and whether the FLOPs count recomputation"
        )
    return tflops / peak


def state_memory(
    parameters: float, *, tp: int = 1, pp: int = 1, dp: int = 1, zero: int = 0, adam: str = "mixed"
) -> tuple[float, float, float]:
    """Returns the bytes of parameters, gradients and Adam's state on one GPU.

    parameters: of the whole model, split evenly over TP x PP. dp: replicas, or the ranks that share
    a replica in HSDP. zero: ZeRO stage; 1 splits the optimizer's state over DP, 2 the gradients
    too, 3 the parameters too, as FSDP2. adam: a key of ADAM. Buffers for communication, layers that
    FSDP gathers, and fragmentation come on top.
    Source: Rajbhandari et al. 2020 (ZeRO), section 3.1: 2 + 2 + 12 bytes for mixed precision.
    Example: state_memory(7.5e9, dp=64, zero=2)
    """
    if adam not in ADAM:
        raise OddrankError(f"{adam[:40]!r} is no precision: use {', '.join(ADAM)}")
    if zero not in (0, 1, 2, 3):
        raise OddrankError(f"{zero} is no ZeRO stage: use 0, 1, 2 or 3")
    _positive(parameters=parameters, tp=tp, pp=pp, dp=dp)
    own = parameters / (tp * pp)
    held, gradients, optimizer = (own * size for size in ADAM[adam])
    return (
        held / (dp if zero >= 3 else 1),
        gradients / (dp if zero >= 2 else 1),
        optimizer / (dp if zero >= 1 else 1),
    )


def activation_memory(
    layers: int, hidden: int, heads: int, seq: int, micro_batch: int, *,
    tp: int = 1, pp: int = 1, cp: int = 1, sequence_parallel: bool = False, recompute: str = "none",
) -> float:  # fmt: skip
    """Returns the bytes of activations on a GPU of the first pipeline stage.

    micro_batch: samples. cp: context parallelism, which splits the sequence. recompute: none,
    selective (attention scores are computed again, as flash attention does) or full (each layer
    keeps its input only). Activations in 16 bits. With 1F1B the first stage holds PP micro-batches
    of 1/PP of the layers. Leaves out embeddings and logits.
    OddrankError if a stage has no layer, or heads don't divide by TP: Megatron-LM refuses both.
    Stages may differ in their layers, as in DeepSeek-V3 (61 on 16): this is the fullest.
    Source: Korthikanti et al. 2022, table 2, with s, b, h, a, t: none sbh (10 + 24/t + 5as/ht),
    with sequence parallelism sbh (34/t + 5as/ht); selective drops 5as/ht; full keeps 2 sbh, which
    sequence parallelism splits, too. Example: activation_memory(32, 4096, 32, 4096, 1, tp=8)
    """
    _positive(
        layers=layers, hidden=hidden, heads=heads, seq=seq, micro_batch=micro_batch, tp=tp, pp=pp,
        cp=cp,
    )  # fmt: skip
    if recompute not in RECOMPUTE:
        raise OddrankError(f"{recompute[:40]!r} is no recomputation: use {', '.join(RECOMPUTE)}")
    if layers < pp:
        raise OddrankError(f"{layers} layers don't fill {pp} stages: give a PP up to {layers}")
    if heads % tp:
        near = _nearest_divisors(heads, tp)
        raise OddrankError(f"{heads} attention heads don't divide by TP {tp}: use {near}")
    split = tp if sequence_parallel else 1
    per_layer = 2 / split if recompute == "full" else 10 / split + 24 / tp
    if recompute == "none":
        per_layer += 5 * heads * seq / (hidden * tp)
    return -(-layers // pp) * pp * (seq / cp) * micro_batch * hidden * per_layer


def _nearest_divisors(value: int, near: int) -> str:
    """Returns the divisors of `value` next to `near`, which does not divide it: "6 or 8"."""
    found = [one for one in range(1, min(value, _MOST_GROUPS) + 1) if not value % one]
    below, above = (one for one in found if one < near), (one for one in found if one > near)
    return " or ".join(str(one) for one in (max(below), min(above, default=0)) if one)


def data_parallel(gpus: int, tp: int = 1, pp: int = 1, cp: int = 1) -> int:
    """Returns the number of replicas: GPUs / (TP x PP x CP).

    OddrankError with the nearest numbers if it does not divide. Example: data_parallel(64, tp=8)
    """
    _positive(gpus=gpus, tp=tp, pp=pp, cp=cp)
    replica = tp * pp * cp
    if gpus % replica:
        raise OddrankError(
            f"{gpus} GPUs don't divide by TP x PP x CP = {tp} x {pp} x {cp} = {replica}: use"
            f" {_nearest(gpus, replica)} GPUs"
        )
    return gpus // replica


def microbatches(global_batch: int, micro_batch: int, dp: int) -> int:
    """Returns the micro-batches of one replica in an iteration (gradient accumulation steps).

    global_batch, micro_batch: samples. dp: replicas.
    OddrankError with the nearest global batch sizes if it does not divide.
    Example: microbatches(1024, 2, data_parallel(64, tp=8))
    """
    _positive(global_batch=global_batch, micro_batch=micro_batch, dp=dp)
    at_once = micro_batch * dp
    if global_batch % at_once:
        raise OddrankError(
            f"global batch size {global_batch} doesn't divide by micro-batch size x DP ="
            f" {micro_batch} x {dp} = {at_once}: use {_nearest(global_batch, at_once)}"
        )
    return global_batch // at_once


def _nearest(value: int, step: int) -> str:
    """Returns the multiples of `step` next to `value`: "992 or 1008"."""
    low = value // step * step
    return f"{low} or {low + step}" if low else str(step)


def bubble(pp: int, microbatches: int) -> float:
    """Returns the share of an iteration in which a pipeline stage waits: (p - 1) / (m + p - 1).

    For the 1F1B schedule. Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2.1, which
    gives the bubble as (p - 1) / m of the ideal time; the iteration has both.
    Example: bubble(8, 64)
    """
    _positive(pp=pp, microbatches=microbatches)
    return (pp - 1) / (microbatches + pp - 1)


def young_interval(save: float, mtbf: float) -> float:
    """Returns the seconds of work between two checkpoints: sqrt(2 * save * mtbf).

    save: seconds that training waits for a checkpoint. mtbf: mean seconds between two failures of
    the whole job. Source: Young 1974, A first order approximation to the optimum checkpoint
    interval. Example: young_interval(save=40, mtbf=604800)
    """
    _positive(save=save, mtbf=mtbf)
    return math.sqrt(2 * save * mtbf)


def daly_interval(save: float, mtbf: float) -> float:
    """Returns the seconds of work between two checkpoints, for a save that is not short, too.

    Arguments as young_interval's. Source: Daly 2006, A higher order estimate of the optimum
    checkpoint interval for restart dumps: sqrt(2dM) [1 + sqrt(d/2M) / 3 + d/18M] - d for d < 2M,
    else M. Example: daly_interval(save=40, mtbf=604800)
    """
    _positive(save=save, mtbf=mtbf)
    if save >= 2 * mtbf:
        return mtbf
    ratio = save / (2 * mtbf)
    return math.sqrt(2 * save * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save


def lost_share(interval: float, save: float, mtbf: float, restart: float = 0) -> float:
    """Returns the share of time lost to saves, to work that is done again, and to restarts.

    interval: seconds of work between two checkpoints. restart: seconds from a failure until
    training goes on. Failures come at random, with the same rate at all times.
    Source: Daly 2006: wall time M e^(R/M) (e^((t+d)/M) - 1) for each t of work.
    Example: lost_share(3600, save=40, mtbf=604800, restart=300)
    """
    _positive(interval=interval, save=save, mtbf=mtbf)
    if not 0 <= restart < float("inf"):
        raise OddrankError(f"a restart of {restart} s: give a number from 0")
    try:
        wall = mtbf * math.exp(restart / mtbf) * math.expm1((interval + save) / mtbf)
    except OverflowError:
        return 1.0
    return 1 - interval / wall


def _positive(**values: float) -> None:
    """Raises OddrankError if a number is not above 0, or not finite."""
    for name, value in values.items():
        if not 0 < value < float("inf"):
            raise OddrankError(f"{name} is {value}: give a number above 0")
