"""The causes of the stage environment: one function each."""

from collections.abc import Iterable, Sequence
from typing import Any

from oddrank.control.stages import Rounds
from oddrank.finding import Confidence, Evidence, Finding, Who, fold
from oddrank.selftest.facts.compare import Difference, Group
from oddrank.selftest.facts.rules import SHM_NEEDED
from oddrank.selftest.findings.names import Places, node_or_rank

_MOST_TOLD = 12
_MOST_NAMED = 4
# Fact -> what shows it on a host, where that is not doctor.
_LOOK = {
    "network_cards": "ip -br link",
    "mtu": "ip link",
    "rdma_ports": "ibstat",
    "gpus": "nvidia-smi -L",
    "gpu": "nvidia-smi -L",
}


def deviates(
    rounds: Rounds, places: Places, differences: Sequence[tuple[Difference, Group]]
) -> Finding:
    """The same ranks differ from most in some facts; each with what they have."""
    ranks = differences[0][1][1]
    who = node_or_rank(rounds, ranks)
    breaks = any(difference.breaks for difference, _ in differences)
    clear = all(difference.is_clear for difference, _ in differences)
    told = sorted(differences, key=lambda pair: not pair[0].breaks)
    parts = [
        f"{_label(d)} {_value(value)}, {places.have(d.groups[0][1])} {_value(d.groups[0][0])}"
        for d, (value, _) in told
    ]
    where = places.names(ranks)
    by_name = f"{who} on {where}" if where and who.host is None else str(who)
    what = f"{by_name} has {parts[0]}" if len(ranks) == 1 or who.kind == "node" else ""
    what = what or f"{by_name} have {parts[0]}"
    if len(parts) > 1:
        names = ", ".join(_label(d) for d, _ in told[1:_MOST_NAMED])
        more = "" if len(parts) <= _MOST_NAMED else f" and {len(parts) - _MOST_NAMED} more"
        what += f"; other facts differ too: {names}{more}"
    why = "nearly all others agree" if clear else "two of three agree, which is not much"
    return Finding(
        condition="different" if breaks else "suspicious",
        who=who,
        cause="other-version" if breaks else "other-setting",
        what=what,
        stage="environment",
        evidence=_evidence((d.name, part) for (d, _), part in zip(told, parts, strict=True)),
        confidence=Confidence("high" if breaks and clear else "medium", why),
        next=("oddrank doctor  (on that host)",),
    )


def no_majority(places: Places, differences: Sequence[Difference]) -> Finding:
    """The ranks fall apart in the same way in some facts, and no part is most of them."""
    parts = [
        "; ".join(
            f"{places.have(ranks)} {_value(value)}" for value, ranks in d.groups[:_MOST_NAMED]
        )
        + (f"; {len(d.groups) - _MOST_NAMED} more" if len(d.groups) > _MOST_NAMED else "")
        for d in differences
    ]
    names = ", ".join(_label(d) for d in differences[:_MOST_NAMED])
    more = f" and {len(differences) - _MOST_NAMED} more" if len(differences) > _MOST_NAMED else ""
    what = f"{names}: {parts[0]}; nobody can say which of them is odd"
    if len(parts) > 1:
        what = (
            f"ranks differ in {names}{more}, and nobody can say which of them are odd, the first"
            f" of them: {parts[0]}"
        )
    look = dict.fromkeys(_LOOK.get(d.name.partition(".")[0], "oddrank doctor") for d in differences)
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause="no-majority",
        what=what,
        stage="environment",
        evidence=_evidence((d.name, part) for d, part in zip(differences, parts, strict=True)),
        confidence=Confidence("low", "no value has two thirds of the nodes, or ranks of a node"),
        next=(f"{'; '.join(look)}  (on each of these hosts)",),
    )


