"""`oddrank bench plot`: curves, framed cells, and a picture, or one line why there is none."""

import sys
from itertools import pairwise

import pytest

from bench.told import refusal
from oddrank.bench.plot.curves import MOST_CURVES, _size_ticks, _time, collect, draw_curves
from oddrank.bench.plot.heat_map import _panels, _points, marks
from oddrank.bench.saved import SavedMatrix
from processes import typed
from saved_runs import matrix, pairs, report, row, saved, slow, write


def picture(tmp_path, *reports, only=()):
    made = [saved(tmp_path, each, f"run{i}.json") for i, each in enumerate(reports)]
    return collect(made, only)


def test_a_label_says_only_what_differs_and_the_rest_is_common(tmp_path):
    one = picture(tmp_path, report(row(1 << 20), row(8), row(1 << 10)))
    assert [drawn.bytes for drawn in one.panels[0].curves[0].rows] == [8, 1 << 10, 1 << 20]
    kinds = [row(), row(dtype="bfloat16"), row(inplace=False)]
    for made, texts, common in (
        (one, [""], "c10d:gloo, float32, sum, in place, 4 ranks"),
        (picture(tmp_path, report(row()), report(row())), ["run0", "run1"], one.common),
        (picture(tmp_path, report(*kinds)),
         ["float32, in place", "bfloat16, in place", "float32, out of place"],
         "c10d:gloo, sum, 4 ranks"),
    ):  # fmt: skip
        assert [[curve.label for curve in panel.curves] for panel in made.panels] == [texts]
        assert made.common == common


def test_curves_of_different_runs_are_no_family_whatever_their_files_are_called(tmp_path):
    rows = [row(), row(inplace=False)]
    runs = [
        saved(tmp_path, report(*rows), name)
        for name in ("in place.json", "in place.json", "a" * 80 + "1.json", "a" * 80 + "2.json")
    ]
    (panel,) = collect(runs).panels
    families = [curve.family for curve in panel.curves]
    nth = list(dict.fromkeys(families))
    assert [nth.index(family) for family in families] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len({curve.label for curve in panel.curves}) == 8
    assert max(len(curve.label) for curve in panel.curves) <= 60


def test_each_collective_has_its_panel_and_one_rank_has_algbw(tmp_path):
    both = report(row(), row(collective="all_gather", op="none"))
    untimed = report(row(), row(16, median_us=None), row(0, collective="barrier"))
    for content, titles, bandwidth, left_out in (
        (both, ["all_reduce, sum", "all_gather"], "busbw", ""),
        (report(row(n=1)), ["all_reduce"], "algbw", ""),
        (untimed, ["all_reduce"], "busbw", "not drawn: 2 rows without a size or a time"),
    ):
        made = picture(tmp_path, content)
        assert [panel.title for panel in made.panels] == titles
        assert (made.bandwidth, made.left_out) == (bandwidth, left_out)


def test_only_takes_rows_that_have_all_its_words(tmp_path):
    rows = [row(dtype=d, inplace=i) for d in ("float32", "int8") for i in (True, False)]
    for only, number in {
        (): 4, ("float32",): 2, ("float32", "out"): 1, ("c10d:gloo",): 4, ("in",): 2,
    }.items():  # fmt: skip
        assert len(picture(tmp_path, report(*rows), only=only).panels[0].curves) == number, only


def test_nothing_to_draw_and_too_much_to_tell_apart_are_refused(tmp_path, golden):
    dtypes = report(*[row(dtype=f"d{i}") for i in range(MOST_CURVES + 1)])
    collectives = report(*[row(collective=f"c{i}") for i in range(13)])
    said = [refusal(picture, tmp_path, report(row()), only=("int8",))]
    golden("\n".join([*said, *(refusal(picture, tmp_path, one) for one in (dtypes, collectives))]))


FOUR = ("n0", "n1", "n2", "n3")
CELLS = {(i, j): 1.0 for i in range(4) for j in range(4)}
TEAMS = tuple(frozenset({2 * i, 2 * i + 1}) for i in range(4))
ONE_EACH = SavedMatrix("", FOUR, tuple(frozenset({i}) for i in range(4)), CELLS, {})
BETWEEN = SavedMatrix("between nodes", FOUR, TEAMS, CELLS, CELLS)
WITHIN = SavedMatrix(
    "inside n1", ("rank 2", "rank 3"), (frozenset({2}), frozenset({3})), {(0, 1): 1.0},
    {(0, 1): 1.0},
)  # fmt: skip
ROW, COLUMN = (1, 0, 1, 4), (0, 1, 4, 1)


