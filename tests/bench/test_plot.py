"""`oddrank bench plot`: a picture, or one line that says why there is none."""

import sys
from itertools import pairwise

import pytest

from oddrank import cli
from oddrank.bench.plot.curves import MOST_CURVES, _size_ticks, _time, collect, draw_curves
from oddrank.bench.plot.heat_map import _panels, _points
from saved_runs import pairs, report, row, saved, slow, write

NAMES = ["n0", "n1", "n2", "n3"]
MATRIX = [[None if i == j else 10.0 + i for j in range(4)] for i in range(4)]
INSIDE = {"node": "n1", "names": ["rank 2", "rank 3"], "GBps": [[None, 50.0], [20.0, None]]}
needs_matplotlib = pytest.mark.needs("matplotlib")


@pytest.fixture
def draw(tmp_path, capsys):
    """Runs the command in this process: (exit code, stderr)."""

    def start(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main(["bench", "plot", *map(str, arguments)])
        return ended.value.code, capsys.readouterr().err

    return start


@needs_matplotlib
def test_runs_become_a_picture_of_the_kind_that_the_name_says(draw, tmp_path):
    sizes = range(3, 24)
    for i in (1, 2):
        made = report(*[row(1 << power, us=10 * i) for power in sizes])
        write(tmp_path / f"{i}.json", made)
    names = ["1.json", "2.json"]
    for kind, magic in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        picture = tmp_path / f"out.{kind}"
        assert draw(tmp_path / "1.json", tmp_path / "2.json", "-o", picture) == (0, "")
        assert picture.read_bytes().startswith(magic)
        assert sorted(path.name for path in tmp_path.iterdir()) == [*names, picture.name]
        picture.unlink()


EXTREME = {"p99_us": 1e15, "algbw_GBps": 1e15, "busbw_GBps": 1e15}
NODES = [f"node{i}" for i in range(100)]
EVERY = {
    "latency_us": MATRIX, "ranks": [[0, 1], [2, 3], [4, 5], [6, 7]], "inside": [INSIDE] * 6,
    "world": {"size": 8},
}  # fmt: skip
HUGE = {"world": {"size": 16_384}, "links": [[i, i ^ 1, 1.0, 1.0] for i in range(16_384)]}
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
    "a named sender": pairs(NAMES, MATRIX, [slow("slow-sender", [1])]),
    "holes": pairs(["a", "b"], [[None, 1e-9], [None, None]]),
    "hostile names": pairs(["a" * 200, "$b_{$"], [[None, 5], [5, None]]),
    "large": pairs(NODES, [[1.0] * 100] * 100),
    "links": pairs(NODES, None, links=[[0, i, i, None] for i in range(100)]),
    "zero": pairs(NAMES, [[0.0] * 4] * 4),
    "all": pairs(NAMES, MATRIX, [slow("delayed-node", [2, 3], host="n1"),
                                 slow("slow-sender", [3], kind="rank")], **EVERY),
    "an unknown delay": pairs(NAMES, MATRIX, [slow("delayed-node", [1])],
                              latency_us=[[None] * 4] * 4),
    "huge": pairs([f"node{i}" for i in range(16_384)], None, [slow("slow-sender", [5])], **HUGE),
}  # fmt: skip


@needs_matplotlib
@pytest.mark.parametrize("name", REPORTS)
def test_whatever_a_report_holds_a_picture_is_drawn_without_a_complaint(name, draw, tmp_path):
    file = write(tmp_path / "_$a_$.json", REPORTS[name])
    files = [file] if "pairs" in REPORTS[name]["data"] else [file, file]
    assert draw(*files, "-o", tmp_path / "out.png") == (0, "")


@needs_matplotlib
def test_the_legend_of_a_comparison_hides_no_data_and_the_picture_fits_a_screen(tmp_path):
    for collectives, runs in ((1, 2), (10, 5)):
        names = [f"collective{i}" for i in range(collectives)]
        files = []
        for i in range(1, runs + 1):
            rows = [row(1 << p, us=9.0 * p * i, collective=n) for n in names for p in (3, 9, 20)]
            files.append(saved(tmp_path, report(*rows), f"run{i}.json"))
        figure = draw_curves(collect(files))
        figure.canvas.draw()
        (legend,) = figure.legends
        box = legend.get_window_extent()
        assert not any(box.overlaps(axes.get_window_extent()) for axes in figure.axes)
        assert len(legend.get_texts()) == runs
        width, height = figure.get_size_inches() * figure.dpi
        assert width <= 2600
        assert height <= 2200


