"""Digests of torch's tensors, and the places where two differ."""

import pytest

torch = pytest.importorskip("torch")
from oddrank.replicas import digests  # noqa: E402
from oddrank.replicas.judge import index_of, locate, text_of  # noqa: E402

DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn,
    torch.complex64, torch.complex128, torch.bool, torch.int8, torch.int64, torch.uint8,
)  # fmt: skip


def test_a_view_has_the_digest_of_its_copy():
    for dtype in DTYPES:
        whole = (torch.randn(6, 70, 50) * 3).relu().to(dtype)
        views = [
            whole, whole.transpose(0, 2), whole[1:5, ::3], whole[:, 3].t(), whole[2, 3, 4],
            whole[0, 0].expand(9, 50), whole[:0], whole.view(3, 2, 70, 50).permute(2, 0, 3, 1),
        ]  # fmt: skip
        copies = [view.clone(memory_format=torch.contiguous_format) for view in views]
        assert digests.of(views) == digests.of(copies), dtype
        assert len(set(digests.of(views))) == len(views), dtype


def test_nothing_but_the_values_counts():
    one = torch.randn(5, 7, requires_grad=True)
    assert digests.of([one]) == digests.of([torch.nn.Parameter(one.detach().clone())])
    assert digests.of([one.detach().view(35)]) == digests.of([one])
    # Lazy conjugates and negatives are resolved.
    conjugate = torch.randn(40, dtype=torch.complex64).conj()
    negative = conjugate.imag
    assert conjugate.is_conj()
    assert digests.of([conjugate]) == digests.of([conjugate.resolve_conj()])
    assert digests.of([negative]) == digests.of([negative.resolve_neg()])


def test_blocks_and_bytes_are_those_of_the_row_major_order():
    tensor = torch.arange(100 * 64, dtype=torch.int32).view(100, 64).t()
    content = digests.content(tensor, 0, 1 << 30)
    assert content == tensor.contiguous().numpy().tobytes()
    assert digests.content(tensor, 400, 800) == content[400:800]
    blocks = digests.of_blocks(tensor, 4096, 0, 1 << 30)
    assert len(blocks) == 16 * 7
    assert digests.of_blocks(tensor, 4096, 8192, 12_288) == blocks[32:48]


def test_copies_are_made_in_parts(monkeypatch: pytest.MonkeyPatch):
    """As of a channels_last model, whose every tensor needs one."""
    tensors = [torch.randn(8, 8).t() if i % 3 else torch.randn(8, 8) for i in range(20)]
    known, parts, rows = digests.of(tensors), [], digests._rows

    def counted(part, *more):
        parts.append(sum(one.data_ptr() not in own for one in part))
        return rows(part, *more)

    own = {one.data_ptr() for one in tensors}
    monkeypatch.setattr(digests, "_rows", counted)
    monkeypatch.setattr(digests, "_MOST_COPIED", 4 * 256)
    assert digests.of(tensors) == known
    assert sum(parts) == 13
    assert max(parts) <= 4


class Other:
    """Answers for a second rank: repeats on its tensor what the first one does on its own."""

    def __init__(self, tensor, monkeypatch: pytest.MonkeyPatch) -> None:
        self._tensor, self._answer = tensor, b""
        for name in ("of_blocks", "content"):
            monkeypatch.setattr(digests, name, self._repeated(getattr(digests, name)))

    def _repeated(self, call):
        def repeat(tensor, *arguments):
            self._answer = call(self._tensor, *arguments)
            return call(tensor, *arguments)

        return repeat

    def gather(self, content: bytes) -> dict[int, bytes]:
        return {0: content, 1: self._answer}


def test_the_first_different_element_is_found_among_many_blocks(monkeypatch):
    mine = torch.zeros(1000, 1000)
    for element in (0, 1, 12_345, 999_999):
        other = mine.clone()
        other.view(-1)[999_999] = 5.0
        other.view(-1)[element] = -0.0
        with monkeypatch.context() as patch:
            place = locate(mine, Other(other, patch).gather)
        assert place is not None
        assert place["index"] == [element // 1000, element % 1000]
        assert place["different"] == (1 if element == 999_999 else 2)
        assert place["values"] == {"0 (0x00000000)": [0], "-0 (0x80000000)": [1]}
    # Copies that are the same by now have no place.
    assert locate(mine, Other(mine.clone(), monkeypatch).gather) is None


def test_values_are_shown_with_their_bits():
    for value, dtype, shown in (
        (1.5, torch.float32, "1.5 (0x3fc00000)"),
        (-0.0, torch.bfloat16, "-0 (0x8000)"),
        (True, torch.bool, "True (0x01)"),
        (-1, torch.int64, "-1 (0xffffffffffffffff)"),
        (2.0, torch.float8_e4m3fn, "2 (0x40)"),
        (1 + 2j, torch.complex64, "(1+2j) (0x400000003f800000)"),
    ):
        content = torch.tensor([value], dtype=dtype).view(torch.uint8).numpy().tobytes()
        assert text_of(content, dtype) == shown


def test_an_index_counts_from_the_last_dimension():
    assert index_of(0, ()) == []
    assert index_of(23, (2, 3, 4)) == [1, 2, 3]
