"""Lines of every format become rows of numbers: data/formats.txt has some of each."""

import csv
import io
import re
from pathlib import Path

from oddrank import _native

FORMATS = Path(__file__).with_name("data") / "formats.txt"


def rows(text):
    """Returns the rows of a log: column -> what is known; and whether the last loss is NaN."""
    job = _native.core().Metrics([1_790_000_000_000_000_000], csv=True)
    job.feed(0, text.encode())
    job.end(0)
    job.flush()
    made = csv.DictReader(io.StringIO(job.csv().decode()))
    known = [{name: value for name, value in row.items() if value} for row in made]
    return known, [name for name in ("loss_is_nan", "grad_is_nan") if job.figures()[name]]


def test_lines_of_each_format_become_rows(golden):
    said = []
    for part in re.split(r"(?m)^== ", FORMATS.read_text())[1:]:
        name, _, text = part.partition("\n")
        found, nans = rows(text.encode().decode("unicode_escape"))
        assert bool(found) != name.startswith("no numbers"), name
        lines = [" ".join(f"{column}={value}" for column, value in row.items()) for row in found]
        said.append("\n  ".join([name, *lines, *nans]))
    golden("\n".join(said))
