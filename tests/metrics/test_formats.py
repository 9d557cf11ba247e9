"""Lines of every format become rows of numbers: data/formats.txt has some of each."""

import csv
import io
import re
from pathlib import Path

import pytest

from oddrank import _native
from oddrank.errors import OddrankError

FORMATS = Path(__file__).with_name("data") / "formats.txt"


def rows(text, pattern=""):
    """Returns the rows of a log: column -> what is known; and whether the last loss is NaN."""
    job = _native.core().Metrics([1_790_000_000_000_000_000], csv=True, pattern=pattern)
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
        said.append(f"{name}: " + "\n  ".join([*lines, *nans]))
    golden("\n".join(said))


@pytest.mark.needs("samples")
def test_each_line_of_the_samples_is_a_row_with_its_loss(samples):
    found, _ = rows((samples / "small" / "metrics-formats.txt").read_text())
    losses = {row["iteration"]: row["loss"] for row in found}
    assert losses == {
        "12": "-0.0123", "10": "1.9043", "320": "2.59", "25": "1.593", "1560": "0.5275",
    }  # fmt: skip


def test_only_bytes_are_fed():
    """A view may have strides, and what it shows would not be what is read."""
    job = _native.core().Metrics([0])
    for view in (memoryview(b"loss 1\n")[::-1], memoryview(b"loss 1\n"), bytearray(b"loss 1\n")):
        with pytest.raises(TypeError):
            job.feed(0, view)


def test_other_lines_are_described_by_a_pattern():
    text = "it#7 of 99, L= 2.5 after 0.25 s\nstep 9 loss 1.95\nit#8 of 99, L=nan after 0.25 s\n"
    found, nans = rows(text, "it#{iteration} of {total}, L={loss} after {step_seconds}")
    assert [(row["iteration"], row["total"], row.get("loss")) for row in found] == [
        ("7", "99", "2.5"), ("8", "99", None),
    ]  # fmt: skip
    assert nans == ["loss_is_nan"]
    unknown = "unknown names: step, seconds"
    for wrong, said in (
        ("L=", "no names"),
        ("{loss", "no names"),
        ("{step}{loss}{seconds}", unknown),
    ):
        with pytest.raises(OddrankError, match=f"{said}; the known ones.*: iteration total epoch"):
            rows("", wrong)
