"""Finds the differences between the jobs of two saved runs. Pure; trusts nothing in them."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from oddrank.bench.saved import Saved

_OF_A_JOB = {"job", "launcher"}  # facts about the job, not about its machines
_NAMES = {"size": "ranks"}  # member of `world` -> its name for people
_MOST_TOLD = 100
_MOST_HOSTS = 5
_NOT_SET = "not set"


@dataclass(frozen=True)
class Differences:
    """Texts. worlds: differences that make the times incomparable.

    notes: differing versions, links and settings, which may explain a change; other hosts; and
    facts that only one report has.
    """

    worlds: tuple[str, ...]
    notes: tuple[str, ...]


def differences(a: Saved, b: Saved) -> Differences:
    """Compares two runs, except for job name and launcher, which always differ."""
    differing: list[str] = []
    if not backends(a) & backends(b):
        sides = (", ".join(sorted(backends(side))) for side in (a, b))
        differing.append(_cut(f"back end {' and '.join(sides)}"))
    silent: dict[str, list[str]] = {"A": [], "B": []}
    differing += _between(_world(a), _world(b), silent)
    shown = _between(_versions(a), _versions(b), silent) + _between(*_settings(a, b), silent)
    notes = [
        *(f"differs: {what}" for what in shown),
        *_other_hosts(a, b),
        *(
            f"not compared: {', '.join(names)}: {side} does not say"
            for side, names in silent.items()
            if names
        ),
    ]
    return Differences(tuple(differing), tuple(notes))


def backends(side: Saved) -> set[str]:
    """Returns the back ends of its rows."""
    return {row.backend for row in side.rows}


def _between(
    ours: dict[str, Any], theirs: dict[str, Any], silent: dict[str, list[str]]
) -> list[str]:
    """Returns facts that differ; `silent` takes those that only one run has."""
    differing = []
    for name in {**ours, **theirs}:
        one, other = ours.get(name), theirs.get(name)
        if one is None or other is None:
            silent["A" if one is None else "B"].append(_cut(name))
        elif one != other:
            differing.append(f"{_cut(name)} {_told(one)} and {_told(other)}")
    return differing


def _world(side: Saved) -> dict[str, Any]:
    """Returns the facts that must agree for times to be comparable."""
    facts = {name: value for name, value in side.world.items() if name not in _OF_A_JOB}
    facts["devices"] = side.data.get("devices")
    return {_NAMES.get(name, name): value for name, value in facts.items() if value is not None}


def _versions(side: Saved) -> dict[str, Any]:
    setup = _setup(side)
    shown = (name for name in setup if name not in ("hosts", "settings"))
    return {name: setup[name] for name in shown if setup[name] is not None}


def _settings(a: Saved, b: Saved) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns both environments with the same names; empty unless both reports have one."""
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
    shown = [f"only {side} ran on {_few(names)}" for side, names in zip("AB", only, strict=True)
            if names]  # fmt: skip
    return [f"other hosts: {', '.join(shown)}"] if shown else []


def _setup(side: Saved) -> dict[str, Any]:
    found = side.data.get("setup")
    return found if isinstance(found, dict) else {}


def _few(names: list[str]) -> str:
    shown = ", ".join(map(_cut, names[:_MOST_HOSTS]))
    more = len(names) - _MOST_HOSTS
    return f"{shown} and {more} more" if more > 0 else shown


def _told(value: object) -> str:
    """Formats a fact for a sentence: lists and counts as `8 x H200`, long text cut."""
    if isinstance(value, list | dict):
        counts = Counter(map(str, value)) if isinstance(value, list) else value
        value = ", ".join(text if n == 1 else f"{n} x {text}" for text, n in counts.items())
    return _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TOLD else f"{text[:_MOST_TOLD]}..."
