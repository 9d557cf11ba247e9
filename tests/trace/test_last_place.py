"""Where a rank that has ended ran last."""

import pytest

from oddrank.trace.where import text

SCRIPT = """
import atexit
import oddrank
oddrank.arm()

def inner(number):
    if number:
        raise ValueError("why")

def later():
    return 1

atexit.register(later)

def outer():
    {}

outer()
"""
# What outer() does -> where the rank ran last.
PLACES = {
    "inner(1)": ("inner", 8),
    "pass": ("later", 11),
    "later()\n    raise ValueError": ("outer", 17),
    "with oddrank.section('a'):\n        inner(1)": ("inner", 8),
    "try:\n        inner(1)\n    finally:\n        x = 1": ("inner", 8),
    "try:\n        inner(1)\n    except OSError:\n        x = 1": ("inner", 8),
    "try:\n        inner(1)\n    except ValueError:\n        x = 1\n    x + '1'": ("outer", 20),
    "for i in range(9):\n        inner(i == 8)": ("inner", 8),
    "int('no')": ("outer", 16),
}


@pytest.mark.parametrize("body", PLACES)
def test_it_is_told_where_its_exception_came_from_or_its_last_line(body, script):
    script(SCRIPT.format(body), check=False)
    (rank,) = script.records()
    function, line = PLACES[body]
    assert rank.last_at is not None
    assert (rank.last_at.function, rank.last_at.line) == (function, line)
    lines = text([rank], "job")
    assert lines[-2].endswith(f"/script.py:{line} in {function}")
    assert lines[-2].startswith("    nothing runs any more: last at ")
    assert lines[-1] == f"    its last lines: oddrank trace tail {rank.file}"


def test_ranks_that_raised_at_different_places_are_not_folded(script):
    script(SCRIPT.format("inner(1)"), check=False)
    script(SCRIPT.format("int('no')"), check=False)
    shown = [line for line in text(script.records(), "job") if "last at" in line]
    assert len(shown) == 2


def test_a_killed_rank_has_its_stack_and_needs_no_last_place(script):
    script(SCRIPT.format("import os; os.kill(os.getpid(), 9)"), check=False)
    (rank,) = script.records()
    assert rank.last_at is None
    assert script.functions(rank) == ["<module>", "outer"]
