"""Digests beside a checkpoint: written when it is saved, compared after it was loaded.

Each rank writes a file with what no other rank writes: the first rank of a group of copies, or the
rank that holds a shard. Writing needs no exchange. A shard is known by its place in the whole
tensor, so it is compared after a load by another rank, too, if the parts are the same.
"""

import json
import socket
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oddrank.errors import OddrankError
from oddrank.finding import Finding
from oddrank.replicas import checkpoints, digests, entries, findings, gathers
from oddrank.replicas.groups import AUTO, Groups, Placed, Places
from oddrank.report import Report, envelope, write_json

WHAT = (entries.PARAMS, entries.BUFFERS, entries.OPTIM)
_MOST_NAMED = 200


@dataclass(frozen=True)
class _Held:
    """A tensor of this rank. key: its name and place in the whole. owner: the rank that saves."""

    key: str
    tensor: Any
    owner: int
    is_everywhere: bool  # all ranks have a copy


def save_digests(
    folder: str | Path,
    module: Any,
    optimizer: Any = None,
    *,
    groups: Groups = AUTO,
    what: Collection[str] = WHAT,
) -> None:
    """Writes digests of this rank's tensors into the folder of a checkpoint. All ranks call it.

    Call it where the checkpoint is saved: the tensors must be the same. Waits for no other rank.
    Raises OddrankError if the folder can't be written.
    """
    rank, world = _rank_and_world()
    held = [one for one in _held(module, optimizer, groups, what) if one.owner == rank]
    try:
        if not held:
            _file(folder, rank).unlink(missing_ok=True)  # of an earlier save by other ranks
            return
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OddrankError(f"can't write to {folder}: {error.strerror or error}") from error
    saved = checkpoints.Checkpoint(str(folder), values={"world": str(world)})
    every = digests.of([one.tensor for one in held])
    for one, digest in zip(held, every, strict=True):
        saved.tensors[one.key] = checkpoints.Saved(*_form(one.tensor), digest.hex())
    write_json(envelope("replicas dump", {}, saved.as_json()), _file(folder, rank))


def check_digests(
    folder: str | Path,
    module: Any,
    optimizer: Any = None,
    *,
    groups: Groups = AUTO,
    what: Collection[str] = WHAT,
) -> Report:
    """Compares tensors with the digests that save_digests() wrote. All ranks call it after a load.

    groups, what: as for save_digests(). Every rank gets the same findings. Waits for the other
    ranks, at most for the timeout of torch's process groups.
    """
    rank, world = _rank_and_world()
    held = _held(module, optimizer, groups, what)
    every = digests.of([one.tensor for one in held])
    read: dict[int, checkpoints.Checkpoint | str] = {}
    odd: list[tuple[str, str]] = []
    absent: Counter[str] = Counter()
    for one, digest in zip(held, every, strict=True):
        if one.owner not in read:
            read[one.owner] = _read(_file(folder, one.owner))
        known = _known(read[one.owner], one, world)
        if isinstance(known, str):
            absent[known] += 1
        elif (known.dtype, known.shape) != _form(one.tensor):
            was, now = _shown(known.dtype, known.shape), _shown(*_form(one.tensor))
            odd.append((one.key, f"saved as {was}, loaded as {now}"))
        elif known.digest != digest.hex():
            odd.append((one.key, "other bits"))
    mine: dict[str, Any] = {
        "host": socket.gethostname(), "compared": len(held) - absent.total(),
        "odd": odd[:_MOST_NAMED], "count": len(odd),
        "absent": list(absent)[:3], "missing": absent.total(),
    }  # fmt: skip
    told = [mine]
    if world > 1:
        import torch.distributed as dist

        text = json.dumps(mine).encode()
        told = [json.loads(one) for one in gathers.gather_any(dist.group.WORLD, text)]
    return _report(folder, rank, told)


