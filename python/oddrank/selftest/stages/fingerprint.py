"""Arithmetic in a fixed order, whose every bit is known or the same on all peers."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from oddrank.control.stages import Context, Rounds, Stage
from oddrank.finding import Finding
from oddrank.selftest import device, probes
from oddrank.selftest.choice import Level, Options
from oddrank.selftest.findings import fingerprint as findings

_NAME = "fingerprint"
_SECONDS: dict[Level, float] = {"quick": 0.3, "normal": 0.5, "full": 20}


def _measure(context: Context) -> dict[str, Any]:
    found = {}
    for scope, probe in probes.of(context.parameters["device"]).items():
        context.step(f"compute fingerprints of the {scope}")
        print_ = probe.fingerprint(context.launch, context.parameters["seconds"])
        if print_ is not None:
            found[scope] = print_
    return found


def _judge(rounds: Rounds) -> list[Finding]:
    prints: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for rank, result in rounds.of(_NAME).items():
        for scope, one in result.items():
            prints[scope, one["kind"]][rank] = one
    found = []
    for (scope, _), ranks in prints.items():
        found += _judge_kind(rounds, scope, ranks)
    return found


def _judge_kind(
    rounds: Rounds, scope: str, ranks: Mapping[int, Mapping[str, Any]]
) -> list[Finding]:
    """Of ranks that must have the same bits."""
    found = []
    right: dict[str, str] = {}
    units = list(dict.fromkeys(unit for one in ranks.values() for unit in one["hashes"]))
    for unit in units:
        hashes = {rank: one["hashes"][unit] for rank, one in ranks.items() if unit in one["hashes"]}
        expected = _expected(hashes, [one["golden"].get(unit) for one in ranks.values()])
        if expected is None:
            groups: dict[str, list[int]] = defaultdict(list)
            for rank, value in hashes.items():
                groups[value].append(rank)
            found.append(findings.nobody_right(rounds, unit, groups))
        else:
            right[unit] = expected
    for rank, one in ranks.items():
        wrong = [
            {"unit": unit, "got": value, "expected": right[unit]}
            for unit, value in one["hashes"].items()
            if unit in right and value != right[unit]
        ]
        wrong += [
            {**odd, "expected": right.get(odd["unit"], one["hashes"][odd["unit"]])}
            for odd in one["odd"]
            if odd["got"] != right.get(odd["unit"])
        ]
        if wrong:
            known = all(one["golden"].get(each["unit"]) == each["expected"] for each in wrong)
            found.append(findings.wrong_arithmetic(rounds, rank, wrong, scope=scope, known=known))
    return found


def _expected(hashes: Mapping[int, str], golden: list[str | None]) -> str | None:
    """What is known beforehand, unless half of them agree on something else; else what most have.

    So many ranks are not broken in the same way: then it is how they were compiled.
    """
    known = Counter(value for value in golden if value).most_common(1)
    value, count = Counter(hashes.values()).most_common(1)[0]
    has_majority = 2 * count > len(hashes)
    if not known:
        return value if has_majority else None
    right = known[0][0]
    others = Counter(value for value in hashes.values() if value != right).most_common(1)
    agree = others[0][1] if others else 0
    return None if agree > 1 and 2 * agree >= len(hashes) else right


def stage(options: Options) -> Stage:
    def plan(rounds: Rounds) -> dict[str, Any]:
        return {"device": device.plan(rounds), "seconds": _SECONDS[options.level]}

    return Stage(_NAME, 60, _measure, _judge, plan)
