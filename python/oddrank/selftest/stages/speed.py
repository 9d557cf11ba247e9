"""How fast every rank's device is against its peers: memory, arithmetic, what else it has."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from oddrank.control.stages import Context, Rounds, Stage
from oddrank.finding import Finding
from oddrank.selftest import baseline, device, judge, metrics, probes
from oddrank.selftest.choice import Options
from oddrank.selftest.findings import speed as findings
from oddrank.selftest.findings.baseline import slower_than_before
from oddrank.selftest.metrics import SPEED
from oddrank.selftest.probes import quota
from oddrank.selftest.second import to_send
from oddrank.selftest.turns import Turns

# Of the kernel's periods, with the rests between its turns: now and then is what a quota is for.
_HELD_BACK = 0.2


def parameters(
    rounds: Rounds, repeats: Mapping[str, int], ranks: Mapping[str, Sequence[int]] | None = None
) -> dict[str, Any]:
    """What measure is told, by metric: how often, and who; ranks None: everybody."""
    return {"device": device.plan(rounds), "repeats": dict(repeats), "ranks": ranks}


def measure(context: Context) -> dict[str, Any]:
    """Each figure by its name, as often as wanted; of whoever takes no part nothing."""
    told, launch = context.parameters, context.launch
    found: dict[str, Any] = {"classes": {}, "facts": {}}
    before = quota.periods()
    repeats = {
        name: count
        for name, count in told["repeats"].items()
        if told["ranks"] is None or launch.rank in told["ranks"][name]
    }
    rows = [row for row in metrics.of_stage(SPEED) if row.name in repeats]
    for scope, probe in probes.of(told["device"]).items():
        wanted = {row.name: repeats[row.name] for row in rows if row.scope == scope}
        if not wanted:
            continue
        figures = _figures(context, scope, probe, wanted)
        found["classes"][scope] = probe.kind(launch)
        found["facts"] |= probe.facts(launch)
        # Five digits are more than can be measured, and 10,000 ranks send them.
        for name, values in figures.items():
            found[name] = [float(f"{value:.5g}") for value in to_send(values)]
    found["held_back"] = round(quota.held_back(before, quota.periods()), 3)
    return found


def _figures(
    context: Context, scope: str, probe: ModuleType, wanted: Mapping[str, int]
) -> dict[str, list[float]]:
    """Each metric as often as wanted, some repeats a turn."""
    figures: dict[str, list[float]] = defaultdict(list)
    turns = Turns(context)
    left = dict(wanted)
    while left:
        now = {name: min(count, probe.A_TURN) for name, count in left.items()}
        with turns.turn(f"how fast the {scope} is"):
            for name, values in probe.speed(context.launch, now).items():
                figures[name] += values
        left = {name: count - now[name] for name, count in left.items() if count > now[name]}
    return figures


def held_back(rounds: Rounds) -> list[int]:
    """Those whose CPU quota stops them, and is not the one that most ranks have."""
    results = rounds.of(SPEED)
    quotas = Counter(result["facts"].get("CPU quota") for result in results.values())
    usual, count = quotas.most_common(1)[0] if quotas else (None, 0)
    if 2 * count <= len(results):
        return []
    return [
        rank
        for rank, result in results.items()
        if result.get("held_back", 0.0) > _HELD_BACK and result["facts"].get("CPU quota") != usual
    ]


def stage(options: Options) -> Stage:
    def plan(rounds: Rounds) -> dict[str, Any]:
        baseline.load_for(rounds, options.baseline)
        return parameters(rounds, {one.name: one.repeats for one in metrics.of_stage(SPEED)})

    return Stage(SPEED, 90, measure, _judge, plan)


def _judge(rounds: Rounds) -> list[Finding]:
    first = judge.look(rounds, SPEED)
    rounds.kept[SPEED] = first
    doubted = {rank for one in first.classes for rank in one.doubted()}
    found = slower_than_before(rounds, baseline.slower(rounds), baseline.compared(rounds))
    found += findings.held_back(rounds, held_back(rounds))
    return found + ([findings.not_measured_again(rounds, doubted)] if doubted else [])
