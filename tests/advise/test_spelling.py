"""Misspelt names are found by edit distance, and names of other libraries are left alone."""

from hypothesis import given
from hypothesis import strategies as st

from oddrank.advise.spelling import distance, nearest

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


WORDS = st.text("ABCD_", max_size=8)


@given(one=WORDS, other=WORDS)
def test_distances_are_symmetric_and_bounded(one, other):
    edits = distance(one, other, 10)
    assert edits == distance(other, one, 10)
    assert (edits == 0) == (one == other)
    assert abs(len(one) - len(other)) <= edits <= max(len(one), len(other))
    assert distance(one, other, 1) == min(edits, 2)


@given(word=st.text("ABCD_", min_size=2, max_size=8), at=st.integers(0, 6))
def test_swapped_neighbours_are_one_edit(word, at):
    at %= len(word) - 1
    swapped = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    assert distance(word, swapped, 5) <= 1
