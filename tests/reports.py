"""Findings and reports for tests."""

import json
from typing import Any

from oddrank.finding import Confidence, Evidence, Finding, Who
from oddrank.report import SCHEMA_FILE, Report

try:
    import jsonschema
except ModuleNotFoundError:  # GPU machines offline
    _check = None
else:
    _check = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text())).validate

# The smallest data that a self-test reports.
DATA = {
    "device": None, "stages": [], "skipped": {},
    "environment": {"common": {}, "differing": {}, "not_readable": {}}, "nodes": [], "ranks": [],
    "compared": [],
}  # fmt: skip


def finding(rank=2, condition="stuck", cause="host-stopped", level="high", **changes):
    who = changes.pop("who", Who("rank", (rank,), "node1", f"GPU {rank}"))
    return Finding(
        **{
            "condition": condition, "who": who, "cause": cause,
            "what": f"{who} is {condition}: stopped in stage all_reduce", "stage": "all_reduce",
            "evidence": (Evidence("state T for", "/proc/7/stat", 3.1, "s", 0.2, 0.02),),
            "confidence": Confidence(level, "it waits for nobody"), "next": ("kill -CONT 7",),
            **changes,
        }
    )  # fmt: skip


def report(*findings, size=4, complete=True, **changes):
    return Report.of("selftest", {"size": size}, DATA, findings, complete=complete, **changes)


def valid(text: str) -> Any:
    """Returns the report in this JSON, once the schema has accepted it."""
    made = json.loads(text)
    if _check is not None:
        _check(made)
    return made
