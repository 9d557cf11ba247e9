"""Misspelt names are found, and names of other libraries are left alone."""

from oddrank.advise.checks import nearest

MEANT = {
    "NCCL_DEBGU": "NCCL_DEBUG", "NCLL_DEBUG": "NCCL_DEBUG", "nccl_debug": "NCCL_DEBUG",
    "NCCL_SOCKET_IFNAMES": "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_INAME": "NCCL_SOCKET_IFNAME",
    "NCCL_P2P_DISABLED": "NCCL_P2P_DISABLE",
    "TORCH_NCCL_TRACE_BUFER_SIZE": "TORCH_NCCL_TRACE_BUFFER_SIZE",
    "PYTORCH_CUDA_ALOC_CONF": "PYTORCH_CUDA_ALLOC_CONF", "OMP_NUM_THREAD": "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICE": "CUDA_VISIBLE_DEVICES",
}  # fmt: skip
OTHERS = """HCCL_SOCKET_IFNAME RCCL_DEBUG NCCL_VERSION NCCL_HOME NCCL_NET_X CUDA_HOME
NVIDIA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES TORCH_HOME TORCH_LOGS PATH OFI_NCCL_PROTOCOL
OMP_STACKSIZE AWS_SECRET_ACCESS_KEY NCCL_TIMEOUT"""


def test_a_slip_of_the_hand_is_found_and_other_names_are_none():
    assert {typed: nearest(typed) for typed in MEANT} == MEANT
    for name in (*OTHERS.split(), "", "N" * 100_000):
        assert nearest(name) == "", name
