"""FLOPs of a transformer's training iteration, and the speed and utilization that follow.

Model FLOPs are those that the model needs: one forward pass, and a backward pass of twice its size.
Hardware FLOPs count what the GPUs do: with full activation recomputation a second forward pass.
"""

from oddrank.errors import OddrankError

HANDBOOK = "LLM training handbook, TFLOPs as a performance metric"
MEGATRON = "Narayanan et al. 2021 (arXiv 2104.04473), equation 3"
# Forward, backward (twice the forward's work), and the forward once more if it is recomputed.
_PASSES, _PASSES_WITH_RECOMPUTATION = 3, 4


def passes(*, recompute: bool) -> int:
    """Returns the work of an iteration in forward passes: 3, or 4 with full recomputation."""
    return _PASSES_WITH_RECOMPUTATION if recompute else _PASSES


def flops_of_parameters(
    parameters: float, seq_length: int, batch_size: int, *, recompute: bool = False
) -> float:
    """Returns the FLOPs of an iteration, estimated from the number of parameters.

    parameters: of the whole model. seq_length: tokens of a sample. batch_size: samples of an
    iteration, of all GPUs together. recompute: full activation recomputation.
    Leaves attention over the sequence out, so it reports slightly less than the real number.
    Source: LLM training handbook: model size * 4 * 2 * seqlen * global batch size, 3 instead of 4
    without recomputation.
    """
    positive(parameters=parameters, seq_length=seq_length, batch_size=batch_size)
    return parameters * passes(recompute=recompute) * 2 * seq_length * batch_size


def flops_of_layers(
    layers: int,
    hidden: int,
    seq_length: int,
    vocabulary: int,
    batch_size: int,
    *,
    recompute: bool = False,
) -> float:
    """Returns the FLOPs of an iteration of a GPT, from its shape.

    hidden: the hidden size. vocabulary: tokens, padded as in the model; else as above.
    Source: Narayanan et al. 2021, equation 3: 96 B s l h^2 (1 + s / 6h + V / 16lh) with
    recomputation. Without: Korthikanti et al. 2022, 72 B s l h^2 (1 + s / 6h + V / 12lh). The
    output layer is never recomputed.
    """
    positive(
        layers=layers, hidden=hidden, seq_length=seq_length,
        vocabulary=vocabulary, batch_size=batch_size,
    )  # fmt: skip
    tokens = float(batch_size) * seq_length
    layer = 24 * tokens * hidden**2 * (1 + seq_length / (6 * hidden))
    logits = 2 * tokens * hidden * vocabulary
    return passes(recompute=recompute) * layers * layer + _PASSES * logits


def tflops(flops: float, seconds: float, gpus: int) -> float:
    """Returns the speed in TFLOP/s of one GPU. seconds: of the iteration with these FLOPs."""
    positive(flops=flops, seconds=seconds, gpus=gpus)
    return flops / (seconds * gpus * 1e12)


def utilization(tflops: float, peak_tflops: float) -> float:
    """Returns the share of the peak: MFU for model TFLOPs, HFU for hardware TFLOPs.

    OddrankError if it is over 1: then the peak is another GPU's or another type's.
    """
    positive(tflops=tflops, peak_tflops=peak_tflops)
    share = tflops / peak_tflops
    if share > 1:
        raise OddrankError(
            f"{tflops:.4g} TFLOP/s are more than the peak of {peak_tflops:.4g}: check the number of"
            " GPUs, the GPU and the type, and whether the FLOPs count recomputation"
        )
    return share


def positive(**values: float) -> None:
    """Raises OddrankError if a number is not above 0, or not finite."""
    for name, value in values.items():
        if not 0 < value < float("inf"):
            raise OddrankError(f"{name} is {value}: give a number above 0")
