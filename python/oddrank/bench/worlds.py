"""What differs between the jobs of two saved runs: pure, and nothing in them is trusted."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from oddrank.bench.saved import Saved

_OF_A_JOB = {"job", "launcher"}  # not of the machines
_NAMES = {"size": "ranks"}  # of the world's entries, as people call them
_MOST_TOLD = 100
_MOST_HOSTS = 5
_NOT_SET = "not set"


@dataclass(frozen=True)
class Differences:
    """A text each. worlds: why times of one do not mean what they mean in the other.

    notes: versions, links and settings, which may be the reason that is looked for; other hosts,
    which another allocation has; and what only one of the two tells.
    """

    worlds: tuple[str, ...]
    notes: tuple[str, ...]


def differences(a: Saved, b: Saved) -> Differences:
    """Of the job and its launcher nothing: last week's job was another one."""
    differing: list[str] = []
    if not backends(a) & backends(b):
        sides = (", ".join(sorted(backends(side))) for side in (a, b))
        differing.append(_cut(f"back end {' and '.join(sides)}"))
    silent: dict[str, list[str]] = {"A": [], "B": []}
    differing += _between(_world(a), _world(b), silent)
    told = _between(_versions(a), _versions(b), silent) + _between(*_settings(a, b), silent)
    notes = [
        *(f"differs: {what}" for what in told),
        *_other_hosts(a, b),
        *(
            f"not compared: {', '.join(names)}: {side} does not say"
            for side, names in silent.items()
            if names
        ),
    ]
    return Differences(tuple(differing), tuple(notes))


def backends(side: Saved) -> set[str]:
    """The names of the back ends that it has rows of."""
    return {row.backend for row in side.rows}


def _between(
    ours: dict[str, Any], theirs: dict[str, Any], silent: dict[str, list[str]]
) -> list[str]:
    """What both say and say otherwise; `silent` takes what only one of them says."""
    differing = []
    for name in {**ours, **theirs}:
        one, other = ours.get(name), theirs.get(name)
        if one is None or other is None:
            silent["A" if one is None else "B"].append(_cut(name))
        elif one != other:
            differing.append(f"{_cut(name)} {_told(one)} and {_told(other)}")
    return differing


def _world(side: Saved) -> dict[str, Any]:
    """What must be the same for times to mean the same."""
    facts = {name: value for name, value in side.world.items() if name not in _OF_A_JOB}
    facts["devices"] = side.data.get("devices")
    return {_NAMES.get(name, name): value for name, value in facts.items() if value is not None}


def _versions(side: Saved) -> dict[str, Any]:
    setup = _setup(side)
    told = (name for name in setup if name not in ("hosts", "settings"))
    return {name: setup[name] for name in told if setup[name] is not None}


def _settings(a: Saved, b: Saved) -> tuple[dict[str, Any], dict[str, Any]]:
    """Where both tell of their environment; what one does not have is not set there."""
    ours, theirs = _setup(a).get("settings"), _setup(b).get("settings")
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return {}, {}
    names = {**ours, **theirs}
    return (
        {name: ours.get(name, _NOT_SET) for name in names},
        {name: theirs.get(name, _NOT_SET) for name in names},
    )


def _other_hosts(a: Saved, b: Saved) -> list[str]:
    ours, theirs = (_setup(side).get("hosts") for side in (a, b))
    if not isinstance(ours, list) or not isinstance(theirs, list):
        return []
    only = [
        [name for name in map(str, mine) if name not in others]
        for mine, others in ((ours, set(map(str, theirs))), (theirs, set(map(str, ours))))
    ]
    told = [f"only {side} ran on {_few(names)}" for side, names in zip("AB", only, strict=True)
            if names]  # fmt: skip
    return [f"other hosts: {', '.join(told)}"] if told else []


def _setup(side: Saved) -> dict[str, Any]:
    found = side.data.get("setup")
    return found if isinstance(found, dict) else {}


def _few(names: list[str]) -> str:
    shown = ", ".join(map(_cut, names[:_MOST_HOSTS]))
    more = len(names) - _MOST_HOSTS
    return f"{shown} and {more} more" if more > 0 else shown


def _told(value: object) -> str:
    """A fact in a sentence: lists and counts as `8 x H200`, and nothing is long."""
    if isinstance(value, list | dict):
        counts = Counter(map(str, value)) if isinstance(value, list) else value
        value = ", ".join(text if n == 1 else f"{n} x {text}" for text, n in counts.items())
    return _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TOLD else f"{text[:_MOST_TOLD]}..."
