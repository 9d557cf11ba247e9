"""A communicator of the loaded NCCL on a real GPU."""

import pytest

from bench.nccl_process import in_process

pytestmark = [pytest.mark.gpu, pytest.mark.needs("cuda-build"), pytest.mark.timeout(60)]


def test_a_communicator_of_one_rank_is_made_and_closed():
    code = """
_native.load_nccl()
cuda = _native.cuda()
with_one = cuda.Communicator(cuda.nccl_unique_id(), 0, 1, device=0, seconds=30)
answer = [with_one.rank, with_one.world]
with_one.close()
"""
    assert in_process(code)[0] == [0, 1]


def test_where_the_other_rank_never_comes_it_ends_by_its_deadline():
    code = """
_native.load_nccl()
cuda = _native.cuda()
said = error_of(cuda.Communicator, cuda.nccl_unique_id(), 0, 2, device=0, seconds=3)
answer = [said, len(cuda.nccl_unique_id())]
"""
    (said, id_bytes), _ = in_process(code)
    assert "did not agree before the deadline" in said
    assert id_bytes == 128
