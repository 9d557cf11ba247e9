"""Judges texts that people pasted, whole and in pieces: the right rank, or none, and never health.

The right answers stand beside the samples; the rows are what they say.
"""

import itertools
import json
import random
import re
from contextlib import nullcontext
from pathlib import Path
from zlib import crc32

import pytest

from oddrank.errors import OddrankError
from oddrank.inputs import Notes
from oddrank.logs import first_error, sources
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
    "ray-node-died": ("odd", "dead", None),
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
    # NCCL's diagnostics are no evidence for it.
    refused = pytest.raises(OddrankError) if name == "nccl-diag-env" else nullcontext()
    with sources.opened([path], notes) as logs, refused:
        told = first_error.report_of(first_error.read(logs, notes), {}, "")
        assert told.verdict != "healthy"
        assert set(named(told)) <= set(ranks or [])


# Two texts that name one address of a GPU: that of rank 2.
SHARED = {frozenset({"pcie-aer-fatal", "nccl-coll-opcount-zero"}): {2}}
# Texts of which a cut may take the line that tells why a rank is not to blame.
WHOLE = {
    "ranks of a part of the job are none of it", "an error that a rank got over",
    "an error that a rank in a pod got over", "and of one after which Python went on",
    "or after one that had timed out", "MPI's ranks are nodes if each runs a launcher",
}  # fmt: skip
# Texts of ranks that go on: beside the rest of another text they may be healthy.
SOUND = {
    "an error that a rank got over", "an error that a rank in a pod got over",
    "steps that go on are a sign",
}  # fmt: skip
MOST_WRONG = 0.015
WRAPPERS = (
    lambda lines: [f"{number}:{line}" for number, line in enumerate(lines, 7)],
    lambda lines: [f"job.out:{number}:{line}" for number, line in enumerate(lines, 7)],
    lambda lines: [f"> {line}" for line in lines],
    lambda lines: [f"    {line}" for line in lines],
    lambda lines: [json.dumps({"message": line, "time": 1767604964}) for line in lines],
    lambda lines: [
        json.dumps({"log": f"{line}\n", "stream": "stderr", "time": f"{stamp(number)}Z"})
        for number, line in enumerate(lines)
    ],
    lambda lines: [f"{number:6d}\t{line}" for number, line in enumerate(lines, 1)],
    lambda lines: [f"Jan 05 09:10:11 gpu07 train[4242]: {line}" for line in lines],
    lambda lines: [f"{stamp(number)}000Z stderr F {line}" for number, line in enumerate(lines)],
    lambda lines: [f"{stamp(number)} {line}" for number, line in enumerate(lines)],
    lambda lines: lines,
)


def stamp(number):
    return f"2026-01-05T09:{number // 60 % 60:02d}:{number % 60:02d}.{number:06d}"


def test_mixes_of_cut_texts_in_wrappers_name_no_wrong_rank_and_are_never_healthy(samples, tmp_path):
    """Of samples never; of all that people paste, hardly: a cut may leave words of victims."""
    own = {name: (path_of(samples, name), set(right[2] or [])) for name, right in RIGHT.items()}
    texts = {name: (path.read_text().splitlines(), ranks)
             for name, (path, ranks) in own.items() if path.is_file()}  # fmt: skip
    assert mixed(texts, 100, tmp_path) == []
    rows = (Path(__file__).parent / "data/judged/pasted.txt").read_text()
    for part in re.split("(?m)^=== ", rows)[1:]:
        head, _, log = part.partition("\n")
        title, right = head.split(" => ")
        named_ranks = (each.split()[1].split(",") for each in right.split("; ") if " " in each)
        ranks = {int(rank) for several in named_ranks for rank in several if rank.isdigit()}
        texts[title] = log.splitlines(), ranks
    count = 2200  # fewer tell little of so rare a thing
    wrong = mixed(texts, count, tmp_path)
    assert len(wrong) <= count * MOST_WRONG, "\n".join(wrong)


def mixed(texts, count, folder):
    """Judges mixes of two texts each; returns what is said of a wrong rank, or of health."""
    wrong = []
    for number, first in itertools.islice(enumerate(itertools.cycle(sorted(texts))), count):
        # A new text changes few of the others' mixes.
        dice = random.Random(f"{first} {number // len(texts)}")
        among = sorted(texts.keys() - {first}, key=lambda name: crc32(f"{first} {name}".encode()))
        chosen, lines, is_cut = [first, among[number // len(texts)]], [], False
        for name in chosen:
            own = whole = texts[name][0]
            if name not in WHOLE:
                own = own[dice.randrange(len(own)) :] if dice.random() < 0.5 else own
                own = own[: dice.randint(1, len(own))] if dice.random() < 0.3 else own
            is_cut |= own != whole
            lines += own
        for wrap in dice.choices(WRAPPERS, k=dice.randint(1, 2)):
            lines = wrap(lines)
        path = folder / f"{len(texts)}-{number}.log"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        try:
            made = report.made(report.read([str(path)]))
        except report.OddrankError:  # nothing in it tells of anything
            continue
        allowed = {rank for name in chosen for rank in texts[name][1]}
        allowed |= SHARED.get(frozenset(chosen), set())
        goes_on = is_cut and not SOUND.isdisjoint(chosen)
        if (made.verdict == "healthy" and not goes_on) or not set(named(made)) <= allowed:
            wrong.append(f"{number} {chosen}: {made.verdict} {named(made)}: {made.summary}")
    return wrong
