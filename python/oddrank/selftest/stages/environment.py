"""Compares the environment of all ranks: versions, limits, network, settings."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from oddrank.control.stages import Context, RunState, Stage, nodes_of
from oddrank.finding import Evidence, Finding, Level, Row, Who, ranks_text, size_text, some
from oddrank.machine import device
from oddrank.selftest import Options, facts
from oddrank.selftest.facts import Difference, Fact, Facts, Group, Here, compare, shared_gpus
from oddrank.selftest.nodes import Places, node_or_rank
from oddrank.selftest.stages.device import without_part

_MOST_TOLD = 12
_MOST_NAMED = 4
# Two ranks of a node use four NCCL segments in /dev/shm, 9,637,888 bytes each. With less, NCCL ends
# with "No space left on device" (NVIDIA/nccl#290, #525).
_SHM_NEEDED = 4 * 9_637_888
# Files that rank 0 has open besides a connection to each rank: libraries, logs, data.
_OTHER_FILES = 64
# Fact -> the command that shows it on a host, if not doctor. gpu: its PCI address.
_LOOK = {
    "network_cards": "ip -br link",
    "mtu": "ip link",
    "rdma_ports": "ibstat",
    "gpus": "nvidia-smi -L",
    "gpu": "nvidia-smi -L",
    "PCIe": "lspci -vv -s {gpu} | grep -i lnk",
    **dict.fromkeys(
        ("power cap", "highest SM clock", "highest memory clock", "ECC mode", "MIG mode"),
        "nvidia-smi -i {gpu} -q",
    ),
}

# Step that a rank shows -> the facts that it reads then. The git commit has a step of its own, the
# last one: it may lie on a file system that does not answer.
STEPS: dict[str, tuple[Fact, ...]] = {
    "read versions": facts.SOFTWARE_FACTS,
    "ask for its GPU": facts.GPU_FACTS,
    "read limits": facts.LIMIT_FACTS,
    "read what the host is": facts.HOST_FACTS,
    "read what the network is": facts.NETWORK_FACTS,
    "read the git commit of the working directory": facts.COMMIT_FACTS,
}
FACTS = tuple(fact for facts in STEPS.values() for fact in facts)

_READ: tuple[Level, str] = ("medium", "read there; whether it hurts depends on the job")
_DOCTOR = ("oddrank doctor  (on that host)",)
# fmt: off
_LOOK_THERE = ("{look}  (on that host)",)
OTHER_VERSION = Row("other-version", "different", "{what}", ("medium", "{why}"), _LOOK_THERE)
OTHER_SETTING = Row("other-setting", "suspicious", "{what}", ("medium", "{why}"), _LOOK_THERE)
NO_MAJORITY = Row(
    "no-majority", "unknown", "{what}",
    ("low", "no value has two thirds of the nodes, or ranks of a node"),
    ("{look}  (on each of these hosts)",))
CUDA_PART_MISSING = Row(
    "cuda-part-missing", "different", "{who} {has} no part that tests GPUs, {why}",
    ("high", "the other ranks have it"), _DOCTOR)
NO_CUDA_PART = Row(
    "cuda-part-missing", "unknown", "no rank has the part that tests GPUs, {why}",
    ("low", "no GPU was tested"), _DOCTOR)
SAME_GPU = Row(
    "same-gpu", "mismatch", "{who} share one GPU, while other ranks have one each",
    ("high", "reported by these ranks"),
    ("echo $CUDA_VISIBLE_DEVICES $LOCAL_RANK  (in these ranks)",))
SHM_NOT_WRITABLE = Row(
    "shm-not-writable", "suspicious", "{who} can't write /dev/shm, which NCCL and DataLoader need"
    " for shared memory", _READ,
    ("findmnt /dev/shm; ls -ld /dev/shm  (on that host: it should be rw, and 1777)",))
SHM_FULL = Row(
    "shm-full", "suspicious", "{who} {has} {left} left in /dev/shm, where NCCL takes"
    " {needed} for two ranks", _READ,
    ("ls -l /dev/shm  (old nccl-* and torch_* files); a container: --shm-size",))
FAR_FROM_GPU = Row(
    "far-from-gpu", "suspicious", "{who} may not run on any processor at its GPU's NUMA node",
    _READ, ("nvidia-smi topo -m; then bind each rank to the processors of its GPU",))
# torch's store, in rank 0 or its launcher, needs a connection to each rank.
FEW_OPEN_FILES = Row(
    "few-open-files", "suspicious", "{who} may open only {soft} files: its store needs one for each"
    " of {world} ranks", _READ, ("ulimit -n $(ulimit -Hn)",))
# On one node alone: stage reach finds it on several nodes.
NO_INTERFACE = Row(
    "no-interface", "suspicious", "{who} {has} no network interface that NCCL_SOCKET_IFNAME names",
    _READ, ("ip -brief address; echo $NCCL_SOCKET_IFNAME  (on that host)",))
# fmt: on


def _measure(context: Context[object]) -> Facts:
    context.step("import torch")
    import torch

    context.step("ask CUDA for GPUs")
    gpus = device.facts(context.launch)
    here = Here(context.launch, torch, context.master, gpus)
    found: dict[str, Any] = {**gpus}
    for step, read in STEPS.items():
        context.step(step)
        found |= {fact.name: fact.value(here) for fact in read}
    return cast("Facts", found)


def differences(
    run: RunState,
    table: Iterable[Fact],
    results: Mapping[int, Mapping[str, object]],
    gpus: Mapping[int, str],
) -> Iterator[Finding]:
    """Yields one finding for all facts in which the same ranks differ: an image changes many.

    gpus: the PCI addresses of the ranks' GPUs, for facts of GPUs.
    """
    deviants: dict[tuple[int, ...], list[tuple[Difference, Group]]] = {}
    parted: dict[frozenset[tuple[int, ...]], list[Difference]] = {}
    for difference in compare(table, results, nodes_of(run)):
        if difference.common is None:
            parts = frozenset(ranks for _, ranks in difference.groups)
            parted.setdefault(parts, []).append(difference)
            continue
        for group in difference.groups[1:]:
            deviants.setdefault(group[1], []).append((difference, group))
    places = Places(run)
    for found in deviants.values():
        yield deviates(run, places, found, gpus)
    for differences in parted.values():
        yield no_majority(places, differences, gpus)


def _odd_alone(run: RunState, results: Mapping[int, Facts]) -> Iterator[Finding]:
    """Yields findings that do not depend on other ranks."""
    nodes = nodes_of(run)
    # NCCL and DataLoader make their shared memory in /dev/shm.
    sharing = [rank for node in nodes if len(node) > 1 for rank in node if rank in results]
    if lacking := without_part(run):
        why = next(iter(lacking.values()))
        missing = Evidence(f"{ranks_text(lacking)}: no {why}", "oddrank")
        if len(lacking) == run.world:
            yield NO_CUDA_PART.found(Who("rank"), missing, why=why)
        else:
            yield _of_ranks(CUDA_PART_MISSING, run, lacking, missing, why=why)
    if ranks := [rank for rank in sharing if results[rank].get("shm_writable") is False]:
        why = f"{ranks_text(ranks)}: no permission to write, or mounted read-only"
        yield _of_ranks(SHM_NOT_WRITABLE, run, ranks, Evidence(why, "access"))
    for gpu, ranks in shared_gpus(results, nodes):
        who = Who("gpu", tuple(ranks), run.who(ranks).host, f"GPU {gpu}")
        yield SAME_GPU.found(who, Evidence(f"{ranks_text(ranks)}: GPU {gpu}", "UUID"))
    if ranks := [rank for rank, facts in results.items() if _is_far_from_gpu(facts)]:
        seen = [Evidence(_place(r, results[r]), "sched_getaffinity") for r in ranks[:_MOST_TOLD]]
        yield _of_ranks(FAR_FROM_GPU, run, ranks, *seen)
    free = {rank: results[rank].get("shm_free") for rank in sharing}
    full = {r: left for r, left in free.items() if isinstance(left, int) and left < _SHM_NEEDED}
    if full:
        left = min(full.values())
        seen_free = Evidence(f"{left} bytes free in /dev/shm", "statvfs")
        told = {"left": size_text(left), "needed": size_text(_SHM_NEEDED)}
        yield _of_ranks(SHM_FULL, run, [*full], seen_free, **told)
    soft = results[0].get("nofile", "").partition("/")[0] if 0 in results else ""
    if soft.isdigit() and int(soft) < run.world + _OTHER_FILES:
        seen_limit = Evidence(f"soft limit {soft}", "getrlimit")
        yield _of_ranks(FEW_OPEN_FILES, run, [0], seen_limit, soft=soft, world=run.world)
    with_gpu = {rank: facts for rank, facts in results.items() if facts.get("gpus")}
    ranks = [rank for rank, facts in with_gpu.items() if facts.get("nccl_interfaces") == ""]
    if ranks and len(nodes) == 1:
        why = f"{ranks_text(ranks)}: NCCL_SOCKET_IFNAME"
        yield _of_ranks(NO_INTERFACE, run, ranks, Evidence(why, "environment"))


def _is_far_from_gpu(facts: Facts) -> bool:
    """Returns whether a rank may not run on any processor of its GPU's NUMA node."""
    numa = facts.get("numa")
    return isinstance(numa, dict) and numa.get(str(facts.get("gpu_numa"))) == "not used"


