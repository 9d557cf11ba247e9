"""Digests on a real GPU have the bits of those on the CPU."""

from random import Random

import pytest

from oddrank import OddrankError, _native
from oddrank.replicas import digests

pytestmark = [pytest.mark.gpu, pytest.mark.needs("cuda-build")]
torch = pytest.importorskip("torch")
CHUNK = 4096
LENGTHS = (0, 1, 7, 8, 15, 16, 17, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 3, (1 << 20) + 9)


def noise(bytes_: int):
    return torch.randint(0, 256, (bytes_,), dtype=torch.uint8)


def test_tensors_of_any_length_have_the_bits_of_the_cpu():
    hosts = [noise(length) for length in LENGTHS]
    assert digests.of([one.cuda() for one in hosts]) == digests.of(hosts)


def test_a_tensor_at_any_address_has_the_bits_of_the_cpu():
    for offset in (1, 2, 4, 8, 12):
        host = noise(3 * CHUNK + 100)[offset:]
        there = torch.zeros(host.numel() + 64, dtype=torch.uint8, device="cuda")
        view = there[offset : offset + host.numel()]
        view.copy_(host)
        assert digests.of([view]) == digests.of([host])


def test_hundreds_of_tensors_at_once_have_the_bits_of_the_cpu():
    dice = Random(1)
    hosts = [noise(dice.choice((16, 4096, 70_000)) + dice.randrange(9)) for _ in range(700)]
    assert digests.of([one.cuda() for one in hosts]) == digests.of(hosts)


def test_views_of_every_type_have_the_bits_of_the_cpu():
    for dtype in (torch.bfloat16, torch.float64, torch.complex64, torch.bool):
        host = (torch.randn(70, 90) * 3).to(dtype)
        there = host.cuda()
        pairs = [(t, t.t(), t[::3, 5:40], t[4].expand(8, 90)) for t in (there, host)]
        for one, other in zip(*pairs, strict=True):
            assert digests.of([one]) == digests.of([other]), dtype


def test_blocks_have_the_bits_of_the_cpu():
    host = noise(37 * CHUNK + 11)
    size = digests.size_of(host)
    for block, begin, end in ((CHUNK, 0, size), (4 * CHUNK, 0, size), (CHUNK, 8 * CHUNK, size)):
        there = digests.of_blocks(host.cuda(), block, begin, end)
        assert there == digests.of_blocks(host, block, begin, end)


def test_one_flipped_bit_changes_the_digest_of_its_tensor_only():
    tensors = [noise(1 << 20).cuda() for _ in range(5)]
    before = digests.of(tensors)
    tensors[3][777_777] ^= 4
    after = digests.of(tensors)
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, True, True, False, True]


def test_more_than_four_gib_are_digested_to_the_end():
    if torch.cuda.mem_get_info()[0] < 6 << 30:
        pytest.skip("needs 6 GiB of GPU memory")
    tensor = torch.zeros((4 << 30) + 5, dtype=torch.uint8, device="cuda")
    before = digests.of([tensor])
    tensor[-1] = 1
    assert digests.of([tensor]) != before


def test_it_can_be_captured_into_a_graph_and_sees_later_changes():
    tensor = noise(100_000).cuda()
    rows = torch.zeros((1, 2), dtype=torch.int64, device="cuda")
    cuda = _native.cuda()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        stream = torch.cuda.current_stream().cuda_stream
        cuda.gpu_digest(0, stream, [(tensor.data_ptr(), tensor.numel())], rows.data_ptr())
    for _ in range(2):
        graph.replay()
        torch.cuda.synchronize()
        assert rows.cpu().numpy().tobytes() == digests.of([tensor.cpu()])[0]
        tensor[50_000] ^= 1


def test_memory_of_the_host_is_refused_and_the_next_call_works():
    rows = torch.zeros((1, 2), dtype=torch.int64, device="cuda")
    host = noise(64)
    with pytest.raises(OddrankError, match="not in the memory of GPU 0"):
        _native.cuda().gpu_digest(0, 0, [(host.data_ptr(), 64)], rows.data_ptr())
    assert digests.of([host.cuda()]) == digests.of([host])
