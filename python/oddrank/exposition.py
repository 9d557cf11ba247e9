"""Lines of Prometheus's text format, as its textfile collector reads them. Pure."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

from oddrank.report import EXIT_CODES, Report

ADVICE = "give --prometheus a file named *.prom, in the collector's folder"

Sample = tuple[Mapping[str, object], float]  # the labels of a sample and its value
Family = tuple[str, str, Iterable[Sample]]  # name, help text, samples


def text(prefix: str, families: Iterable[Family]) -> str:
    """Returns the lines of all families."""
    lines = [family(prefix + name, about, samples) for name, about, samples in families]
    return "".join(itertools.chain.from_iterable(lines))


def of_report(report: Report, host_of: Callable[[int], str]) -> Iterator[Family]:
    """Yields a report's families: its verdict, its findings, the ranks that they name."""
    verdicts = [({"verdict": name}, float(name == report.verdict)) for name in EXIT_CODES]
    yield "verdict", "1 for the verdict, else 0.", verdicts
    counted = Counter((finding.condition, finding.cause) for finding in report.findings)
    counts = [({"condition": a, "cause": b}, float(count)) for (a, b), count in counted.items()]
    yield "findings", "Findings by what they say.", counts
    # A rank's surest finding for a cause comes first.
    named: dict[tuple[int, str, str], str] = {}
    for one in report.findings:
        for rank in one.who.ranks:
            named.setdefault((rank, one.condition, one.cause), one.confidence.level)
    yield "named", "1 for a rank that a finding names.", [
        ({"rank": rank, "host": host_of(rank), "condition": condition, "cause": cause,
          "confidence": level}, 1.0)
        for (rank, condition, cause), level in named.items()
    ]  # fmt: skip


def family(name: str, help_text: str, samples: Iterable[Sample]) -> Iterator[str]:
    """Yields the lines of a gauge; none without samples."""
    lines = [f"{name}{_labels(labels)} {value!r}\n" for labels, value in samples]
    if lines:
        yield f"# HELP {name} {help_text}\n# TYPE {name} gauge\n"
        yield from lines


def _labels(labels: Mapping[str, object]) -> str:
    pairs = ",".join([f'{name}="{_escaped(str(value))}"' for name, value in labels.items()])
    return f"{{{pairs}}}" if pairs else ""


@lru_cache(maxsize=1 << 15)
def _escaped(value: str) -> str:
    """Escapes a label by the exposition format. Writing escapes what UTF-8 lacks."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
