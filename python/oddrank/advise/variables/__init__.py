"""The table of environment variables."""

from oddrank.advise.variables import nccl, others
from oddrank.advise.variables.variable import Variable

TABLE: dict[str, Variable] = {row.name: row for row in (*nccl.VARIABLES, *others.VARIABLES)}
"""Name -> its row."""
KNOWN = {
    *TABLE,
    "NCCL_ENV_PLUGIN",
    "NCCL_NVTX_DISABLE",
    "NCCL_P2P_NVL_CHUNKSIZE",
    "NCCL_PAT_ENABLE",
}
"""Names of the table, and other names of NCCL that are so near to them that they look misspelt."""
FAMILIES = (
    "NCCL_", "TORCH_", "TORCHELASTIC_", "PYTORCH_", "OMP_", "MKL_", "KMP_", "GLOO_", "CUDA_",
    "CUBLAS_", "NVIDIA_TF32_", "UCX_", "FI_",
)  # fmt: skip
"""Variables with these beginnings are listed."""