def _place(rank: int, own: Facts) -> str:
    numa = own["numa"] if isinstance(own["numa"], dict) else {}
    used = ", ".join(name for name, how in numa.items() if how == "used")
    at = f"GPU {own['gpu_bus']} at NUMA node {own['gpu_numa']}"
    return f"rank {rank}: {at}, the rank on {used}"


def deviates(
    run: RunState,
    places: Places,
    differences: Sequence[tuple[Difference, Group]],
    gpus: Mapping[int, str],
) -> Finding:
    ranks = differences[0][1][1]
    who = node_or_rank(run, ranks)
    breaks = any(difference.breaks for difference, _ in differences)
    clear = all(difference.is_clear for difference, _ in differences)
    ordered = sorted(differences, key=lambda pair: not pair[0].breaks)
    parts = [
        f"{_label(d)} {_value(value)}, {places.have(d.groups[0][1])} {_value(d.groups[0][0])}"
        for d, (value, _) in ordered
    ]
    where = places.names(ranks)
    by_name = f"{who} on {where}" if where and who.host is None else str(who)
    what = f"{by_name} has {parts[0]}" if len(ranks) == 1 or who.kind == "node" else ""
    what = what or f"{by_name} have {parts[0]}"
    if len(parts) > 1:
        names = some([_label(d) for d, _ in ordered[1:]], _MOST_NAMED - 1)
        what += f"; other facts differ too: {names}"
    least = min((difference for difference, _ in differences), key=lambda one: one.share)
    count, votes = round(least.most.count, 1), round(least.most.votes, 1)
    agree = f"{count:g} of {votes:g} {least.voters} agree"
    why = "nearly all others agree" if clear else f"{agree}, which is not much"
    row = OTHER_VERSION if breaks else OTHER_SETTING
    row = replace(row, sure=("high", row.sure[1])) if breaks and clear else row
    seen = _evidence((d.name, part) for (d, _), part in zip(ordered, parts, strict=True))
    look = _look((d for d, _ in ordered), gpus, ranks[:1])
    return row.found(who, *seen, what=what, why=why, look=look)


