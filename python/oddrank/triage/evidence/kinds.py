"""All kinds of evidence, a row each. A new kind is one file and one row."""

from oddrank.triage.evidence import Kind

KINDS: tuple[Kind, ...] = ()
