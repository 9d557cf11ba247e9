"""All that users read of a finding or a refusal, as text for golden files."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from oddrank.errors import OddrankError
from oddrank.finding import Finding


def told(*found: Finding) -> str:
    """Returns what a report says of these findings."""
    lines = []
    for one in found:
        lines.append(f"{one.condition} ({one.cause}, {one.confidence.level}): {one.what}")
        lines += [f"  - {point.text} [{point.source}]" for point in one.evidence]
        lines += [f"  next  {step}" for step in one.next]
    return "\n".join(lines)


def by_name(texts: Mapping[str, str]) -> str:
    return "\n\n".join(f"{name}\n{text}" for name, text in texts.items())


def refusal(function: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """Returns the one line with which the function refuses its arguments."""
    with pytest.raises(OddrankError) as refused:
        function(*arguments, **options)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def refusals(rows: Iterable[Any], function: Callable[[Any], Any]) -> str:
    """Returns a line for each row: why the function refuses it."""
    return "\n".join(refusal(function, row) for row in rows)


def refused_calls(calls: Mapping[str, Callable[[], object]]) -> str:
    """Returns name and sentence of each refusal."""
    return "\n".join(f"{name}: {refusal(call)}" for name, call in calls.items())


def without_foreign_words(text: str) -> str:
    """Leaves out what Python and torch say of an error, which differs between their versions."""
    text = re.sub(r"can't be read \((?!ValueError: [a-z.])[^)]*\)?", "can't be read (...", text)
    text = re.sub(r"(JSONDecodeError|RecursionError|TypeError): [^)]*", r"\1: ...", text)
    return re.sub(r"\b1\d{3} bytes", "N bytes", text)
