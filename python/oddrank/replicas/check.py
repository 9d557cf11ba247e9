"""Compares the copies that ranks hold of the same tensors, and names the rank that differs.

The way of the data: tensors and their groups (`entries`, `groups`), digests (`digests`), one
exchange of 32 bytes in each group, 16 bytes a tensor where that differs, then the majority and the
blocks of tensors that differ (`judge`), sentences (`findings`).
"""

import json
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from oddrank.errors import OddrankError
from oddrank.finding import Finding, counted, size_text
from oddrank.replicas import digests, entries, findings, groups, judge
from oddrank.replicas.entries import Entry, Skipped
from oddrank.replicas.groups import AUTO, Groups, Places, as_module
from oddrank.report import Report

# Tensors of a group whose blocks are compared. The others are named.
_MOST_LOCATED = 8
_MOST_SKIPPED = 200
# A rank lacks these if it does not use numpy, or holds other layers: a pipeline stage.
_MAY_LACK = ("numpy's ", " of parameter group ")


def check(
    module: Any,
    optimizer: Any = None,
    *,
    groups: Groups = AUTO,
    what: Collection[str] = entries.ALL,
    facts: Mapping[str, Any] | None = None,
) -> Report:
    """Compares now. All ranks of the job call it at the same place, and get the same findings.

    module: torch module, in DDP or not, with DTensors or not; a list of modules, as Megatron has
    them; or a state dict. optimizer: torch optimizer, for its state. groups: "auto"; a process
    group (or several, or a device mesh) whose members hold the same tensors; a mapping of name
    patterns to such, or a function of name and tensor; None leaves a tensor out. what: some of
    params, buffers, grads, optim. facts: further values that must be alike, such as {"step": step,
    "resumed from": path}.

    Waits for the other ranks, at most for the timeout of torch's process groups. Changes nothing,
    but shards FSDP2's parameters again that an evaluation left whole, as state_dict() does.
    Raises OddrankError if an argument is wrong.

    Example: report = oddrank.replicas.check(model, optimizer, facts={"step": step})
    """
    entries.check_choice(what)
    return Checker(module, optimizer, groups, tuple(what)).run(facts or {})


