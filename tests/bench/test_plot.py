"""`oddrank bench plot`: a picture, or one line that says why there is none."""

import subprocess
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
@pytest.mark.parametrize(
    ("kind", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_runs_become_a_picture_of_the_kind_that_the_name_says(kind, magic, draw, tmp_path):
    files = [
        write(
            tmp_path / f"{i}.json", report(*[row(1 << power, us=10 * i) for power in range(3, 24)])
        )
        for i in (1, 2)
    ]
    assert draw(*files, "-o", tmp_path / f"out.{kind}") == (0, "")
    assert (tmp_path / f"out.{kind}").read_bytes().startswith(magic)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.json", "2.json", f"out.{kind}"]


@needs_matplotlib
@pytest.mark.parametrize(
    "rows",
    [
        [row()],
        [row(8, p99_us=None, busbw_GBps=None)],
        [row(n=1)],
        [row(), row(1 << 21, check="wrong")],
        [
            row(1 << 62, us=1e-9, count=0, p99_us=1e15, algbw_GBps=1e15, busbw_GBps=1e15),
            row(1, busbw_GBps=1e-9),
        ],
        [row(backend="$\\frac{1}{0$", dtype="_hidden"), row(dtype="\x1b[2J\n\u202e", op="\u6f22")],
        [row(collective=f"collective {i}") for i in range(11)],
        [row(1 << p, dtype=f"dtype{i}", inplace=bool(i % 2)) for p in (9, 20) for i in range(5)],
    ],
    ids=["one", "no p99", "one rank", "wrong", "extreme", "hostile", "collectives", "curves"],
)
def test_whatever_the_rows_are_a_picture_is_drawn_without_a_complaint(rows, draw, tmp_path):
    file = write(tmp_path / "_$a_$.json", report(*rows))
    assert draw(file, file, "-o", tmp_path / "out.png") == (0, "")


def boxes_of(figure):
    """Returns the boxes of the legend and of each axes, in pixels."""
    figure.canvas.draw()
    (legend,) = figure.legends
    return legend.get_window_extent(), [axes.get_window_extent() for axes in figure.axes]


@needs_matplotlib
@pytest.mark.parametrize("collectives", [1, 3, 10])
@pytest.mark.parametrize("runs", [2, 5])
def test_the_legend_of_a_comparison_hides_no_data_and_the_picture_fits_a_screen(
    collectives, runs, tmp_path
):
    names = [f"collective{i}" for i in range(collectives)]
    files = [
        saved(
            tmp_path,
            report(*[row(1 << p, us=9.0 * p * i, collective=n) for n in names for p in (3, 9, 20)]),
            f"run{i}.json",
        )
        for i in range(1, runs + 1)
    ]
    figure = draw_curves(collect(files))
    legend, axes = boxes_of(figure)
    assert not any(legend.overlaps(each) for each in axes)
    assert len(figure.legends[0].get_texts()) == runs
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


@needs_matplotlib
@pytest.mark.parametrize(
    "matrix",
    [
        pairs(NAMES, MATRIX, [slow("slow-sender", [1])]),
        pairs(["a", "b"], [[None, 1e-9], [None, None]]),
        pairs(["a" * 200, "$b_{$"], [[None, 5], [5, None]]),
        pairs([f"node{i}" for i in range(100)], [[1.0] * 100] * 100),
        pairs([f"node{i}" for i in range(100)], None, links=[[0, i, i, None] for i in range(100)]),
        pairs(NAMES, [[0.0] * 4] * 4),
        pairs(
            NAMES,
            MATRIX,
            [slow("delayed-node", [2, 3], host="n1"), slow("slow-sender", [3], kind="rank")],
            latency_us=MATRIX,
            ranks=[[0, 1], [2, 3], [4, 5], [6, 7]],
            inside=[INSIDE] * 6,
            world={"size": 8},
        ),
        pairs(NAMES, MATRIX, [slow("delayed-node", [1])], latency_us=[[None] * 4] * 4),
        pairs(
            [f"node{i}" for i in range(16_384)],
            None,
            [slow("slow-sender", [5])],
            world={"size": 16_384},
            links=[[i, i ^ 1, 1.0, 1.0] for i in range(16_384)],
        ),
    ],
    ids=["named", "holes", "hostile", "large", "links", "zero", "all", "unknown delay", "huge"],
)
def test_a_matrix_becomes_a_heat_map(matrix, draw, tmp_path):
    file = write(tmp_path / "pairs.json", matrix)
    assert draw(file, "-o", tmp_path / "out.png") == (0, "")


def delayed_inside(source):
    finding = slow("delayed-link", [2, 3], "link", device="rank 2 and rank 3", source=source)
    inside = INSIDE | {"latency_us": [[None, 900.0], [900.0, None]]}
    nodes = [[0, 1], [2, 3], [4, 5], [6, 7]]
    return pairs(NAMES, MATRIX, [finding], {"size": 8}, ranks=nodes, inside=[inside] * 2)


def test_a_delay_inside_a_node_is_framed_among_the_latencies_inside(tmp_path):
    panels, _ = _panels(saved(tmp_path, delayed_inside("latency inside nodes")))
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
@pytest.mark.parametrize(
    "name", ["absent/out.png", "out.gif", "out", "folder.png", "a" * 300 + ".png"]
)
def test_what_can_not_be_written_is_refused_in_one_line_and_nothing_is_left(name, draw, tmp_path):
    (tmp_path / "folder.png").mkdir()
    file = write(tmp_path / "run.json", report(row()))
    code, err = draw(file, "-o", tmp_path / name)
    assert (code, err.count("\n")) == (2, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.png", "run.json"]


@needs_matplotlib
@pytest.mark.parametrize(
    ("contents", "why"),
    [
        ([report(row()), pairs(NAMES, MATRIX)], "draw it alone"),
        ([pairs(NAMES, MATRIX), pairs(NAMES, MATRIX)], "draw it alone"),
        ([report()], "neither rows nor pairs"),
        ([pairs(["a", "b"], [[None, None], [None, None]])], "no cell"),
        ([report(row()), "no JSON"], "no JSON"),
    ],
)
def test_what_makes_no_picture_is_refused_in_one_line(contents, why, draw, tmp_path):
    files = [write(tmp_path / f"{i}.json", each) for i, each in enumerate(contents)]
    code, err = draw(*files, "-o", tmp_path / "out.png")
    assert (code, err.count("\n")) == (2, 1)
    assert why in err
    assert not (tmp_path / "out.png").exists()


def test_without_matplotlib_one_line_says_what_to_type(tmp_path):
    file = write(tmp_path / "run.json", report(row()))
    script = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from oddrank import cli\n"
        f"cli.main(['bench', 'plot', {file!r}, '-o', {str(tmp_path / 'out.png')!r}])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "pip install 'oddrank[plot]'" in ended.stderr


@pytest.mark.parametrize(
    ("low", "high"), [(8, 8), (8, 64), (4, 1 << 40), (1, 1 << 62), (5, 5), (12, 100)]
)
def test_sizes_below_the_axis_are_powers_of_two_evenly_and_few(low, high):
    ticks = _size_ticks(low, high)
    assert len(ticks) <= 9
    assert all(tick & (tick - 1) == 0 for tick in ticks)
    assert ticks[-1] >= high
    assert len({b // a for a, b in pairwise(ticks)}) <= 1


@pytest.mark.parametrize(
    ("us", "text"), [(0.5, "500 ns"), (1, "1 us"), (2000, "2 ms"), (5e6, "5 s")]
)
def test_times_have_the_unit_that_fits(us, text):
    assert _time(us) == text
