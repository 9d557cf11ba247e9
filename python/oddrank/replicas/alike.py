"""Compares what all ranks share besides tensors: settings, the step, the data position."""

import sys
from collections.abc import Mapping
from typing import Any

from oddrank.errors import OddrankError
from oddrank.finding import Finding
from oddrank.replicas import findings
from oddrank.replicas.majority import minority

# A rank lacks these if it does not use numpy, or holds other layers: a pipeline stage.
_MAY_LACK = ("numpy's ", " of parameter group ")


def facts(module: Any, optimizer: Any, given: Mapping[str, Any]) -> dict[str, str]:
    """Returns this rank's facts as texts. given: the user's own, such as step or data position."""
    import torch

    known: dict[str, Any] = {
        "torch's version": torch.__version__,
        "the default dtype": torch.get_default_dtype(),
        "the float32 matmul precision": torch.get_float32_matmul_precision(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "training mode": module.training,
    }
    if torch.cuda.is_available():
        known["TF32 in cuDNN"] = torch.backends.cudnn.allow_tf32
        known["cuDNN benchmark mode"] = torch.backends.cudnn.benchmark
    for i, group in enumerate(optimizer.param_groups if optimizer is not None else ()):
        for key, value in sorted(group.items()):
            is_number = isinstance(value, torch.Tensor) and value.numel() == 1
            plain = value.item() if is_number else value
            if key != "params" and isinstance(plain, int | float | str | bool | tuple | type(None)):
                known[f"{key} of parameter group {i}"] = plain
    if "numpy" in sys.modules:
        known["numpy's version"] = sys.modules["numpy"].__version__
    for key, value in given.items():
        if not isinstance(key, str):
            raise OddrankError(f"facts= has the key {key!r}: give texts")
        known[key] = value
    return {key: str(value)[:2000] for key, value in known.items()}


def judge(by_rank: Mapping[int, Mapping[str, str]], hosts: Mapping[int, str]) -> list[Finding]:
    """Returns a finding for each fact that is not the same on all ranks."""
    found = []
    for name in dict.fromkeys(name for own in by_rank.values() for name in own):
        values = {rank: own.get(name, "unknown") for rank, own in by_rank.items()}
        if any(part in name for part in _MAY_LACK):
            values = {rank: own[name] for rank, own in by_rank.items() if name in own}
        odd = minority(values)
        if odd is not None:
            found.append(findings.different_fact(name, values, odd, hosts))
    return found
