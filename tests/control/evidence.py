"""Evidence about ranks, read from lines such as `2 killed; 0-1 raised waiting; in join; through 0`.

Parts that begin with ranks have words for those, others a fact of the round and its value.
"""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from oddrank.control.stages import PUBLISHING, OddClaim, RankState, StageRound

_LAUNCHER = {"launcher": "torchrun", "launcher_pid": 5, "local_world": 2}
_TOLD = {"sigterm": True, **_LAUNCHER}
_DEATHS: dict[str, dict[str, Any]] = {
    "killed": {"signal": 9}, "segfaulted": {"signal": 11}, "aborted": {"signal": 6},
    "sigtermed": {"signal": 15}, "exited": {"exit_code": 0}, "ended": {},
}  # fmt: skip
_NEVER = {"contact": "never", "host": "", "node": -1, "local_rank": -1, "pid": 0, "stage": ""}
# Other words are a field and its value: progress=7, failed='E: no'.
WORDS: dict[str, dict[str, Any]] = {
    "works": {},
    **{word: {"state": "dead", **how} for word, how in _DEATHS.items()},
    "raised": {"failed": "RuntimeError: no"},
    "never": _NEVER,
    "unreached": {"unreached": "node1: no answer"},
    "publishing": {"step": PUBLISHING},
    "orphaned": {"orphaned": True, **_LAUNCHER},
    "told-by-launcher": {"sigterm_by": 5, **_TOLD},
    "told-by-another": {"sigterm_by": 77, **_TOLD},
    **{word: {word: True} for word in ("waiting", "published", "sigterm", "resolver_slow")},
    **{word: {"contact": word} for word in ("silent", "closed", "gave-up")},
    **{word: {"state": word} for word in ("zombie", "stopped", "uninterruptible")},
}


def numbers(text: str) -> tuple[int, ...]:
    """Returns the numbers of a text such as 0-2,5."""
    spans = [part.split("-") for part in text.split(",") if part]
    return tuple(number for one in spans for number in range(int(one[0]), int(one[-1]) + 1))


def _facts(word: str) -> dict[str, Any]:
    field, equals, value = word.partition("=")
    return {field: int(value) if value.isdigit() else value} if equals else WORDS[word]


def read(text: str) -> tuple[dict[str, str], dict[int, dict[str, Any]]]:
    """Returns the facts of the round, and the fields of each rank that the line lists."""
    said: dict[str, str] = {}
    ranks: dict[int, dict[str, Any]] = {}
    for part in text.split(";") if text else ():
        first, *words = shlex.split(part)
        if first[0].isdigit():
            facts = {k: v for word in words for k, v in _facts(word).items()}
            ranks |= dict.fromkeys(numbers(first), facts)
        else:
            said[first] = " ".join(words)
    return said, ranks


def states(kind: Any, world: int, **usual: Any) -> dict[int, Any]:
    """Returns ranks of two nodes with two ranks each, all healthy."""
    return {r: kind(r, f"node{r // 2}", r // 2, r % 2, 7, "ok", **usual) for r in range(world)}


def round_of(line: str) -> StageRound:
    """Returns the evidence that a line of a table tells."""
    said, listed = read(line)
    stage, through = said.get("in", "all_reduce"), numbers(said.get("through", ""))
    told = states(RankState, int(said.get("world", 4)), stage=stage, progress=10)
    for rank, state in told.items():
        told[rank] = replace(state, **listed.get(rank, {"waiting": rank not in through}))
    (reason,) = {"complete", "deadline", "terminated"} & said.keys() or {"fault"}
    others = numbers(said.get("others", ""))
    results, odd = dict.fromkeys(through, b""), tuple(OddClaim(r, True, "") for r in others)
    return StageRound(stage, results, told, reason, said.get("limits", ""), odd)


def rows(name: str) -> Iterator[str]:
    """Yields the lines of a table in the folder data/, without comments."""
    for line in (Path(__file__).with_name("data") / name).read_text().splitlines():
        if line and line[0] != "#":
            yield line
