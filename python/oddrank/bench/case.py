"""One thing to measure: a collective, a dtype, an operation, a size, a placement."""

from dataclasses import dataclass

from oddrank.bench.sizes import size_text

# Name in torch -> bytes of an element.
DTYPES = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float64": 8,
    "int8": 1,
    "int32": 4,
    "int64": 8,
}
# How nccl-tests and people call them.
DTYPE_ALIASES = {
    "fp32": "float32", "float": "float32", "fp16": "float16", "half": "float16",
    "bf16": "bfloat16", "fp8": "float8_e4m3fn", "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2", "fp64": "float64", "double": "float64",
}  # fmt: skip
OPS = ("sum", "min", "max", "avg", "prod")
# Where nothing is reduced.
NO_OP = "none"


@dataclass(frozen=True)
class Case:
    """`bytes` are what nccl-tests calls the size: of one rank's buffer, or all ranks' together.

    Which of the two is the collective's (oddrank.bench.collectives), as is the rounding to what
    its ranks can share: `Collective.case` makes cases for a world.
    """

    collective: str
    dtype: str
    bytes: int
    op: str = "sum"
    in_place: bool = True

    @property
    def count(self) -> int:
        """Elements in `bytes`."""
        return self.bytes // DTYPES[self.dtype]

    def __str__(self) -> str:
        """For people; whether it is in place goes without saying."""
        words = [self.collective, self.dtype]
        words += [self.op] if self.op not in ("sum", NO_OP) else []
        return " ".join([*words, size_text(self.bytes)])
