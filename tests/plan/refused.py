"""Refusals of calls, for golden files."""

from collections.abc import Callable, Mapping

import pytest

from oddrank import OddrankError


def lines(calls: Mapping[str, Callable[[], object]]) -> str:
    """Returns name and sentence of each refusal; each must be one line."""
    said = []
    for name, call in calls.items():
        with pytest.raises(OddrankError) as refused:
            call()
        assert "\n" not in str(refused.value), name
        said.append(f"{name}: {refused.value}")
    return "\n".join(said)
