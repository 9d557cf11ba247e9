"""Draws saved reports: what all pictures share. The names of runs, matplotlib, and the file."""

import io
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oddrank import render
from oddrank.bench.saved import Saved
from oddrank.errors import OddrankError
from oddrank.report import check_writable, whole_file

FORMATS = (".png", ".svg", ".pdf")
_ADVICE = "give -o a file in a folder you can write"


def check_target(path: str) -> None:
    """Raises OddrankError if no picture can be written to `path`. Call it before drawing."""
    if Path(path).suffix.lower() not in FORMATS:
        endings = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        raise OddrankError(f"{path} is no picture: its name must end in {endings}")
    check_writable(path, _ADVICE)


def check_kinds(runs: Sequence[Saved]) -> bool:
    """Returns whether `runs` is one run of pairs. OddrankError if it mixes kinds."""
    matrices = [run for run in runs if run.matrices]
    empty = [run for run in runs if not run.matrices and not run.rows]
    if empty:
        raise OddrankError(f"nothing to draw: {empty[0].path} has neither rows nor pairs")
    if matrices and len(runs) > 1:
        raise OddrankError(f"{matrices[0].path} is of bench pairs: draw it alone")
    return bool(matrices)


def names(runs: Sequence[Saved]) -> list[str]:
    """Returns a short, distinct name of each run for legends: its file's name without .json.

    Files with the same name get as much of their paths as makes them distinct; a path that is given
    twice gets a number.
    """
    found = [_tail(run.path, 1) for run in runs]
    for name, count in Counter(found).items():
        if count > 1:
            alike = [i for i, other in enumerate(found) if other == name]
            for i, label in zip(alike, _distinct_names([runs[i].path for i in alike]), strict=True):
                found[i] = label
    return found


def _distinct_names(paths: Sequence[str]) -> list[str]:
    depths = range(1, 1 + max(len(Path(path).parts) for path in paths))
    tails = [[_tail(path, depth) for path in paths] for depth in depths]
    apart = len(set(tails[-1]))
    shortest = next(tail for tail in tails if len(set(tail)) == apart)
    nth: Counter[str] = Counter()
    labels = []
    for tail in shortest:
        nth[tail] += 1
        labels.append(tail if shortest.count(tail) == 1 else f"{tail} #{nth[tail]}")
    return labels


def _tail(path: str, depth: int) -> str:
    return str(Path(*Path(path).parts[-depth:])).removesuffix(".json") or path


def matplotlib() -> Any:
    """Imports matplotlib and the modules used here; OddrankError if it is not installed."""
    try:
        import matplotlib
        import matplotlib.backends.backend_agg
        import matplotlib.figure
        import matplotlib.patches
        import matplotlib.ticker
    except ImportError as error:
        raise OddrankError(
            f"pictures need matplotlib, which cannot be imported ({error}):"
            " pip install 'oddrank[plot]'"
        ) from None
    return matplotlib


def write(figure: Any, path: str) -> None:
    """Writes the figure to `path`, whole or not at all."""
    kind = Path(path).suffix.lower()[1:]
    buffer = io.BytesIO()
    # No date and no author: the same runs give the same bytes.
    metadata = {
        "png": {"Software": "oddrank"},
        "svg": {"Date": None},
        "pdf": {"CreationDate": None},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a character of a name that the font lacks
        figure.savefig(buffer, format=kind, dpi=figure.dpi, metadata=metadata[kind])
    with whole_file(path, _ADVICE) as file:
        file.write(buffer.getvalue())


def plain(text: str) -> str:
    """Escapes untrusted text: no formulas, no control characters."""
    return render.safe(text).replace("$", r"\$")
