"""The table of GPUs: dense peaks by data type, and where each number comes from.

Vendors print peaks with 2:4 sparsity, which are twice as high: training does not use it. Rows whose
source prints sparse numbers say so, and hold half of each.
"""

from dataclasses import dataclass
from difflib import get_close_matches

from oddrank.errors import OddrankError


@dataclass(frozen=True)
class Gpu:
    """A GPU as torch sees one. Peaks in TFLOP/s, dense; 0: the type has no matrix unit."""

    name: str
    bf16: float
    fp16: float
    fp8: float
    tf32: float
    source: str
    note: str = ""


DTYPES = ("bf16", "fp16", "fp8", "tf32")
# Words in names of other GPUs: a "GeForce RTX 4090 Laptop GPU" is no RTX 4090.
_OTHER = {"laptop", "d", "ti", "mig"}
_HALVED = "printed with sparsity, halved here"
_FP32_SUMS = "with sums in FP32; with sums in FP16 twice as fast"
_H100 = f"NVIDIA H100 datasheet, {_HALVED}"
_CDNA = "AMD Instinct {} product page, numbers without sparsity"
_BOTH, _ONE = "both dies, which torch sees as two GPUs", "one die, which torch sees as a GPU"

GPUS: tuple[Gpu, ...] = (
    Gpu("V100 SXM", 0, 125, 0, 0, "NVIDIA Tesla V100 whitepaper, table 1"),
    Gpu("V100 PCIe", 0, 112, 0, 0, "NVIDIA V100 datasheet"),
    Gpu("A100", 312, 312, 0, 156, "NVIDIA A100 datasheet", "SXM and PCIe"),
    Gpu("A800", 312, 312, 0, 156, "NVIDIA A800 datasheet", "an A100 with slower NVLink"),
    Gpu("A30", 165, 165, 0, 82, "NVIDIA A30 datasheet"),
    Gpu("A10", 125, 125, 0, 62.5, "NVIDIA A10 datasheet"),
    Gpu("H100 SXM", 989, 989, 1979, 494, _H100),
    Gpu("H100 PCIe", 756, 756, 1513, 378, _H100),
    Gpu("H100 NVL", 835, 835, 1671, 417, _H100),
    Gpu("H800 SXM", 989, 989, 1979, 494, f"NVIDIA H800 datasheet, {_HALVED}",
        "an H100 with slower NVLink"),
    Gpu("H20", 148, 148, 296, 74, "NVIDIA H20 datasheet"),
    Gpu("H200 SXM", 989, 989, 1979, 494, f"NVIDIA H200 datasheet, {_HALVED}"),
    Gpu("GH200", 989, 989, 1979, 494, f"NVIDIA GH200 datasheet, {_HALVED}"),
    Gpu("B200", 2250, 2250, 4500, 1125, f"NVIDIA Blackwell datasheet, {_HALVED}", "HGX, one GPU"),
    Gpu("B300", 2250, 2250, 4500, 1125, f"NVIDIA HGX B300 page, {_HALVED}", "HGX, one GPU"),
    Gpu("GB200", 2500, 2500, 5000, 1250, f"NVIDIA GB200 NVL72 page, {_HALVED}",
        "one of the two GPUs of a superchip"),
    Gpu("L40S", 362, 362, 733, 183, "NVIDIA L40S datasheet"),
    Gpu("L4", 121, 121, 242, 60, f"NVIDIA L4 datasheet, {_HALVED}"),
    Gpu("RTX 4090", 165.2, 165.2, 330.3, 82.6, "NVIDIA Ada whitepaper, appendix A", _FP32_SUMS),
    Gpu("RTX 5090", 209.5, 209.5, 419, 104.8, "NVIDIA RTX Blackwell whitepaper, appendix A",
        _FP32_SUMS),
    Gpu("MI250X card", 383, 383, 0, 0, _CDNA.format("MI250X"), _BOTH),
    Gpu("MI250X GCD", 191.5, 191.5, 0, 0, _CDNA.format("MI250X"), _ONE),
    Gpu("MI300X", 1307, 1307, 2615, 654, _CDNA.format("MI300X")),
    Gpu("MI325X", 1307, 1307, 2615, 654, _CDNA.format("MI325X")),
    Gpu("MI355X", 2516, 2516, 5033, 0, _CDNA.format("MI355X")),
)  # fmt: skip
"""All GPUs that are known, with dense peaks and their sources."""


def peak(gpu: str, dtype: str = "bf16") -> tuple[Gpu, float]:
    """Returns a GPU's row and its dense peak in TFLOP/s.

    gpu: a name as in GPUS or as torch says it, in any case. OddrankError if no row, or several
    rows, have that name, or if the GPU has no such type. Example: peak("a100", "bf16")
    """
    rows = matching(gpu)
    if len(rows) > 1:
        names = ", ".join(row.name for row in rows)
        raise OddrankError(f"{gpu[:40]!r} may be {names}: name one, or give --peak")
    kind = dtype.lower()
    if kind not in DTYPES:
        raise OddrankError(f"{dtype[:40]!r} is no type of the table: use {', '.join(DTYPES)}")
    value = float(getattr(rows[0], kind))
    if not value:
        known = ", ".join(one for one in DTYPES if getattr(rows[0], one))
        raise OddrankError(f"{rows[0].name} has no matrix unit for {kind}: use {known}")
    return rows[0], value


def matching(gpu: str) -> list[Gpu]:
    """Returns the rows that a name may mean: `h100` has several. OddrankError if there is none."""
    words = _words(gpu)
    exact = [row for row in GPUS if _words(row.name) == words]
    # torch says "NVIDIA H100 80GB HBM3": the words of a row in any order, the longest row first.
    inside = [row for row in GPUS if _words(row.name) <= words and not words & _OTHER]
    most = max((len(_words(row.name)) for row in inside), default=0)
    longest = [row for row in inside if len(_words(row.name)) == most]
    partly = [row for row in GPUS if words <= _words(row.name)] if words else []
    if rows := exact or longest or partly:
        return rows
    near = get_close_matches(gpu.lower()[:40], {row.name.lower(): row for row in GPUS}, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    if "mig" in words:
        hint = "a MIG slice has a part of its GPU's peak. "
    raise OddrankError(
        f"{gpu[:40]!r} is no GPU of the table: {hint}`oddrank plan mfu` shows it; for others give"
        " their peak (--peak)"
    )


def _words(name: str) -> frozenset[str]:
    text = name.lower().replace("-", " ").replace("_", " ").replace("sxm5", "sxm")
    text = text.replace("sxm4", "sxm").replace("sxm2", "sxm").replace("hbm3", "sxm")
    return frozenset(text.split()) - {"nvidia", "amd", "instinct", "tesla", "gpu"}
