"""Shared by all pictures: matplotlib, the file, and texts that may come from strangers."""

import io
import warnings
from pathlib import Path
from typing import Any

from oddrank import render
from oddrank.errors import OddrankError
from oddrank.report import check_writable, whole_file

FORMATS = (".png", ".svg", ".pdf")

# Okabe and Ito: distinct for the colour-blind too. Black is kept for marks.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#8C564B")


def _advice(option: str) -> str:
    return f"give {option} a file in a folder you can write"


def check_target(path: str, option: str) -> None:
    """Raises OddrankError if no picture can be written to `path`. Call it before drawing.

    option: that names the file, for the advice: -o.
    """
    if Path(path).suffix.lower() not in FORMATS:
        endings = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        raise OddrankError(f"{path} is no picture: its name must end in {endings}")
    check_writable(path, _advice(option))


def matplotlib() -> Any:
    """Imports matplotlib and the modules used here; OddrankError if it is not installed."""
    try:
        import matplotlib
        import matplotlib.backends.backend_agg
        import matplotlib.figure
        import matplotlib.ticker
    except ImportError as error:
        raise OddrankError(
            f"pictures need matplotlib, which cannot be imported ({error}): pip install matplotlib"
        ) from None
    return matplotlib


def write(figure: Any, path: str, option: str) -> None:
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
    with whole_file(path, _advice(option)) as file:
        file.write(buffer.getvalue())


def plain(text: str) -> str:
    """Escapes untrusted text: no formulas, no control characters."""
    return render.safe(text).replace("$", r"\$")
