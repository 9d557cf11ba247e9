"""The curves of a picture, and their labels and colours."""

from bench.told import refusal
from oddrank.bench.plot.curves import MOST_CURVES, collect
from saved_runs import report, row, saved


def picture(tmp_path, *reports, only=()):
    made = [saved(tmp_path, each, f"run{i}.json") for i, each in enumerate(reports)]
    return collect(made, only)


def labels(made):
    return [[curve.label for curve in panel.curves] for panel in made.panels]


def test_a_label_says_only_what_differs_and_the_rest_is_common(tmp_path):
    one = picture(tmp_path, report(row(1 << 20), row(8), row(1 << 10)))
    assert [point.bytes for point in one.panels[0].curves[0].points] == [8, 1 << 10, 1 << 20]
    kinds = [row(), row(dtype="bfloat16"), row(inplace=False)]
    for made, texts, common in (
        (one, [""], "c10d:gloo, float32, sum, in place, 4 ranks"),
        (picture(tmp_path, report(row()), report(row())), ["run0", "run1"], one.common),
        (picture(tmp_path, report(*kinds)),
         ["float32, in place", "bfloat16, in place", "float32, out of place"],
         "c10d:gloo, sum, 4 ranks"),
    ):  # fmt: skip
        assert labels(made) == [texts]
        assert made.common == common


def test_two_files_of_one_name_are_two_curves(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    runs = [saved(tmp_path / name, report(row())) for name in ("a", "b")]
    assert labels(collect(runs)) == [["a/run", "b/run"]]


def test_curves_of_different_runs_are_no_family_whatever_their_files_are_called(tmp_path):
    rows = [row(), row(inplace=False)]
    runs = [
        saved(tmp_path, report(*rows), name)
        for name in ("in place.json", "in place.json", "a" * 80 + "1.json", "a" * 80 + "2.json")
    ]
    (panel,) = collect(runs).panels
    assert [curve.family[0] for curve in panel.curves] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len({curve.label for curve in panel.curves}) == 8
    assert max(len(curve.label) for curve in panel.curves) <= 60


def test_each_collective_has_its_panel(tmp_path):
    made = picture(tmp_path, report(row(), row(collective="all_gather", op="none")))
    assert [panel.title for panel in made.panels] == ["all_reduce, sum", "all_gather"]


def test_a_run_of_one_rank_has_algbw(tmp_path):
    assert picture(tmp_path, report(row(n=1))).bandwidth == "algbw"
    assert picture(tmp_path, report(row())).bandwidth == "busbw"


def test_rows_without_a_size_or_a_time_are_left_out_and_counted(tmp_path):
    skipped = row(16, median_us=None)
    made = picture(tmp_path, report(row(), skipped, row(0, collective="barrier")))
    assert len(made.panels) == 1
    assert made.left_out == "not drawn: 2 rows without a size or a time"


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
