"""The values of verified collectives: exact in every dtype, their own for every rank and place."""

import pytest

torch = pytest.importorskip("torch")

from oddrank.bench import pattern  # noqa: E402 (after the skip)

PLACES = 3 * pattern.PERIOD


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("world", [1, 2, 3, 4, 8, 16, 17, 40])
def test_the_sum_of_all_contributions_is_exact_in_any_order(world, dtype):
    parts = [pattern.contribution(r, world, PLACES, dtype, "cpu") for r in range(world)]
    expected = pattern.total(world, PLACES, dtype, "cpu")
    for order in (parts, parts[::-1]):
        total = torch.zeros(PLACES, dtype=dtype)
        for part in order:
            total += part
        assert torch.equal(total, expected)


def test_sums_stay_exact_in_the_largest_worlds():
    assert pattern.total(16384, PLACES, torch.float64, "cpu").max() <= 256  # of bfloat16
    parts = [
        pattern.contribution(r, 16384, PLACES, torch.float32, "cpu") for r in range(0, 16384, 512)
    ]
    assert any(part.any() for part in parts)


@pytest.mark.parametrize("world", [2, 4, 8, 100])
def test_a_missing_doubled_or_shifted_contribution_changes_the_sum(world):
    expected = pattern.total(world, PLACES, torch.float32, "cpu")
    for rank in range(min(world, 8)):
        part = pattern.contribution(rank, world, PLACES, torch.float32, "cpu")
        assert not torch.equal(expected - part, expected)
        for places in (1, 4, 64, 1024):
            shifted = expected - part + torch.roll(part, places)
            assert not torch.equal(shifted, expected)


@pytest.mark.parametrize("count", [1, 2, pattern.PERIOD, pattern.PERIOD + 1])
def test_any_number_of_places_can_be_asked_for(count):
    assert len(pattern.contribution(1, 4, count, torch.float32, "cpu")) == count
