"""The table of environment variables: one tuple for each library."""

from oddrank.advise.variables import nccl, pytorch, system
from oddrank.advise.variables.variable import Variable

TABLE: dict[str, Variable] = {
    row.name: row for row in (*nccl.VARIABLES, *pytorch.VARIABLES, *system.VARIABLES)
}
"""Name -> its row."""
KNOWN = frozenset(TABLE) | nccl.NAMES | pytorch.NAMES
"""Names that exist, also of those that the table does not explain."""
FAMILIES = (
    "NCCL_", "TORCH_", "TORCHELASTIC_", "PYTORCH_", "OMP_", "MKL_", "KMP_", "GLOO_", "CUDA_",
    "CUBLAS_", "NVIDIA_TF32_", "UCX_", "FI_",
)  # fmt: skip
"""Variables with these beginnings are listed."""
