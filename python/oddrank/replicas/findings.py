"""The causes that a comparison of replicas can name."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oddrank.finding import Confidence, Evidence, Finding, Who, ranks_text

if TYPE_CHECKING:
    from oddrank.replicas.majority import Layouts, Outlier
    from oddrank.replicas.origin import Event, Origin

_MOST_EVIDENCE = 8
# Kind of tensor that differs -> where to look.
_NEXT = {
    "params": "compare the gradients before the optimizer's step (what=('grads',)): if they are"
    " alike, the step or a load made the difference",
    "grads": "look at what the rank does between backward and step: clipping, scaling, no_sync",
    "optim": "look at how the optimizer's state was loaded on this rank",
    "buffers": "look for a buffer that is computed on each rank from its own data",
}
# Kind of tensor in which a NaN or infinity shows first -> where to look.
_NEXT_NONFINITE = {
    "param": "look at the step or the load before it: replicas.check() says whose copy is wrong",
    "input": "look at this rank's batch of this step, and at the code before this layer",
    "output": "look for an overflow in this layer, and for a fault of the device: oddrank selftest",
    "output-grad": "look at the loss and the layers after this one, in the backward pass",
    "grad": "look for an overflow in this layer's backward pass, and at the loss scale",
    "step-grad": "look at what happens between backward and step: clipping, scaling, accumulation",
}


def different_bits(outlier: "Outlier", hosts: Mapping[int, str]) -> Finding:
    """A minority holds other bits than most copies."""
    first = outlier.tensors[0]
    who = _who(outlier.ranks, hosts)
    rest = [rank for rank in outlier.group if rank not in outlier.ranks]
    whats = list(dict.fromkeys(one.what for one in outlier.tensors))
    return Finding(
        condition="different",
        who=who,
        cause="different-bits",
        what=f"{who} hold{'s' * (len(outlier.ranks) == 1)} other bits than {ranks_text(rest)} in"
        f" {_of(outlier)}: {first.name} ({first.what}){_place(first.place, outlier.ranks)}",
        evidence=_first_tensors(outlier),
        confidence=Confidence(
            "high",
            f"{len(rest)} of {len(outlier.group)} copies have the same bits; a fault of most ranks"
            " would name the others",
        ),
        next=tuple(_NEXT[what] for what in whats[:2]),
    )


def no_majority(outlier: "Outlier", hosts: Mapping[int, str]) -> Finding:
    """Copies differ, and no value has a majority."""
    first = outlier.tensors[0]
    return Finding(
        cause="no-majority",
        what=f"{ranks_text(outlier.group)} hold different bits in {_of(outlier)}: {first.name}"
        f" ({first.what}){_values(first.place)}; which is wrong is unknown",
        evidence=_first_tensors(outlier),
        confidence=Confidence("medium", "no value is held by more than half of the copies"),
        next=("compare with a checkpoint or an earlier dump: oddrank replicas compare",),
    )


def _first_tensors(outlier: "Outlier") -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            f"{one.name} ({one.what}, {one.dtype} {list(one.shape)}):"
            f" {_seen(one.place) or 'other digest'}",
            "digests of 128 bits",
        )
        for one in outlier.tensors[:_MOST_EVIDENCE]
    )


def different_tensors(layouts: "Layouts", hosts: Mapping[int, str]) -> Finding:
    """Ranks do not hold the same tensors: names, shapes or types differ."""
    named = bool(layouts.ranks)
    who = _who(layouts.ranks, hosts) if named else Who("rank")
    among = str(who) if named else ranks_text(layouts.group)
    return Finding(
        condition="different" if named else "unknown",
        who=who,
        cause="different-tensors",
        what=f"{among} {'has' if named and len(layouts.ranks) == 1 else 'have'} other tensors:"
        f" {layouts.lines[0]}",
        evidence=tuple(Evidence(line, "names, shapes, types") for line in layouts.lines[:8]),
        confidence=Confidence(
            "high" if named else "medium",
            "most ranks have the same tensors" if named else "no list of tensors has a majority",
        ),
        next=("give groups= the ranks that hold the same tensors, if this is by design",),
    )


def different_groups(
    group: Sequence[int], absent: Sequence[int], hosts: Mapping[int, str]
) -> Finding:
    """Some ranks of a group do not compare within it: nothing can be compared."""
    return Finding(
        cause="different-groups",
        what=f"{ranks_text(set(group) - set(absent))} compare tensors within {ranks_text(group)},"
        f" but {_who(absent, hosts)} {'does' if len(absent) == 1 else 'do'} not: no tensor was"
        " compared",
        evidence=(Evidence(f"group {ranks_text(group)}", "groups of each rank"),),
        confidence=Confidence("medium", "which of them has the wrong groups is unknown"),
        next=("give groups= alike on all ranks, and modules with the same tensors",),
    )


def different_fact(
    name: str, values: Mapping[int, Any], odd: Sequence[int], hosts: Mapping[int, str],
    *, by_design: bool = False,
) -> Finding:  # fmt: skip
    """A setting, step or position that is not the same on all ranks. odd: a minority, or none."""
    text = "; ".join(
        f"{ranks_text(ranks)}: {_short(value)}" for value, ranks in _by_value(values).items()
    )
    evidence = (Evidence(f"{name}: {text}", "facts of each rank"),)
    if not odd:
        return Finding(
            cause="different-facts",
            what=f"{name} is not the same on all ranks: {_short(text)}",
            evidence=evidence,
            confidence=Confidence("medium", "no value is that of most ranks"),
            next=("set it to the same value on all ranks",),
        )
    who = _who(odd, hosts)
    usual = next(value for rank, value in values.items() if rank not in odd)
    own = values[odd[0]]
    return Finding(
        condition="suspicious" if by_design else "different",
        who=who,
        cause="different-facts",
        what=f"{who} {'has' if len(odd) == 1 else 'have'} another {name[4:]} than the others"
        if name.startswith("the state of ")
        else f"{who} {'has' if len(odd) == 1 else 'have'} {name} {_short(own)},"
        f" the others {_short(usual)}",
        evidence=evidence,
        confidence=Confidence("low", "a rank may have random numbers of its own on purpose")
        if by_design
        else Confidence("high", f"{len(values) - len(odd)} of {len(values)} ranks have the same"),
        next=("look at how this rank was started and what it loaded",),
    )


def _who(ranks: Sequence[int], hosts: Mapping[int, str]) -> Who:
    names = {hosts[rank] for rank in ranks if hosts.get(rank)}
    return Who("rank", tuple(ranks), host=names.pop() if len(names) == 1 else None)


def _of(outlier: "Outlier") -> str:
    count = len(outlier.tensors)
    return f"{count} of {outlier.compared} tensor{'s' if outlier.compared > 1 else ''}"


def _place(place: Mapping[str, Any] | None, odd: Sequence[int]) -> str:
    """Words the first element with the odd value and the usual one."""
    if not place:
        return ""
    own = {rank: value for value, ranks in place["values"].items() for rank in ranks}
    usual = next((value for rank, value in own.items() if rank not in odd), "?")
    value = next((own[rank] for rank in odd if own.get(rank, usual) != usual), "?")
    return f", first at {place['index']}: {value} instead of {usual}"


def _values(place: Mapping[str, Any] | None) -> str:
    if not place:
        return ""
    values = "; ".join(f"{ranks_text(ranks)}: {v}" for v, ranks in place["values"].items())
    return f", first at {place['index']}: {_short(values)}"


def _seen(place: Mapping[str, Any] | None) -> str:
    if not place:
        return ""
    return f"{place['different']} of {place['blocks']} blocks of {place['block_bytes']} bytes" + (
        _values(place)
    )


def _by_value(values: Mapping[int, Any]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for rank, value in values.items():
        found.setdefault(str(value), []).append(rank)
    return found


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def different_files(
    paths: Sequence[str],
    odd: Sequence[int],
    tensors: Sequence[str],
    told: Mapping[str, str],
    compared: int,
) -> Finding:
    """Checkpoints differ. odd: numbers of the files that differ from most, or none."""
    named = [paths[i] for i in odd]
    rest = [path for i, path in enumerate(paths) if i not in odd]
    how = f" ({told[tensors[0]]})" if tensors[0] in told else ""
    part = f"{len(tensors)} of {compared} tensors: {tensors[0]}{how}"
    return Finding(
        condition="different",
        who=Who("file", device=", ".join(named) if named else None),
        cause="different-files",
        what=f"{', '.join(named)} {'differs' if len(named) == 1 else 'differ'} from"
        f" {', '.join(rest)} in {part}"
        if named
        else f"{' and '.join(paths)} differ in {part}",
        evidence=tuple(
            Evidence(f"{name}: {told[name]}", "digests of 128 bits")
            for name in tensors
            if name in told
        ),
        confidence=Confidence(
            "high", "most files have the same bits" if named else "their bits are not the same"
        ),
    )


def different_values(name: str, values: Sequence[str], paths: Sequence[str]) -> Finding:
    """A number or text beside the tensors differs, such as the step."""
    text = ", ".join(f"{_short(v)} in {path}" for v, path in zip(values, paths, strict=True))
    return Finding(
        condition="different",
        who=Who("file"),
        cause="different-values",
        what=f"{name} is {text}",
        evidence=(Evidence(f"{name}: {text}", "values beside the tensors"),),
        confidence=Confidence("high", "they are saved so"),
    )


def first_nonfinite(
    found: "Origin", events: Mapping[int, "Event | None"], hosts: Mapping[int, str]
) -> Finding:
    """A NaN or an infinity, where it appears first."""
    first = found.first
    where = _value_in(first)
    has = [rank for rank, one in events.items() if one == first]
    who, verb = _who(found.ranks, hosts), "has" if len(found.ranks) == 1 else "have"
    named = bool(found.ranks)
    return Finding(
        condition="different" if named else "unknown",
        who=who,
        cause="first-nonfinite" if named else "nonfinite-everywhere",
        what=f"{who} {verb} the first non-finite value: {where}"
        if named
        else f"the first non-finite value is {where} on {ranks_text(has)}; which rank made it is"
        f" unknown: {found.why}",
        evidence=_first_events(events),
        confidence=Confidence("high" if len(found.ranks) == 1 else "medium", found.why),
        next=(_NEXT_NONFINITE[first.kind],),
    )


def _value_in(one: "Event") -> str:
    return f"{one.value} in {one.tensor} at step {one.step}"


def _first_events(events: Mapping[int, "Event | None"]) -> tuple[Evidence, ...]:
    """Words the first event of each rank; ranks with the same one share a line."""
    ranks: dict[Event, list[int]] = {}
    for rank, one in events.items():
        if one is not None:
            ranks.setdefault(one, []).append(rank)
    return tuple(
        Evidence(f"{ranks_text(own)}: {_value_in(one)}", "each rank's first one")
        for one, own in sorted(ranks.items(), key=lambda pair: (pair[0].step, pair[0].order))
    )[:_MOST_EVIDENCE]
