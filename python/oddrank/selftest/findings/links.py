"""What the pairs of oddrank.bench find, as the self-test says it."""

from dataclasses import replace

from oddrank.finding import Finding

_LONGER = "oddrank bench pairs --json FILE, launched in the same way: a longer look at every link"


def as_links(found: Finding) -> Finding:
    """Where nobody is named, bench pairs is what to type next; its own options are not ours."""
    return replace(found, stage="links", next=found.next if found.names_somebody() else (_LONGER,))
