"""A rank's versions and settings: a difference may explain why a later run is slower."""

import os
from typing import TypedDict

from oddrank.machine import small_file

# The only environment variables that are shown: values of others may be secrets. They choose
# transports, algorithms and threads. Sources: docs.nvidia.com (NCCL 2.29), docs.pytorch.org,
# openmp.org, ofiwg.
SETTINGS = (
    "CUBLAS_WORKSPACE_CONFIG", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "FI_EFA_FORK_SAFE", "FI_EFA_USE_DEVICE_RDMA",
    "FI_PROVIDER", "GLOO_SOCKET_IFNAME", "KMP_AFFINITY", "MKL_NUM_THREADS", "NCCL_ALGO",
    "NCCL_ALLOC_P2P_NET_LL_BUFFERS", "NCCL_BUFFSIZE", "NCCL_CHECKS_DISABLE", "NCCL_COLLNET_ENABLE",
    "NCCL_COMM_BLOCKING", "NCCL_CROSS_NIC", "NCCL_CTA_POLICY", "NCCL_CUMEM_ENABLE", "NCCL_DEBUG",
    "NCCL_DMABUF_ENABLE", "NCCL_GRAPH_FILE", "NCCL_IB_ADAPTIVE_ROUTING", "NCCL_IB_DISABLE",
    "NCCL_IB_GID_INDEX", "NCCL_IB_HCA", "NCCL_IB_MERGE_NICS", "NCCL_IB_PCI_RELAXED_ORDERING",
    "NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_RETRY_CNT", "NCCL_IB_SL", "NCCL_IB_SPLIT_DATA_ON_QPS",
    "NCCL_IB_TC", "NCCL_IB_TIMEOUT", "NCCL_IGNORE_CPU_AFFINITY", "NCCL_LAUNCH_MODE",
    "NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS",
    "NCCL_MNNVL_ENABLE", "NCCL_NET", "NCCL_NET_GDR_LEVEL", "NCCL_NET_PLUGIN",
    "NCCL_NSOCKS_PERTHREAD", "NCCL_NTHREADS", "NCCL_NVB_DISABLE", "NCCL_NVLS_ENABLE",
    "NCCL_P2P_DIRECT_DISABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_P2P_NET_CHUNKSIZE",
    "NCCL_PROTO", "NCCL_PXN_DISABLE", "NCCL_RAS_ENABLE", "NCCL_SHM_DISABLE", "NCCL_SOCKET_FAMILY",
    "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_NTHREADS", "NCCL_TOPO_FILE", "NCCL_TUNER_PLUGIN",
    "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND", "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_AVOID_RECORD_STREAMS",
    "TORCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_CUDA_EVENT_CACHE", "TORCH_NCCL_DESYNC_DEBUG",
    "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_ENABLE_MONITORING", "TORCH_NCCL_ENABLE_TIMING",
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "TORCH_NCCL_HIGH_PRIORITY", "TORCH_NCCL_NAN_CHECK",
    "TORCH_NCCL_PROPAGATE_ERROR", "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_USE_COMM_NONBLOCKING",
    "UCX_NET_DEVICES", "UCX_TLS",
)  # fmt: skip
# Each rank chooses transports, algorithms and channels by these, and expects all to choose alike.
MUST_AGREE = frozenset({
    "NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_COLLNET_ENABLE", "NCCL_IB_DISABLE", "NCCL_LAUNCH_MODE",
    "NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS",
    "NCCL_MNNVL_ENABLE", "NCCL_NET", "NCCL_NTHREADS", "NCCL_NVLS_ENABLE", "NCCL_PROTO",
    "NCCL_PXN_DISABLE", "NCCL_SOCKET_FAMILY", "NCCL_TUNER_PLUGIN",
})  # fmt: skip
# Ranks may differ in these: they depend on NIC and processors, or only choose what a rank prints.
MAY_DIFFER = frozenset({
    "KMP_AFFINITY", "NCCL_DEBUG", "NCCL_IB_HCA", "OMP_PLACES", "TORCH_DISTRIBUTED_DEBUG",
    "UCX_NET_DEVICES",
})  # fmt: skip
_MOST_TEXT = 1000  # lists of NICs are long, and differ at their ends


class Setup(TypedDict):
    """A rank's versions, and its settings by name."""

    torch: str
    cuda: str | None
    driver: str | None
    settings: dict[str, str]


def of_rank() -> Setup:
    """Returns this rank's versions and settings. Call before the group is made, which sets some."""
    import torch

    given = {name: os.environ[name][:_MOST_TEXT] for name in SETTINGS if os.environ.get(name)}
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda if torch.cuda.is_available() else None,
        "driver": driver(),
        "settings": given,
    }


def driver() -> str | None:
    """Returns the version of the kernel's NVIDIA driver, or None."""
    line = small_file("/proc/driver/nvidia/version").partition("\n")[0]
    return line.partition("  ")[2].split("  ")[0].strip() or None
