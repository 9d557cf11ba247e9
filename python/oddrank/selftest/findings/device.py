"""The causes of the stage device: one function each."""

from collections.abc import Mapping
from typing import Any

from oddrank.control.stages import Rounds
from oddrank.finding import Confidence, Evidence, Finding, fold


def bad_memory(
    rounds: Rounds, rank: int, device: str, size: int, wrong: Mapping[str, Any]
) -> Finding:
    """What was written did not come back."""
    who = rounds.who([rank])
    return Finding(
        condition="broken",
        who=who,
        cause="bad-memory",
        what=f"{who} is broken: its {device} memory does not keep what is written to it",
        stage="device",
        evidence=(
            Evidence(
                f"{wrong['count']} wrong words in {size >> 20} MiB, the first at {wrong['index']}:"
                f" wrote {wrong['expected']:#018x}, read {wrong['got']:#018x} (pattern"
                f" {wrong['pass']}); wrong bits in all of them: {_bits(wrong['bits'])}",
                "memory pattern",
            ),
        ),
        confidence=Confidence("high", "written and read by this rank alone"),
        next=("nvidia-smi -q -d ECC,ROW_REMAPPER",)
        if device == "GPU"
        else ("dmesg -T | grep -i edac",),
    )


def _bits(mask: int) -> str:
    """Their numbers, the lowest first."""
    return fold(bit for bit in range(64) if mask >> bit & 1)
