"""Lines of Prometheus's text format, as its textfile collector reads them. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

ADVICE = "give --prometheus a file named *.prom, in the collector's folder"

# The labels of a sample and its value.
Sample = tuple[Mapping[str, object], float]


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