def _report(folder: str | Path, rank: int, told: list[dict[str, Any]]) -> Report:
    compared = sum(one["compared"] for one in told)
    missing = sum(one["missing"] for one in told)
    why = f"{compared} tensors on {len(told)} ranks compared with the digests in {folder}"
    if missing:
        reasons = list(dict.fromkeys(text for one in told for text in one["absent"]))
        why += f"; {missing} not compared: {'; '.join(reasons[:3])}"
    if not compared:
        why = why.replace("0 tensors", "no tensor", 1)
    hosts = {i: one["host"] for i, one in enumerate(told)}
    by_odd: dict[str, list[int]] = {}
    for i, one in enumerate(told):
        if one["count"]:
            by_odd.setdefault(json.dumps([one["odd"], one["count"], one["compared"]]), []).append(i)
    found: list[Finding] = []
    different = []
    for text, ranks in by_odd.items():
        odd, count, own = json.loads(text)
        found.append(
            findings.different_from_saved(
                ranks, odd, count=count, compared=own, folder=str(folder), hosts=hosts
            )
        )
        different.append({"ranks": ranks, "count": count, "tensors": odd})
    data = {
        "folder": str(folder), "tensors": compared, "missing": missing, "different": different,
    }  # fmt: skip
    world = {"size": len(told), "rank": rank, "hosts": hosts}
    whole = compared > 0 and not missing
    return Report.of("replicas digests", world, data, found, complete=whole, why=why)


def _held(module: Any, optimizer: Any, groups: Groups, what: Collection[str]) -> list[_Held]:
    entries.check_choice(what)
    rank, world = _rank_and_world()
    found = []
    for name, _, tensor, placed in entries.every(
        module, optimizer, Places.of(module, groups), what
    ):
        if entries.unreadable(tensor):
            continue
        found.append(
            _Held(
                key=name + "".join(_place(tensor)),
                tensor=entries.local(tensor),
                owner=rank if world == 1 else _owner(tensor, placed, rank),
                is_everywhere=world == 1 or _is_everywhere(tensor, placed, world),
            )
        )
    return found


def _owner(tensor: Any, placed: Placed, rank: int) -> int:
    """Returns the one rank that saves the digest of all copies. In doubt each saves its own."""
    if hasattr(tensor, "placements"):
        mesh = tensor.device_mesh
        at = tuple(
            0 if placement.is_replicate() else own
            for placement, own in zip(tensor.placements, mesh.get_coordinate(), strict=True)
        )
        return int(mesh.mesh[at])
    if len(placed.groups) != 1:
        return rank
    return min(gathers.members(placed.groups[0]))


def _is_everywhere(tensor: Any, placed: Placed, world: int) -> bool:
    """Returns whether all ranks of the job have a copy."""
    if hasattr(tensor, "placements"):
        copies = all(one.is_replicate() for one in tensor.placements)
        return copies and int(tensor.device_mesh.size()) == world
    return len(placed.groups) == 1 and len(gathers.members(placed.groups[0])) == world


def _place(tensor: Any) -> Iterator[str]:
    """Yields which part of a DTensor this rank holds, for each dimension that shards it."""
    if not hasattr(tensor, "placements"):
        return
    mesh = tensor.device_mesh
    for dimension, placement in enumerate(tensor.placements):
        if not placement.is_replicate() and mesh.size(dimension) > 1:
            kind, along = type(placement).__name__, getattr(placement, "dim", "all")
            part = f"{mesh.get_local_rank(dimension)} of {mesh.size(dimension)}"
            yield f" [{kind} {along}: part {part}]"


def _known(saved: checkpoints.Checkpoint | str, one: _Held, world: int) -> checkpoints.Saved | str:
    """Returns the digest to compare with, or why there is none."""
    if isinstance(saved, str):
        return saved
    by = saved.values.get("world", "?")
    if by != str(world) and not (one.is_everywhere or "[" in one.key):
        return f"{by} ranks saved it, {world} loaded it"
    return saved.tensors.get(one.key, "no digest was saved")


def _read(file: Path) -> checkpoints.Checkpoint | str:
    if not file.exists():
        return f"there is no {file.name}: call save_digests() where you save"
    try:
        return checkpoints.read(str(file))
    except OddrankError as error:
        return str(error)


def _file(folder: str | Path, rank: int) -> Path:
    return Path(folder) / f"oddrank-digests-rank{rank}.json"


def _form(tensor: Any) -> tuple[str, tuple[int, ...]]:
    return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)


def _shown(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype} {list(shape)}"


def _rank_and_world() -> tuple[int, int]:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1
