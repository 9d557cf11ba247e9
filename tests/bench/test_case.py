"""The sizes of a sweep, as typed."""

from bench.told import refusals
from oddrank.bench.case import Case, parse_size, parse_sizes, size_text


def test_sizes_are_a_range_with_a_factor():
    for text, sizes in {
        "8:64": [8, 16, 32, 64], "8:64:x8": [8, 64], "1K:1M:x1024": [1 << 10, 1 << 20],
        "256M": [256 << 20], "4kib": [4096], "12:52": [12, 24, 48, 52], "6": [6],
        "1M:3M:+1M": [1 << 20, 2 << 20, 3 << 20], "8:20:+8": [8, 16, 20],
        "1M,8,1K:2K": [8, 1 << 10, 2 << 10, 1 << 20], "8,8:16": [8, 16],
    }.items():  # fmt: skip
        assert parse_sizes(text) == sizes, text
    assert parse_size("16M") == 16 << 20


def test_what_makes_no_sense_is_refused_with_what_to_write(golden):
    ranges = [
        "", "x", "8:", ":8", "64:8", "8:64:2", "8:64:x1", "8:64:x0", "1:2:3:4", "0", "-8", "8.5",
        "8T", "9999G", "8:64:x-2", "\u0668", "8 : 64 : x2 :", "1e9",
        "8,,9", "8:64:+0", "8:64:+x", "1:9G:+1",
    ]  # fmt: skip
    one = refusals(["", "x", "0", "1M:2M", "1M,2M", "9999G"], parse_size)
    golden(f"{refusals(ranges, parse_sizes)}\n\nof one size\n{one}")


def test_a_case_counts_elements_of_its_dtype():
    assert Case("all_reduce", "float32", 64).count == 16
    assert Case("all_reduce", "bfloat16", 64).count == 32
    assert str(Case("all_reduce", "float32", 64 << 20)) == "all_reduce float32 64 MiB"
    # Only exact sizes are shortened.
    texts = {8: "8 B", 1 << 10: "1 KiB", 1536: "1536 B", 3 << 30: "3 GiB"}
    assert {size: size_text(size) for size in texts} == texts