class Checker:
    """Compares one module and optimizer repeatedly."""

    def __init__(self, module: Any, optimizer: Any, groups: Groups, what: Sequence[str]) -> None:
        as_module(module)  # OddrankError if it is none
        self._module, self._optimizer = module, optimizer
        self._groups, self._what = groups, what
        self._hosts: dict[int, str] = {}
        self._has_parts = False  # whether some rank has a group without all ranks
        self._agreed: list[bytes] = []  # digests of each rank's groups, when they fitted

    def run(self, facts: Mapping[str, Any] | None = None) -> Report:
        """Compares once. facts: None, after a first run with facts, compares tensors only."""
        import torch.distributed as dist

        began = time.perf_counter()
        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
            return _alone()
        world = dist.group.WORLD
        places = Places.of(self._module, self._groups)
        chosen, skipped = entries.choose(self._module, self._optimizer, places, self._what)
        by_group = _by_group(chosen)
        found: list[Finding] = []
        texts = [groups.as_text(ranks) for ranks in by_group]
        # If one rank no longer has a group, another one would wait in it for ever.
        every_groups = groups.gather(world, digests.of_bytes(json.dumps(texts).encode()))
        if facts is not None or every_groups != self._agreed:
            own: Mapping[str, str] = {}
            if facts is not None:
                own = entries.facts(as_module(self._module), self._optimizer, facts)
            found = self._agree(world, texts, own, places.unmatched())
            if any(one.cause == "different-groups" for one in found):
                seconds = time.perf_counter() - began
                return self._report(found, chosen, skipped, by_group, seconds=seconds)
            self._agreed = every_groups
        every = digests.of([one.tensor for one in chosen])
        compared = {id(one): digest for one, digest in zip(chosen, every, strict=True)}
        odd: list[judge.Outlier] = []
        other: list[judge.Layouts] = []
        # Groups in one order on all ranks: groups that overlap must not wait for each other.
        for ranks in sorted(by_group):
            group, members = by_group[ranks]
            own_odd, own_other = _compare(
                group, ranks, members, [compared[id(one)] for one in members]
            )
            odd += own_odd
            other += own_other
        if self._has_parts:
            odd, other = _merged(world, odd, other)
        found += [findings.different_tensors(one, self._hosts) for one in other]
        found += [
            findings.different_bits(one, self._hosts) if one.ranks else findings.no_majority(one)
            for one in odd
        ]
        seconds = time.perf_counter() - began
        return self._report(found, chosen, skipped, by_group, seconds=seconds, odd=odd)

    def _agree(
        self, world: Any, texts: Sequence[str], facts: Mapping[str, str], unmatched: Sequence[str]
    ) -> list[Finding]:
        """Exchanges hosts, groups and facts of all ranks, and judges them.

        unmatched: patterns that no tensor of this rank has. OddrankError if none of any rank has.
        """
        mine = {
            "host": socket.gethostname(), "groups": texts, "facts": facts, "unmatched": unmatched,
        }  # fmt: skip
        every = [json.loads(one) for one in groups.gather_any(world, json.dumps(mine).encode())]
        for pattern in unmatched:
            if all(pattern in one["unmatched"] for one in every):
                raise OddrankError(
                    f"groups= has the pattern {pattern!r}, which no tensor matches, or only ones"
                    " that an earlier pattern takes: correct or remove it"
                )
        self._hosts = {rank: one["host"] for rank, one in enumerate(every)}
        groups_of = {rank: one["groups"] for rank, one in enumerate(every)}
        whole = groups.as_text(range(len(every)))
        self._has_parts = any(text != whole for own in groups_of.values() for text in own)
        for text in dict.fromkeys(text for own in groups_of.values() for text in own):
            absent = [rank for rank in groups.from_text(text) if text not in groups_of[rank]]
            if absent:
                return [findings.different_groups(groups.from_text(text), absent, self._hosts)]
        return odd_facts({rank: one["facts"] for rank, one in enumerate(every)}, self._hosts)

    def _report(
        self, found: Sequence[Finding], tensors: Sequence[Entry], skipped: Sequence[Skipped],
        by_group: Mapping[tuple[int, ...], Any], *, seconds: float,
        odd: Sequence[judge.Outlier] = (),
    ) -> Report:  # fmt: skip
        import torch.distributed as dist

        size = sum(digests.size_of(one.tensor) for one in tensors)
        reasons = list(dict.fromkeys(one.why for one in skipped))
        if len(skipped) > len(reasons):
            reasons = [why.replace("it is ", "they are ") for why in reasons]
        why = f"{counted(len(tensors), 'tensor')} of {size_text(size)} compared on each rank"
        if skipped:
            why += f"; {len(skipped)} not compared: {'; '.join(reasons[:3])}"
        if not tensors:
            why = f"nothing was compared: {'; '.join(reasons[:3]) or 'there are no tensors'}"
        data = {
            "tensors": len(tensors),
            "bytes": size,
            "groups": [groups.as_text(ranks) for ranks in sorted(by_group)],
            "seconds": seconds,
            "skipped": [vars(one) for one in skipped[:_MOST_SKIPPED]],
            "different": [asdict(one) for one in odd],
        }
        world = {"size": dist.get_world_size(), "rank": dist.get_rank(), "hosts": self._hosts}
        return Report.of("replicas", world, data, found, complete=bool(tensors), why=why)


def _alone() -> Report:
    why = "nothing was compared: this job has one rank"
    data: dict[str, Any] = {"tensors": 0, "bytes": 0, "groups": [], "skipped": [], "different": []}
    return Report.of("replicas", {"size": 1}, data, (), complete=False, why=why)


