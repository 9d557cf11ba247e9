"""What is drawn of a training: its panels, lines and marks, as text."""

import pytest

from metrics.training_log import Fault, Training, judged, line, stamp
from oddrank.metrics import picture, report

pytestmark = pytest.mark.needs("matplotlib")


def described(figure):
    """Returns the parts of a figure, as far as they do not depend on fonts."""
    lines = [figure.get_suptitle(), f"{figure.get_size_inches()[1]:.2f} inches tall"]
    lines.append(figure.get_supxlabel())
    for axis in figure.axes:
        low, high = axis.get_ylim()
        limits = f"{low:.4g} to {high:.4g}" * (axis.get_yscale() == "linear")
        lines.append(f"{axis.get_ylabel()!r} {axis.get_yscale()} {limits} {axis.get_xlabel()!r}")
        for one in axis.lines:
            x, y = one.get_xdata(), one.get_ydata()
            ends = f"{x[0]:g}:{y[0]:.4g} to {x[-1]:g}:{y[-1]:.4g}" if len(x) else ""
            style = (one.get_color(), one.get_linewidth(), one.get_alpha())
            lines.append(f"  line of {len(x)} points {ends} {style}")
        lines += [f"  span {p.get_x():g} and {p.get_width():.4g}" for p in axis.patches]
        lines += [f"  mark {text.get_text()} at {text.xy}" for text in axis.texts]
        if not axis.get_ylabel():
            ticks = zip(axis.get_xticks(), axis.get_xticklabels(), strict=False)
            lines.append(f"  {[f'{at:g} {label.get_text()}' for at, label in ticks]}")
    return "\n".join(lines)


def test_panels_lines_and_marks_are_those_of_the_log(golden):
    spiky = Training(3, Fault("spike", 2.0), rows=400)
    spiky.form = "megatron"
    first = [line(n, 3.0 - n / 200, grad_norm=2.0 ** (n / 30), time=stamp(10 * n))
             for n in range(1, 171)]  # fmt: skip
    again = [line(n, 2.2, grad_norm=1.0, time=stamp(3600 + 10 * n)) for n in range(101, 300)]
    nans = [line(n, "nan" if 200 < n < 210 or n > 280 else 2.5) for n in range(1, 300)]
    mixed = [line(n, 10.0 if n == 9 else 2.5, grad_norm=0.0) for n in range(1, 60)]
    said = []
    for name, log in {
        "a spike": spiky.text(), "a restart": first + again, "NaN": nans, "one outlier": mixed,
        "nothing": ["no numbers"],
    }.items():  # fmt: skip
        job = judged(log)
        made = report.made(job, ["/a/train.log", "/a/more.log"][: 1 + (name == "NaN")])
        figure = picture.draw(job, made)
        figure.canvas.draw()
        said.append(f"{name}\n{described(figure)}")
    golden("\n\n".join(said))