@needs_matplotlib
def test_p99_of_several_curves_blends_no_colours(tmp_path):
    runs = [saved(tmp_path, report(row(), row(64)), f"{i}.json") for i in range(2)]
    assert not draw_curves(collect(runs)).axes[1].collections
    assert draw_curves(collect(runs[:1])).axes[1].collections


@needs_matplotlib
def test_as_many_curves_as_there_may_be_all_look_different(tmp_path):
    rows = [row(size, dtype=f"d{i}") for i in range(MOST_CURVES) for size in (8, 64)]
    figure = draw_curves(collect([saved(tmp_path, report(*rows))]))
    lines = figure.axes[0].lines
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == MOST_CURVES


def test_a_delay_inside_a_node_is_framed_among_the_latencies_inside(tmp_path):
    finding = slow("delayed-link", [2, 3], "link", device="rank 2 and rank 3",
                   source="latency inside nodes")  # fmt: skip
    inside = INSIDE | {"latency_us": [[None, 900.0], [900.0, None]]}
    made = pairs(NAMES, MATRIX, [finding], **(EVERY | {"inside": [inside] * 2}))
    panels, _ = _panels(saved(tmp_path, made))
    framed = [(panel.where, panel.latency) for panel in panels if panel.boxes]
    assert framed == [("inside n1", True)] * 2


def test_of_many_members_the_slowest_behind_a_point_is_seen(tmp_path):
    names = [str(i) for i in range(2500)]
    links = [[i, j, 1.0 if i == 1001 else 9.0, None] for i in range(2500) for j in (0, 1, 2)]
    (panel,), _ = _panels(saved(tmp_path, pairs(names, None, links=links)))
    points, step = _points(panel)
    assert (len(points), step) == (834, 3)
    assert [line for line, values in enumerate(points) if values[0] == 1.0] == [333]


@needs_matplotlib
def test_what_makes_no_picture_or_cannot_be_written_is_refused_in_one_line(draw, tmp_path, golden):
    (tmp_path / "folder.png").mkdir()
    run, matrix, holes = report(row()), pairs(NAMES, MATRIX), [[None, None], [None, None]]
    said = []
    for contents, name in (
        *(([run], name) for name in ("absent/out.png", "out.gif", "out", "folder.png")),
        ([run], "a" * 300 + ".png"),
        *((made, "out.png") for made in ([run, matrix], [matrix, matrix], [report()])),
        ([pairs(["a", "b"], holes)], "out.png"),
        ([run, "no JSON"], "out.png"),
    ):
        files = [write(tmp_path / f"{i}.json", each) for i, each in enumerate(contents)]
        code, err = draw(*files, "-o", tmp_path / name)
        assert (code, err.count("\n")) == (2, 1)
        said.append(err.replace(str(tmp_path), "FOLDER"))
        assert {path.name for path in tmp_path.iterdir()} <= {"folder.png", "0.json", "1.json"}
    golden("".join(said))


def test_without_matplotlib_one_line_says_what_to_type(draw, tmp_path, monkeypatch, golden):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    file = write(tmp_path / "run.json", report(row()))
    code, err = draw(file, "-o", tmp_path / "out.png")
    assert code == 2
    golden(err)


def test_sizes_below_the_axis_are_few_even_powers_of_two_and_times_have_the_unit_that_fits():
    for low, high in ((8, 8), (8, 64), (4, 1 << 40), (1, 1 << 62), (5, 5), (12, 100)):
        ticks = _size_ticks(low, high)
        assert len(ticks) <= 9
        assert all(tick & (tick - 1) == 0 for tick in ticks)
        assert ticks[-1] >= high
        assert len({b // a for a, b in pairwise(ticks)}) <= 1
    assert [_time(us) for us in (0.5, 1, 2000, 5e6)] == ["500 ns", "1 us", "2 ms", "5 s"]