def _by_group(chosen: Sequence[Entry]) -> dict[tuple[int, ...], tuple[Any, list[Entry]]]:
    """Returns ranks -> their group and its tensors, for groups of several ranks."""
    import torch.distributed as dist

    found: dict[tuple[int, ...], tuple[Any, list[Entry]]] = {}
    ranks_of: dict[Any, tuple[int, ...]] = {}
    for one in chosen:
        for group in one.groups:
            if group not in ranks_of:
                ranks_of[group] = groups.members(group)
            ranks = ranks_of[group]
            # Ranks that find another group of all ranks first must wait in the same one.
            where = dist.group.WORLD if len(ranks) == dist.get_world_size() else group
            if len(ranks) > 1:
                found.setdefault(ranks, (where, []))[1].append(one)
    return found


def _compare(
    group: Any, ranks: tuple[int, ...], members: Sequence[Entry], own: Sequence[bytes]
) -> tuple[list[judge.Outlier], list[judge.Layouts]]:
    """Compares the tensors of one group. Every member gets the same answer."""
    lines = [one.line() for one in members]
    layout = json.dumps(lines).encode()
    heads = groups.gather(group, digests.of_bytes(layout) + digests.of_bytes(b"".join(own)))
    if len(set(heads)) == 1:
        return [], []
    other: judge.Layouts | None = None
    if len({head[: digests.BYTES] for head in heads}) > 1:
        texts = groups.gather_any(group, layout)
        every = {rank: json.loads(text) for rank, text in zip(ranks, texts, strict=True)}
        kept = {(what, name): i for i, (what, name, *_) in enumerate(lines)}
        other, lines = judge.layouts(ranks, every)
        chosen = [kept[what, name] for what, name, _, _ in lines]
        members, own = [members[i] for i in chosen], [own[i] for i in chosen]
    told = groups.gather(group, b"".join(own)) if own else []
    by_rank = {
        rank: [text[i : i + digests.BYTES].hex() for i in range(0, len(text), digests.BYTES)]
        for rank, text in zip(ranks, told, strict=bool(told))
    }
    odd = judge.outliers(ranks, lines, by_rank) if told else []
    _locate(group, ranks, members, odd)
    return odd, [other] if other else []


def _locate(
    group: Any, ranks: Sequence[int], members: Sequence[Entry], odd: Sequence[judge.Outlier]
) -> None:
    """Adds to the first tensors of each outlier where they differ."""
    tensors = {(one.what, one.name): one.tensor for one in members}

    def gather(content: bytes) -> Mapping[int, bytes]:
        return dict(zip(ranks, groups.gather(group, content), strict=True))

    for outlier in odd:
        for i, one in enumerate(outlier.tensors[:_MOST_LOCATED]):
            place = judge.locate(tensors[one.what, one.name], gather)
            outlier.tensors[i] = replace(one, place=place)


def _merged(
    world: Any, odd: Sequence[judge.Outlier], other: Sequence[judge.Layouts]
) -> tuple[list[judge.Outlier], list[judge.Layouts]]:
    """Exchanges the results of each group's first rank: all ranks get the same report."""
    import torch.distributed as dist

    rank = dist.get_rank()
    mine = [asdict(one) for one in odd if one.group[0] == rank]
    layouts = [vars(one) for one in other if one.group[0] == rank]
    text = json.dumps([mine, layouts]).encode() if mine or layouts else b""
    every = [json.loads(one) for one in groups.gather_any(world, text) if one]
    return (
        [judge.Outlier.from_json(one) for odd_, _ in every for one in odd_],
        [
            judge.Layouts(tuple(one["group"]), tuple(one["ranks"]), tuple(one["lines"]))
            for _, others in every
            for one in others
        ],
    )


def odd_facts(by_rank: Mapping[int, Mapping[str, str]], hosts: Mapping[int, str]) -> list[Finding]:
    """Returns a finding for each fact that is not the same on all ranks."""
    found = []
    for name in dict.fromkeys(name for own in by_rank.values() for name in own):
        values = {rank: own.get(name, "unknown") for rank, own in by_rank.items()}
        if any(part in name for part in _MAY_LACK):
            values = {rank: own[name] for rank, own in by_rank.items() if name in own}
        odd = judge.minority(values)
        if odd is not None:
            found.append(findings.different_fact(name, values, odd, hosts))
    return found
