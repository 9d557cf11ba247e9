"""Computes in a fixed order: every bit of the results is known, or the same on all peers."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias, TypedDict

from oddrank.control.stages import Context, RunState, Skip, Stage
from oddrank.finding import Evidence, Finding, Row, Who, ranks_text
from oddrank.peers import majority
from oddrank.selftest import Depth, Options
from oddrank.selftest.probes import Prints
from oddrank.selftest.stages import device

_NAME = "fingerprint"
_SECONDS: dict[Depth, float] = {"quick": 0.3, "normal": 0.5, "full": 20}


class Plan(TypedDict):
    device: str
    seconds: float


Result: TypeAlias = "dict[str, Prints]"  # by scope: host, gpu


def _measure(context: Context[Plan]) -> Result:
    found: Result = {}
    for scope, probe in device.probes_of(context.parameters["device"]).items():
        context.step(f"compute fingerprints of the {scope}")
        found[scope] = probe.fingerprint(context.launch, context.parameters["seconds"])
    return found


def _judge(run: RunState, results: Mapping[int, Result]) -> list[Finding]:
    prints: dict[tuple[str, str], dict[int, Prints]] = defaultdict(dict)
    for rank, result in results.items():
        for scope, one in result.items():
            prints[scope, one["kind"]][rank] = one
    return [f for (scope, _), ranks in prints.items() for f in _judge_kind(run, scope, ranks)]


def _judge_kind(run: RunState, scope: str, ranks: Mapping[int, Prints]) -> list[Finding]:
    found = []
    right: dict[str, str] = {}
    units = list(dict.fromkeys(unit for one in ranks.values() for unit in one["hashes"]))
    for unit in units:
        hashes = {rank: one["hashes"][unit] for rank, one in ranks.items() if unit in one["hashes"]}
        expected = _expected(hashes, [one["golden"].get(unit) for one in ranks.values()])
        if expected is None:
            most = majority(hashes)
            parts = "; ".join(f"{ranks_text(who)}: {got}" for got, who in most.groups[:4])
            seen = Evidence(parts, "fingerprint")
            found.append(
                BITS_DIFFER.found(Who("rank", tuple(sorted(hashes))), seen, unit=unit, parts=parts)
            )
        else:
            right[unit] = expected
    for rank, one in ranks.items():
        wrong: list[dict[str, Any]] = [  # with place and repeat if not all of the unit's are so
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
            why = (
                "computed by this rank alone" if known else "and most of its peers agree on others"
            )
            on_gpu = ("nvidia-smi -q -d ECC", "dcgmi diag -r 3")
            row = replace(WRONG_ARITHMETIC, next=on_gpu if scope == "gpu" else ("lscpu",))
            told = [Evidence(_text(each), "fingerprint") for each in wrong[:8]]
            names = ", ".join(dict.fromkeys(each["unit"] for each in wrong))
            found.append(row.found(run.who([rank]), *told, scope=scope, units=names, why=why))
    return found


def _expected(hashes: Mapping[int, str], golden: list[str | None]) -> str | None:
    """Returns the known bits, else most ranks' bits; None if nothing is sure.

    Half of the ranks do not break in the same way: if so many agree on other bits than the known
    ones, the compiler made them.
    """
    known = {number: value for number, value in enumerate(golden) if value}
    if not known:
        most = majority(hashes)
        return most.value if most.is_enough else None
    right = majority(known).value
    others = {rank: value for rank, value in hashes.items() if value != right}
    agree = majority(others).count if others else 0
    return None if agree > 1 and 2 * agree >= len(hashes) else right


# fmt: off
WRONG_ARITHMETIC = Row(
    "wrong-arithmetic", "broken", "{who} {be} broken: its {scope} computes {units} wrongly",
    ("high", "exact bits, {why}"), drains_node=True)
BITS_DIFFER = Row(
    "bits-differ", "unknown", "ranks of one kind have different bits of {unit}, or most have other"
    " bits than the known ones: {parts}", ("low", "nothing says which bits are right"))
# fmt: on


def _text(one: Mapping[str, Any]) -> str:
    place = f" on {one['place']}, repeat {one['repeat']}" if "place" in one else ""
    return f"{one['unit']}{place}: {one['got']} instead of {one['expected']}"


def stage(options: Options) -> Stage[Plan, Result, list[Finding]]:
    def make_plan(run: RunState) -> Plan | Skip:
        tested = device.make_plan(run)
        if isinstance(tested, Skip):
            return tested
        return {"device": tested, "seconds": _SECONDS[options.depth]}

    # Host and GPU one after the other, and each may be late.
    seconds = 100 if options.depth == "full" else 60
    return Stage(_NAME, seconds, _measure, _judge, make_plan)