def no_majority(
    places: Places, differences: Sequence[Difference], gpus: Mapping[int, str]
) -> Finding:
    parts = [
        "; ".join(
            f"{places.have(ranks)} {_value(value)}" for value, ranks in d.groups[:_MOST_NAMED]
        )
        + (f"; {len(d.groups) - _MOST_NAMED} more" if len(d.groups) > _MOST_NAMED else "")
        for d in differences
    ]
    names = some([_label(d) for d in differences], _MOST_NAMED)
    what = f"{names}: {parts[0]}; no majority says which is odd"
    if len(parts) > 1:
        what = f"ranks differ in {names}, and no majority says which are odd. First: {parts[0]}"
    seen = _evidence((d.name, part) for d, part in zip(differences, parts, strict=True))
    ranks = [ranks[0] for _, ranks in differences[0].groups[:_MOST_NAMED]]
    look = _look(differences, gpus, ranks)
    return NO_MAJORITY.found(Who("rank"), *seen, what=what, look=look)


def _of_ranks(
    row: Row, run: RunState, ranks: Collection[int], *seen: Evidence, **told: object
) -> Finding:
    who = node_or_rank(run, ranks)
    has = "have" if who.kind == "rank" and len(ranks) > 1 else "has"
    return row.found(who, *seen, has=has, **told)


def _evidence(ordered: Iterable[tuple[str, str]]) -> tuple[Evidence, ...]:
    return tuple(Evidence(text, source) for source, text in list(ordered)[:_MOST_TOLD])


def _look(differences: Iterable[Difference], gpus: Mapping[int, str], ranks: Sequence[int]) -> str:
    """Returns the commands that show these facts of these ranks on a host."""
    names = (d.name.partition(".")[0] for d in differences)
    commands = [_LOOK.get(name, "oddrank doctor") for name in names]
    told = (each.format(gpu=gpus.get(rank, "GPU")) for each in commands for rank in ranks)
    return "; ".join(dict.fromkeys(told))


def _label(difference: Difference) -> str:
    """Returns a fact's name in words; an entry's name unchanged: rdma_ports.mlx5_7/1."""
    return difference.name if "." in difference.name else difference.name.replace("_", " ")


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, int) and value >= 1 << 20:
        return size_text(value)
    return str(value)[:100]


def stage(options: Options) -> Stage[None, Facts, list[Finding]]:
    # A long deadline: many ranks import torch from one busy file system.
    return Stage("environment", 300, _measure, lambda run, results: [
        *differences(run, FACTS, results, {}), *_odd_alone(run, results),
    ], counted=False)  # fmt: skip