def same_gpu(rounds: Rounds, gpu: str, ranks: Sequence[int]) -> Finding:
    """Each said which GPU it takes."""
    host = rounds.who(ranks).host
    who = Who("gpu", tuple(ranks), host, f"GPU {gpu}")
    return Finding(
        condition="mismatch",
        who=who,
        cause="same-gpu",
        what=f"{who} take one and the same GPU, while others have one to themselves",
        stage="environment",
        evidence=(Evidence(f"rank {fold(ranks)}: GPU {gpu}", "UUID"),),
        confidence=Confidence("high", "they said so themselves"),
        next=("echo $CUDA_VISIBLE_DEVICES $LOCAL_RANK  (in these ranks)",),
    )


def far_from_gpu(rounds: Rounds, ranks: Sequence[int]) -> Finding:
    """Their transfers cross the link between the processors' sockets."""
    facts = rounds.of("environment")
    texts = [
        f"rank {rank}: GPU {facts[rank]['gpu_bus']} at NUMA node {facts[rank]['gpu_numa']}, the"
        f" rank on {', '.join(n for n, how in facts[rank]['numa'].items() if how == 'used')}"
        for rank in ranks[:_MOST_TOLD]
    ]
    return _odd(
        rounds,
        ranks,
        cause="far-from-gpu",
        what="may not run on any processor at its GPU's NUMA node",
        evidence=[("sched_getaffinity", text) for text in texts],
        advice="nvidia-smi topo -m; then bind each rank to the processors of its GPU",
    )


def without_shm(rounds: Rounds, ranks: Sequence[int]) -> Finding:
    """NCCL and DataLoader end in the middle of a job."""
    facts = rounds.of("environment")
    left = min(facts[rank]["shm_free"] for rank in ranks)
    return _odd(
        rounds,
        ranks,
        cause="shm-full",
        what=f"has {left / (1 << 20):.1f} MiB left in /dev/shm, where NCCL takes"
        f" {SHM_NEEDED / (1 << 20):.0f} MiB for two ranks",
        evidence=[("statvfs", f"{left} bytes free in /dev/shm")],
        advice="ls -l /dev/shm  (old nccl-* and torch_* files); a container: --shm-size",
    )


def few_files(rounds: Rounds, soft: int) -> Finding:
    """torch's store, in rank 0 or its launcher, has a connection to each rank."""
    return _odd(
        rounds,
        [0],
        cause="few-open-files",
        what=f"may open {soft} files, and its store needs one for each of {rounds.world} ranks",
        evidence=[("getrlimit", f"soft limit {soft}")],
        advice="ulimit -n $(ulimit -Hn)",
    )


def without_interface(rounds: Rounds, ranks: Sequence[int]) -> Finding:
    """NCCL ends at once."""
    return _odd(
        rounds,
        ranks,
        cause="no-interface",
        what="has no network interface that NCCL_SOCKET_IFNAME names",
        evidence=[("environment", f"rank {fold(ranks)}: NCCL_SOCKET_IFNAME")],
        advice="ip -brief address; echo $NCCL_SOCKET_IFNAME  (on that host)",
    )


def _odd(
    rounds: Rounds,
    ranks: Sequence[int],
    *,
    cause: str,
    what: str,
    evidence: Iterable[tuple[str, str]],
    advice: str,
) -> Finding:
    who = node_or_rank(rounds, ranks)
    if who.kind == "rank" and len(ranks) > 1 and what.startswith("has "):
        what = what.replace("has", "have", 1)
    return Finding(
        condition="suspicious",
        who=who,
        cause=cause,
        what=f"{who} {what}",
        stage="environment",
        evidence=_evidence(evidence),
        confidence=Confidence("medium", "read there; whether it hurts depends on the job"),
        next=(advice,),
    )


def _evidence(told: Iterable[tuple[str, str]]) -> tuple[Evidence, ...]:
    return tuple(Evidence(text, source) for source, text in list(told)[:_MOST_TOLD])


def _label(difference: Difference) -> str:
    """An entry of a fact has a name of its own: rdma_ports.mlx5_7/1."""
    return difference.name if "." in difference.name else difference.name.replace("_", " ")


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, int) and value >= 1 << 20:
        return f"{value / (1 << 20):.0f} MiB"
    return str(value)[:100]
