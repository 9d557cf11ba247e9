"""The causes that a comparison of replicas, or a search for NaN and infinities, can name."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from oddrank.finding import Evidence, Finding, Row, Who, counted, grouped, ranks_text
from oddrank.replicas.judge import Event, Layouts, Origin, Outlier

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

# fmt: off
DIFFERENT_BITS = Row(
    "different-bits", "different", "{who} {hold} other bits than {rest} in {part}: {tensor}{place}",
    ("high", "{agree} of {copies} copies have the same bits; a fault of most ranks would name the"
     " others"))
NO_MAJORITY = Row(
    "no-majority", "unknown",
    "{ranks} hold different bits in {part}: {tensor}{place}; which is wrong is unknown",
    ("medium", "no value is held by more than half of the copies"),
    ("compare with a checkpoint: oddrank replicas compare",))
DIFFERENT_TENSORS = Row(
    "different-tensors", "different", "{among} {have} different tensors: {first}",
    ("high", "most ranks have the same tensors"),
    ("give groups= the ranks that hold the same tensors, if this is by design",))
TENSORS_DIFFER = replace(
    DIFFERENT_TENSORS, condition="unknown", sure=("medium", "no list of tensors has a majority"))
# Some ranks of a group do not compare within it.
DIFFERENT_GROUPS = Row(
    "different-groups", "unknown", "{present} compare tensors within {group}, but {absent} {do}"
    " not: no tensor was compared", ("medium", "which of them has the wrong groups is unknown"),
    ("give groups= alike on all ranks, and modules with the same tensors",))
DIFFERENT_FACT = Row(
    "different-facts", "different", "{who} {have} {own}",
    ("high", "{agree} of {all} ranks have the same"),
    ("look at how this rank was started and what it loaded",))
FACTS_DIFFER = Row(
    "different-facts", "unknown", "{name} is not the same on all ranks: {text}",
    ("medium", "no value is that of most ranks"), ("set it to the same value on all ranks",))
DIFFERENT_FILE = Row(
    "different-files", "different", "{named} {differ} from {rest} in {part}",
    ("high", "most files have the same bits"))
FILES_DIFFER = Row(
    "different-files", "different", "{files} differ in {part}",
    ("high", "their bits are not the same"))
DIFFERENT_VALUES = Row(
    "different-values", "different", "{name} is {text}", ("high", "they are saved so"))
FIRST_NONFINITE = Row(
    "first-nonfinite", "different", "{who} {have} the first non-finite value: {where}",
    ("high", "{why}"))
NONFINITE_EVERYWHERE = Row(
    "nonfinite-everywhere", "unknown", "the first non-finite value is {where} on {has}; which rank"
    " made it is unknown: {why}", ("medium", "{why}"))
# fmt: on


def different_bits(outlier: Outlier, hosts: Mapping[int, str]) -> Finding:
    """A minority holds other bits than most copies."""
    first, odd = outlier.tensors[0], outlier.ranks
    rest = [rank for rank in outlier.group if rank not in odd]
    whats = list(dict.fromkeys(one.what for one in outlier.tensors))
    return replace(DIFFERENT_BITS, next=tuple(_NEXT[what] for what in whats[:2])).found(
        _who(odd, hosts), *_first_tensors(outlier), hold="holds" if len(odd) == 1 else "hold",
        rest=ranks_text(rest), part=_of(outlier), tensor=f"{first.name} ({first.what})",
        place=_place(first.place, odd), agree=len(rest), copies=len(outlier.group),
    )  # fmt: skip


def no_majority(outlier: Outlier) -> Finding:
    """Copies differ, and no value has a majority."""
    first = outlier.tensors[0]
    return NO_MAJORITY.found(
        Who("rank"), *_first_tensors(outlier), ranks=ranks_text(outlier.group), part=_of(outlier),
        tensor=f"{first.name} ({first.what})", place=_values(first.place),
    )  # fmt: skip


def _first_tensors(outlier: Outlier) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            f"{one.name} ({one.what}, {one.dtype} {list(one.shape)}):"
            f" {_seen(one.place) or 'other digest'}",
            "digests of 128 bits",
        )
        for one in outlier.tensors[:_MOST_EVIDENCE]
    )


def different_tensors(layouts: Layouts, hosts: Mapping[int, str]) -> Finding:
    """Ranks do not hold the same tensors: names, shapes or types differ."""
    named = bool(layouts.ranks)
    who = _who(layouts.ranks, hosts) if named else Who("rank")
    return (DIFFERENT_TENSORS if named else TENSORS_DIFFER).found(
        who, *(Evidence(line, "names, shapes, types") for line in layouts.lines[:8]),
        among=who if named else ranks_text(layouts.group), first=layouts.lines[0],
        have=_have(layouts.ranks),
    )  # fmt: skip


def different_groups(
    group: Sequence[int], absent: Sequence[int], hosts: Mapping[int, str]
) -> Finding:
    """Some ranks of a group do not compare within it: nothing can be compared."""
    return DIFFERENT_GROUPS.found(
        Who("rank"), Evidence(f"group {ranks_text(group)}", "groups of each rank"),
        present=ranks_text(set(group) - set(absent)), group=ranks_text(group),
        absent=_who(absent, hosts), do="does" if len(absent) == 1 else "do",
    )  # fmt: skip


def different_fact(
    name: str, values: Mapping[int, Any], odd: Sequence[int], hosts: Mapping[int, str]
) -> Finding:
    """A setting, step or position that is not the same on all ranks. odd: a minority, or none."""
    by_value = grouped((str(value), rank) for rank, value in values.items())
    text = "; ".join(f"{ranks_text(ranks)}: {_short(one)}" for one, ranks in by_value.items())
    seen = Evidence(f"{name}: {text}", "facts of each rank")
    if not odd:
        return FACTS_DIFFER.found(Who("rank"), seen, name=name, text=_short(text))
    usual = next(value for rank, value in values.items() if rank not in odd)
    own = f"{name} {_short(values[odd[0]])}, the others {_short(usual)}"
    return DIFFERENT_FACT.found(
        _who(odd, hosts), seen, have=_have(odd), own=own, agree=len(values) - len(odd),
        all=len(values),
    )  # fmt: skip


def _have(ranks: Sequence[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def _who(ranks: Sequence[int], hosts: Mapping[int, str]) -> Who:
    names = {hosts[rank] for rank in ranks if hosts.get(rank)}
    return Who("rank", tuple(ranks), host=names.pop() if len(names) == 1 else None)


def _of(outlier: Outlier) -> str:
    count = len(outlier.tensors)
    return f"{count} of {counted(outlier.compared, 'tensor')}"


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
    blocks = f"{place['different']} of {place['blocks']} blocks of {place['block_bytes']} bytes"
    return blocks + _values(place)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def different_files(
    paths: Sequence[str], odd: Sequence[int], tensors: Sequence[str], told: Mapping[str, str],
    compared: int,
) -> Finding:  # fmt: skip
    """Checkpoints differ. odd: numbers of the files that differ from most, or none."""
    named = ", ".join(paths[i] for i in odd)
    how = f" ({told[tensors[0]]})" if tensors[0] in told else ""
    return (DIFFERENT_FILE if odd else FILES_DIFFER).found(
        Who("file", device=named or None),
        *(Evidence(f"{t}: {told[t]}", "tensors of the files") for t in tensors if t in told),
        named=named, differ="differs" if len(odd) == 1 else "differ", files=" and ".join(paths),
        rest=", ".join(path for i, path in enumerate(paths) if i not in odd),
        part=f"{len(tensors)} of {compared} tensors: {tensors[0]}{how}",
    )  # fmt: skip


def different_values(name: str, values: Sequence[str], paths: Sequence[str]) -> Finding:
    """A number or text beside the tensors differs, such as the step."""
    text = ", ".join(f"{_short(v)} in {path}" for v, path in zip(values, paths, strict=True))
    seen = Evidence(f"{name}: {text}", "values beside the tensors")
    return DIFFERENT_VALUES.found(Who("file"), seen, name=name, text=text)


def first_nonfinite(
    found: Origin, events: Mapping[int, Event | None], hosts: Mapping[int, str]
) -> Finding:
    """A NaN or an infinity, where it appears first."""
    first = found.first
    row = FIRST_NONFINITE if found.ranks else NONFINITE_EVERYWHERE
    row = replace(row, next=(_NEXT_NONFINITE[first.kind],))
    row = row if len(found.ranks) == 1 else replace(row, sure=NONFINITE_EVERYWHERE.sure)
    return row.found(
        _who(found.ranks, hosts), *_first_events(events), have=_have(found.ranks),
        where=_value_in(first), why=found.why,
        has=ranks_text(rank for rank, one in events.items() if one == first),
    )  # fmt: skip


def _value_in(one: Event) -> str:
    return f"{one.value} in {one.tensor} at step {one.step}"


def _first_events(events: Mapping[int, Event | None]) -> tuple[Evidence, ...]:
    """Words the first event of each rank; ranks with the same one share a line."""
    ranks = grouped((one, rank) for rank, one in events.items() if one is not None)
    return tuple(
        Evidence(f"{ranks_text(own)}: {_value_in(one)}", "each rank's first one")
        for one, own in sorted(ranks.items(), key=lambda pair: (pair[0].step, pair[0].order))
    )[:_MOST_EVIDENCE]
