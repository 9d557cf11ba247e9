"""`oddrank bench plot`: curves, a picture, or one line why there is none."""

import sys
from itertools import pairwise

import pytest

from bench.told import refusal
from oddrank.bench.plot import MOST_CURVES, _time, draw_curves, picture_of_files, size_ticks
from processes import typed
from saved_runs import report, row, saved, write


def picture(tmp_path, *reports, only=()):
    made = [saved(tmp_path, each, f"run{i}.json") for i, each in enumerate(reports)]
    return picture_of_files(made, only)


def test_a_label_says_only_what_differs_and_the_rest_is_common(tmp_path):
    one = picture(tmp_path, report(row(1 << 20), row(8), row(1 << 10)))
    assert [drawn.bytes for drawn in one.panels["all_reduce"][""]] == [8, 1 << 10, 1 << 20]
    kinds = [row(), row(dtype="bfloat16"), row(inplace=False)]
    for made, labels, common in (
        (one, [""], "c10d:gloo, float32, sum, in place, 4 ranks"),
        (picture(tmp_path, report(row()), report(row())), ["run0", "run1"], one.common),
        (picture(tmp_path, report(*kinds)),
         ["float32, in place", "bfloat16, in place", "float32, out of place"],
         "c10d:gloo, sum, 4 ranks"),
    ):  # fmt: skip
        assert [list(panel) for panel in made.panels.values()] == [labels]
        assert made.common == common


def test_each_collective_has_its_panel_and_one_rank_has_algbw(tmp_path):
    both = report(row(), row(collective="all_gather", op="none", inplace=False))
    untimed = report(row(), row(16, median_us=None), row(0, collective="barrier"))
    for content, collectives, bandwidth in (
        (both, ["all_reduce", "all_gather"], "busbw"),
        (report(row(n=1)), ["all_reduce"], "algbw"),
        (untimed, ["all_reduce"], "busbw"),
    ):
        made = picture(tmp_path, content)
        assert {name: list(panel) for name, panel in made.panels.items()} == {
            name: [""] for name in collectives
        }
        assert made.bandwidth == bandwidth


def test_only_takes_rows_that_have_all_its_words(tmp_path):
    rows = [row(dtype=d, inplace=i) for d in ("float32", "int8") for i in (True, False)]
    for only, number in {
        (): 4, ("float32",): 2, ("float32", "out"): 1, ("c10d:gloo",): 4, ("in",): 2,
    }.items():  # fmt: skip
        (panel,) = picture(tmp_path, report(*rows), only=only).panels.values()
        assert len(panel) == number, only


def test_nothing_to_draw_and_too_much_to_tell_apart_are_refused(tmp_path, golden):
    dtypes = report(*[row(dtype=f"d{i}") for i in range(MOST_CURVES + 1)])
    collectives = report(*[row(collective=f"c{i}") for i in range(13)])
    said = [refusal(picture, tmp_path, report(row()), only=("int8",))]
    golden("\n".join([*said, *(refusal(picture, tmp_path, one) for one in (dtypes, collectives))]))


needs_matplotlib = pytest.mark.needs("matplotlib")


def draw(*arguments):
    """Runs the command in this process: (exit code, stderr)."""
    done = typed("bench", "plot", *arguments)
    return done.returncode, done.stderr


@needs_matplotlib
def test_runs_become_a_picture_of_the_kind_that_the_name_says(tmp_path):
    sizes = range(3, 24)
    for i in (1, 2):
        made = report(*[row(1 << power, us=10 * i) for power in sizes])
        write(tmp_path / f"{i}.json", made)
    names = ["1.json", "2.json"]
    for kind, magic in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        drawn = tmp_path / f"out.{kind}"
        assert draw(tmp_path / "1.json", tmp_path / "2.json", "-o", drawn) == (0, "")
        assert drawn.read_bytes().startswith(magic)
        assert sorted(path.name for path in tmp_path.iterdir()) == [*names, drawn.name]
        drawn.unlink()


EXTREME = {"p99_us": 1e15, "algbw_GBps": 1e15, "busbw_GBps": 1e15}
REPORTS = {
    "one": report(row()),
    "no p99": report(row(8, p99_us=None, busbw_GBps=None)),
    "one rank": report(row(n=1)),
    "wrong": report(row(), row(1 << 21, check="wrong")),
    "extreme": report(row(1 << 62, us=1e-9, count=0, **EXTREME), row(1, busbw_GBps=1e-9)),
    "hostile": report(row(backend="$\\frac{1}{0$", dtype="_hidden"),
                      row(dtype="\x1b[2J\n\u202e", op="\u6f22")),
    "collectives": report(*[row(collective=f"collective {i}") for i in range(11)]),
    "curves": report(*[row(1 << p, dtype=f"dtype{i}", inplace=bool(i % 2))
                       for p in (9, 20) for i in range(5)]),
}  # fmt: skip


