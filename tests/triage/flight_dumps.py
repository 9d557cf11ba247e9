"""Makes small dumps of a flight recorder, as torch's versions write them."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

from oddrank.triage.evidence import flight_recorder
from oddrank.triage.facts import Fact, Progress
from triage.facts_of import facts_of

Dump = dict[str, Any]
NS = 1_700_000_000_000_000_000


def entry(
    op: str, seq: int, *, group: str = "0", desc: str = "default_pg", state: str = "completed",
    size: Any = (8, 4), dtype: str = "Float", backend: str = "nccl", p2p: int = 0, **more: Any,
) -> Dump:  # fmt: skip
    """Returns an entry as torch 2.13 writes it. p2p: its number if it is a send or recv."""
    message = op.startswith(("send", "recv")) or bool(p2p)
    tensors: list[list[int]] = [] if size is None else [list(size)]
    made = {
        "record_id": seq - 1, "pg_id": 0, "process_group": (group, desc), "thread_name": "python",
        "thread_id": "140", "collective_seq_id": seq, "p2p_seq_id": p2p, "op_id": seq + p2p,
        "profiling_name": f"{backend}:{op}", "time_created_ns": NS + seq * 1_000_000,
        "input_sizes": tensors, "input_dtypes": [dtype] * len(tensors), "output_sizes": tensors,
        "output_dtypes": [dtype] * len(tensors), "state": state, "time_discovered_started_ns": None,
        "time_discovered_completed_ns": NS if state == "completed" else None,
        "retired": state == "completed", "timeout_ms": 600_000, "is_p2p": message,
    }  # fmt: skip
    return {**made, **more}


def dump(*entries: Dump, version: str = "2.10", groups: dict[str, Any] | None = None) -> Dump:
    """Returns a dump. groups: name -> (description, ranks); by default one of four ranks."""
    groups = {"0": ("default_pg", [0, 1, 2, 3])} if groups is None else groups
    config = {
        name: {"name": name, "desc": desc, "ranks": str(ranks)}
        for name, (desc, ranks) in groups.items()
    }
    return {"version": version, "pg_config": config, "pg_status": {}, "entries": list(entries)}


def healthy(count: int = 3, **more: Any) -> Dump:
    """Returns a dump of a rank that has completed so many calls."""
    return dump(*(entry("all_reduce", seq) for seq in range(1, count + 1)), **more)


def status(enqueued: int, completed: int, started: int = -1) -> Dump:
    return {
        "last_enqueued_collective": enqueued,
        "last_started_collective": started,
        "last_completed_collective": completed,
    }


def write(path: Path, what: Any, protocol: int | None = 2) -> Path:
    """Writes a dump as a pickle of `protocol`, None: as JSON."""
    if protocol is None:
        path.write_text(json.dumps(what), encoding="utf-8")
    else:
        path.write_bytes(pickle.dumps(what, protocol))
    return path


def without(made: Dump, *keys: str) -> Dump:
    return {key: value for key, value in made.items() if key not in keys}


def facts(folder: Path, *dumps: Dump | None) -> list[Fact]:
    """Returns the facts of dumps of the ranks 0, 1, ...; None: the rank left none."""
    named = [(rank, made) for rank, made in enumerate(dumps) if made is not None]
    paths = [write(folder / f"_dump_{rank}", made) for rank, made in named]
    for path in paths:
        os.utime(path, ns=(NS + 3600 * 10**9,) * 2)
    return facts_of(flight_recorder.KIND, *paths)


def progress(found: list[Fact], group: str = "0") -> dict[int, Progress]:
    return {
        fact.process.rank: fact
        for fact in found
        if isinstance(fact, Progress) and fact.group.name == group and fact.process.rank is not None
    }
