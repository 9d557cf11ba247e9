"""Judges texts that people pasted, whole and in pieces: the right rank, or none, and never health.

The right answers stand beside the samples; the rows are what they say.
"""

import json
import random

import pytest

from oddrank.inputs import Notes
from oddrank.logs import findings, first_error, sources
from oddrank.triage import report

pytestmark = pytest.mark.needs("samples")
# Name -> verdict, cause, ranks that are named; None: nobody.
RIGHT = {
    "ds-both-timed-out": ("unknown", "unknown", None),
    "dump-signal-counters": ("odd", "not-entered-or-inside", [2]),
    "ecc-rank-in-watchdog-line": ("odd", "device", [1]),
    "fingerprint-two-ranks": ("unknown", "mismatch", None),
    "hccl-watchdog": ("unknown", "unknown", None),
    "horovod-missing-ranks": ("odd", "not-entered", [2, 5]),
    "interleaved-no-prefix": ("odd", "dead", None),
    "jax-heartbeat": ("odd", "unreachable", [21]),
    "local-rank-is-no-rank": ("odd", "dead", [24]),
    "local-rank-one-line": ("odd", "dead", None),
    "nccl-coll-opcount-zero": ("unknown", "not-entered-or-inside", None),
    "nccl-diag-ecc": ("odd", "device", [5]),
    "nccl-diag-env": ("odd", "settings", [3]),
    "nccl-diag-xid": ("odd", "device", None),
    "nccl-nranks-known": ("unknown", "unknown", None),
    "nccl-wqe-stall": ("unknown", "device", None),
    "nccl2-aborts": ("unknown", "not-entered-or-inside", None),
    "nccl2-timeouts-only": ("unknown", "not-entered-or-inside", None),
    "pcie-aer-fatal": ("odd", "device", None),
    "ray-actor-no-signal": ("unknown", "unknown", None),
    "ray-node-died": ("odd", "device", None),
    "sglang-watchdog": ("unknown", "unknown", None),
    "store-nobody-came": ("unknown", "unknown", None),
    "subgroup-one-speaker": ("unknown", "unknown", None),
    "vllm-two-workers-line-by-line": ("unknown", "unknown", None),
    "watchdog-cuda-error-alone": ("odd", "device", [5]),
    "wrap-gcp-json-lines": ("odd", "dead", [3]),
    "wrap-grep-Hn": ("odd", "dead", [3]),
    "wrap-grep-n": ("odd", "dead", [3]),
    "wrap-indented": ("odd", "dead", [3]),
    "wrap-journald-json": ("odd", "dead", [3]),
    "wrap-loki-jsonl": ("odd", "dead", [3]),
    "wrap-notebook": ("odd", "dead", [3]),
    "wrap-quote": ("odd", "dead", [3]),
    "wrapped-what": ("unknown", "unknown", None),
}


def named(made):
    """Returns the ranks that a report names with more than low confidence."""
    return sorted({r for f in made.findings if f.names_somebody() for r in f.who.ranks})


def path_of(samples, name):
    (path,) = (p for p in (samples / "small").glob(f"{name}*") if ".right" not in p.name
               and p.name.partition(".")[0] == name)  # fmt: skip
    return path


@pytest.mark.parametrize("name", RIGHT)
def test_a_pasted_text_is_judged_as_its_right_answer_says(samples, name):
    verdict, cause, ranks = RIGHT[name]
    path = str(path_of(samples, name))
    made = report.made(report.read([path]))
    assert (made.verdict, made.findings[0].cause, named(made)) == (verdict, cause, ranks or [])
    notes = Notes()
    with sources.opened([path], notes) as logs:
        told = findings.first_error(first_error.read(logs, notes), {}, "")
    assert told.verdict != "healthy"
    assert set(named(told)) <= set(ranks or [])


# Two texts that name one address of a GPU: that of rank 2.
SHARED = {frozenset({"pcie-aer-fatal", "nccl-coll-opcount-zero"}): {2}}
WRAPPERS = (
    lambda lines: [f"{number}:{line}" for number, line in enumerate(lines, 7)],
    lambda lines: [f"job.out:{number}:{line}" for number, line in enumerate(lines, 7)],
    lambda lines: [f"> {line}" for line in lines],
    lambda lines: [f"    {line}" for line in lines],
    lambda lines: [json.dumps({"message": line, "time": 1767604964}) for line in lines],
    lambda lines: lines,
)


def test_mixes_of_cut_texts_in_wrappers_name_no_wrong_rank_and_are_never_healthy(samples, tmp_path):
    dice, wrong = random.Random(20261128), []
    names = [name for name in RIGHT if path_of(samples, name).is_file()]
    for number in range(100):
        chosen = dice.sample(names, 2)
        lines = []
        for name in chosen:
            own = path_of(samples, name).read_text().splitlines()
            lines += own[dice.randrange(len(own)) :] if dice.random() < 0.5 else own
            lines = lines[: dice.randint(1, len(lines))] if dice.random() < 0.3 else lines
        for wrap in dice.choices(WRAPPERS, k=dice.randint(1, 2)):
            lines = wrap(lines)
        path = tmp_path / f"{number}.log"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        try:
            made = report.made(report.read([str(path)]))
        except report.OddrankError:  # nothing in it tells of anything
            continue
        allowed = {rank for name in chosen for rank in RIGHT[name][2] or []}
        allowed |= SHARED.get(frozenset(chosen), set())
        if made.verdict == "healthy" or not set(named(made)) <= allowed:
            wrong.append(f"{number} {chosen}: {made.verdict} {named(made)}: {made.summary}")
    assert not wrong, "\n".join(wrong)