@needs_matplotlib
@pytest.mark.parametrize("name", REPORTS)
def test_whatever_a_report_holds_a_picture_is_drawn_without_a_complaint(name, tmp_path):
    file = write(tmp_path / "_$a_$.json", REPORTS[name])
    assert draw(file, file, "-o", tmp_path / "out.png") == (0, "")


@needs_matplotlib
def test_the_legend_of_a_comparison_hides_no_data_and_the_picture_fits_a_screen(tmp_path):
    for collectives, runs in ((1, 2), (10, 5)):
        names = [f"collective{i}" for i in range(collectives)]
        files = []
        for i in range(1, runs + 1):
            rows = [row(1 << p, us=9.0 * p * i, collective=n) for n in names for p in (3, 9, 20)]
            files.append(saved(tmp_path, report(*rows), f"run{i}.json"))
        figure = draw_curves(picture_of_files(files))
        figure.canvas.draw()
        (legend,) = figure.legends
        box = legend.get_window_extent()
        assert not any(box.overlaps(axes.get_window_extent()) for axes in figure.axes)
        assert len(legend.get_texts()) == runs
        width, height = figure.get_size_inches() * figure.dpi
        assert width <= 2600
        assert height <= 2200


@needs_matplotlib
def test_the_curve_of_a_run_has_one_colour_in_every_panel(tmp_path):
    """all_reduce sums in place, all_gather does neither: panels differ in more than runs do."""
    gather = {"collective": "all_gather", "op": "none", "inplace": False}
    rows = [row(8), row(64), row(8, **gather), row(64, **gather)]
    figure = draw_curves(picture(tmp_path, report(*rows), report(*rows)))
    lines = [line for axes in figure.axes for line in axes.get_lines()]
    assert len({line.get_color() for line in lines}) == 2
    (legend,) = figure.legends
    assert [text.get_text().strip() for text in legend.get_texts()] == ["run0", "run1"]


@needs_matplotlib
def test_as_many_curves_as_there_may_be_all_look_different(tmp_path):
    rows = [row(size, dtype=f"d{i}") for i in range(MOST_CURVES) for size in (8, 64)]
    figure = draw_curves(picture_of_files([saved(tmp_path, report(*rows))]))
    lines = figure.axes[0].lines
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == MOST_CURVES


@needs_matplotlib
def test_what_makes_no_picture_or_cannot_be_written_is_refused_in_one_line(tmp_path, golden):
    (tmp_path / "folder.png").mkdir()
    run, said = report(row()), []
    for contents, name in (
        *(([run], name) for name in ("absent/out.png", "out.gif", "out", "folder.png")),
        ([run], "a" * 300 + ".png"),
        ([run, report()], "out.png"),
        ([run, "no JSON"], "out.png"),
    ):
        files = [write(tmp_path / f"{i}.json", each) for i, each in enumerate(contents)]
        code, err = draw(*files, "-o", tmp_path / name)
        assert (code, err.count("\n")) == (2, 1)
        said.append(err.replace(str(tmp_path), "FOLDER"))
        assert {path.name for path in tmp_path.iterdir()} <= {"folder.png", "0.json", "1.json"}
    golden("".join(said))


def test_without_matplotlib_one_line_says_what_to_type(tmp_path, monkeypatch, golden):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    file = write(tmp_path / "run.json", report(row()))
    code, err = draw(file, "-o", tmp_path / "out.png")
    assert code == 2
    golden(err)


def test_sizes_below_the_axis_are_few_even_powers_of_two_and_times_have_the_unit_that_fits():
    for low, high in ((8, 8), (8, 64), (4, 1 << 40), (1, 1 << 62), (5, 5), (12, 100)):
        ticks = size_ticks(low, high, 9)
        assert len(ticks) <= 9
        assert all(tick & (tick - 1) == 0 for tick in ticks)
        assert ticks[-1] >= high
        assert len({b // a for a, b in pairwise(ticks)}) <= 1
    assert [_time(us) for us in (0.5, 1, 2000, 5e6)] == ["500 ns", "1 us", "2 ms", "5 s"]