def test_what_is_named_is_framed_as_a_row_a_column_or_cells_once():
    both, link = [(0, 2, 1, 1), (2, 0, 1, 1)], {"kind": "link"}
    for finding, boxes in (
        (slow("slow-sender", [1]), [ROW]),
        (slow("slow-receiver", [1]), [COLUMN]),
        (slow("slow-rank", [1], kind="rank"), [ROW, COLUMN]),
        (slow("slow-link", [0, 2], **link), both),
        (slow("slow-link", [0, 2], **link, device="n0 and n2"), both),
        (slow("slow-link", [0, 2], **link, device="n2 to n0"), both[1:]),
        (slow("slow-link", [0], **link), []),
        (slow("slow-link", [0, 1, 2], **link), []),
        (slow("delayed-rank", [1]), []),
        (slow("not-confirmed", [1], condition="unknown"), []),
        (slow("slow-sender", [7]), []),
        (slow("slow-sender", []), []),
        ({"condition": "slow", "cause": 3, "who": None}, []),
        ({"condition": "slow", "who": {"ranks": ["x", None]}}, []),
        ({"condition": "slow", "who": {"ranks": 3, "kind": "link", "device": 4}}, []),
        ({}, []),
    ):
        assert marks([finding], ONE_EACH) == marks([finding] * 2, ONE_EACH) == boxes, finding
    # Evidence that is none says nothing of the kind of link.
    for evidence in (None, [], [3], [{}], [{"source": 3}], {"source": "x y"}):
        assert marks([slow("slow-sender", [1]) | {"evidence": evidence}], ONE_EACH) == [ROW]


def test_between_and_inside_nodes_each_frames_its_own_links():
    rank, line, link = {"kind": "rank"}, [(1, 0, 1, 2)], {"kind": "link"}
    for finding, between, inside in (
        (slow("slow-sender", [2, 3], host="n1"), [ROW], []),
        (slow("slow-node", [2, 3]), [ROW, COLUMN], []),
        (slow("slow-sender", [3], **rank, source="bandwidth between nodes"), [ROW], []),
        (slow("slow-sender", [3], **rank, source="bandwidth between single ranks"), [ROW], []),
        (slow("slow-sender", [3], **rank, source="bandwidth inside nodes"), [], line),
        (slow("slow-link", [2, 3], **link, device="rank 2 and rank 3"), [],
         [(0, 1, 1, 1), (1, 0, 1, 1)]),
        (slow("slow-link", [2, 5], **link, device="n1 and n2"), [(1, 2, 1, 1), (2, 1, 1, 1)], []),
        (slow("delayed-node", [2, 3]), [], []),
    ):  # fmt: skip
        assert marks([finding], BETWEEN) == between, finding
        assert marks([finding], WITHIN) == inside, finding
        if finding["who"]["kind"] == "rank":
            assert marks([finding], ONE_EACH)
    assert marks([finding], BETWEEN, latency=True) == [ROW, COLUMN]


NAMES = list(FOUR)
MATRIX = [[None if i == j else 10.0 + i for j in range(4)] for i in range(4)]
INSIDE = matrix(["rank 2", "rank 3"], [[None, 50.0], [20.0, None]], node="n1", ranks=[[2], [3]])
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
def test_whatever_a_report_holds_a_picture_is_drawn_without_a_complaint(name, tmp_path):
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
def test_the_legend_fits_every_panel_and_names_only_what_is_drawn(tmp_path):
    """all_reduce sums, all_gather does not: the panels differ in more than the runs do."""
    rows = [row(8), row(64), row(8, collective="all_gather", op="none"),
            row(64, collective="all_gather", op="none")]  # fmt: skip
    runs = [report(*rows), report(*(one | {"p99_us": None} for one in rows))]
    for chosen, said in ((runs, "line: mean, dotted: p99"), (runs[1:], "line: mean")):
        figure = draw_curves(picture(tmp_path, *chosen))
        lines = [line for axes in figure.axes for line in axes.get_lines()]
        assert len({line.get_color() for line in lines}) == len(chosen)
        texts = [text.get_text() for text in figure.findobj(lambda one: hasattr(one, "get_text"))]
        assert any(text.startswith(said) for text in texts), texts


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
def test_what_makes_no_picture_or_cannot_be_written_is_refused_in_one_line(tmp_path, golden):
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


def test_without_matplotlib_one_line_says_what_to_type(tmp_path, monkeypatch, golden):
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
