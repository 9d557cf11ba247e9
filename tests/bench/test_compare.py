"""`oddrank bench compare`: same, faster, slower or unsure."""

import pytest

from oddrank import OddrankError
from oddrank.bench.comparison import compare_runs, sentence
from saved_runs import report, row, saved

SIZES = [1 << 10, 1 << 20, 1 << 26]


def verdicts(tmp_path, a, b, **options):
    return [row.verdict for row in compared(tmp_path, a, b, **options).rows]


def compared(tmp_path, a, b, within=0.05, **options):
    one, other = saved(tmp_path, a, "a.json"), saved(tmp_path, b, "b.json")
    return compare_runs(one, other, within=within, **options)


def test_two_samples_of_one_machine_are_the_same(tmp_path):
    a, b = (report(*[row(size, seed=seed) for size in SIZES]) for seed in (1, 2))
    found = compared(tmp_path, a, b)
    assert [each.verdict for each in found.rows] == ["SAME"] * 3
    assert sentence(found) == "B is as fast as A, within 5%, in all 3 rows"
    assert all(each.low < 1 < each.high for each in found.rows)


@pytest.mark.parametrize(("factor", "verdict"), [(1.2, "SLOWER"), (1 / 1.2, "FASTER"), (1, "SAME")])
def test_a_fifth_more_time_is_slower_and_less_is_faster(factor, verdict, tmp_path):
    assert verdicts(tmp_path, report(row()), report(row(us=100 * factor, seed=1))) == [verdict]


def test_slower_by_about_what_counts_as_the_same_is_not_decided(tmp_path):
    assert verdicts(tmp_path, report(row()), report(row(us=105, seed=1))) == ["UNSURE"]
    assert verdicts(tmp_path, report(row()), report(row(us=105, seed=1)), within=0.2) == ["SAME"]
    assert verdicts(tmp_path, report(row()), report(row(us=105, seed=1)), within=0.01) == ["SLOWER"]


def test_noise_and_few_iterations_decide_nothing(tmp_path):
    noisy = report(row(noise=0.5, count=30))
    assert verdicts(tmp_path, noisy, report(row(us=110, noise=0.5, count=30))) == ["UNSURE"]
    few = compared(tmp_path, report(row()), report(row(us=500, count=5))).rows[0]
    assert (few.verdict, few.ratio, few.low) == ("UNSURE", 5, None)
    assert few.why == "5 iterations (at least 10 are needed) in B"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"median_us": None, "samples_us": []}, "not measured in B"),
        ({"samples_us": None}, "no times of single iterations (at least 10 are needed) in B"),
    ],
)
def test_a_row_without_usable_times_is_unsure_and_says_why(changes, why, tmp_path):
    found = compared(tmp_path, report(row()), report(row() | changes)).rows[0]
    assert (found.verdict, found.why) == ("UNSURE", why)


@pytest.mark.parametrize("changes", [{}, {"us": 200}, {"median_us": None, "samples_us": []}])
def test_wrong_values_are_wrong_and_not_unsure_however_long_they_took(changes, tmp_path):
    b = report(row(check="wrong", **changes), row(8, us=200))
    found = compared(tmp_path, report(row(), row(8)), b)
    assert [each.verdict for each in found.rows] == ["WRONG", "SLOWER"]
    assert found.rows[0].why == "wrong values in B"
    assert found.verdict == "WRONG"
    assert sentence(found).startswith("of 2 rows B has wrong values in 1, and is slower in 1 (")
    alone = compared(tmp_path, report(row()), report(row(check="wrong")))
    assert sentence(alone) == "of 1 row B has wrong values in 1"


def test_wrong_values_of_the_run_before_say_nothing_of_this_one(tmp_path):
    found = compared(tmp_path, report(row(check="wrong")), report(row())).rows[0]
    assert (found.verdict, found.why) == ("UNSURE", "wrong values in A")


def test_one_slow_stretch_of_a_run_makes_it_unsure_not_slower(tmp_path):
    steady = row()
    times = [140 if 60 <= i < 170 else 100 for i in range(200)]  # disturbed for half of it
    disturbed = row() | {"samples_us": [t * (1 + i % 7 / 1000) for i, t in enumerate(times)]}
    assert verdicts(tmp_path, report(steady), report(disturbed)) == ["UNSURE"]


def test_rows_are_matched_by_what_they_measure_and_the_rest_is_listed(tmp_path):
    a = report(row(8), row(16), row(16, dtype="bfloat16"), row(32, inplace=False))
    b = report(row(32), row(16), row(64), row(8, op="max"))
    found = compared(tmp_path, a, b)
    assert [each.key[4] for each in found.rows] == [16]
    assert [each.bytes for each in found.only_a] == [8, 16, 32]
    assert [each.bytes for each in found.only_b] == [32, 64, 8]


def test_a_size_that_was_measured_twice_is_compared_twice(tmp_path):
    twice = report(row(), row(us=200))
    assert verdicts(tmp_path, twice, report(row(seed=1), row(us=400))) == ["SAME", "SLOWER"]
    assert len(compared(tmp_path, twice, report(row())).only_a) == 1


@pytest.mark.parametrize(
    ("world", "data", "told"),
    [
        ({"size": 8}, {}, "ranks 4 and 8"),
        ({"nodes": 2}, {}, "nodes 1 and 2"),
        ({"hosts": ["n1", "n3"]}, {}, "hosts n1, n2 and n1, n3"),
        ({}, {"devices": {"H200": 4}}, "devices 4 x CPU and 4 x H200"),
    ],
)
def test_different_worlds_are_refused_in_one_line_that_says_what_differs(
    world, data, told, tmp_path
):
    usual = {"devices": {"CPU": 4}}
    a = report(row(), world={"hosts": ["n1", "n2"]}, **usual)
    b = report(row(), world={"hosts": ["n1", "n2"]} | world, **(usual | data))
    with pytest.raises(OddrankError) as caught:
        compared(tmp_path, a, b)
    assert str(caught.value).startswith(f"not the same world: {told}; --force")
    found = compared(tmp_path, a, b, force=True)
    assert found.notes == (f"not the same world: {told}",)


@pytest.mark.parametrize(
    ("setup", "told"),
    [
        ({"switches": ["a", "b", "b"]}, "switches c and a, 2 x b"),
        ({"nccl": "2.30.7"}, "nccl 2.29.7 and 2.30.7"),
        ({"torch": {"2.11.0": 3, "2.12.0": 1}}, "torch 2.11.0 and 3 x 2.11.0, 2.12.0"),
        (
            {"settings": {"OMP_NUM_THREADS": "1", "NCCL_ALGO": {"Ring": 4, "Tree": 4}}},
            "NCCL_ALGO not set and 4 x Ring, 4 x Tree",
        ),
    ],
)
def test_other_versions_and_settings_are_told_for_they_may_be_the_reason(setup, told, tmp_path):
    usual = {"nccl": "2.29.7", "torch": "2.11.0", "switches": ["c"]}
    usual["settings"] = {"OMP_NUM_THREADS": "1"}
    a, b = report(row(), setup=usual), report(row(us=200), setup=usual | setup)
    found = compared(tmp_path, a, b)
    assert found.notes == (f"differs: {told}",)
    assert [each.verdict for each in found.rows] == ["SLOWER"]


def test_another_job_and_launcher_are_no_other_world(tmp_path):
    other = report(row(), world={"job": "2", "launcher": "slurm"})
    assert compared(tmp_path, report(row()), other).notes == ()


def test_other_hosts_are_told_and_not_refused_however_many_there_are(tmp_path):
    a, b = (
        report(row(), setup={"hosts": [f"{side}{i}" for i in range(1250)] + ["n1"]})
        for side in "xy"
    )
    (note,) = compared(tmp_path, a, b).notes
    assert note.startswith("other hosts: only A ran on x0, x1, x2, x3, x4 and 1245 more, only B")
    assert len(note) < 200
    assert compared(tmp_path, a, a).notes == ()


def test_what_only_one_report_tells_is_noted_and_not_refused(tmp_path):
    b = report(row(), setup={"nccl": "2.30.7"})
    assert compared(tmp_path, report(row()), b).notes == ("not compared: nccl: A does not say",)


def test_settings_that_only_one_report_has_are_noted(tmp_path):
    known = report(row(), setup={"settings": {"NCCL_ALGO": "Ring"}})
    for setup in ({}, {"settings": None}, {"settings": "Ring"}):
        silent = report(row(), setup=setup)
        for a, b, side in ((known, silent, "B"), (silent, known, "A")):
            notes = compared(tmp_path, a, b).notes
            assert notes == (f"not compared: settings: {side} does not say",)
        assert compared(tmp_path, silent, silent).notes == ()


def test_another_back_end_is_another_world_and_compared_with_force(tmp_path):
    a, b = report(row(backend="nccl")), report(row(backend="c10d:nccl", us=130))
    with pytest.raises(OddrankError, match="back end nccl and c10d:nccl"):
        compared(tmp_path, a, b)
    assert verdicts(tmp_path, a, b, force=True) == ["SLOWER"]


def test_runs_with_nothing_in_common_and_reports_without_rows_are_refused(tmp_path):
    with pytest.raises(OddrankError, match="no row in common"):
        compared(tmp_path, report(row(8)), report(row(16)))
    with pytest.raises(OddrankError, match="has no rows"):
        compared(tmp_path, report(), report(row()))


def test_the_sentence_counts_and_names_what_moved_most(tmp_path):
    a = report(*[row(size) for size in SIZES])
    b = report(row(SIZES[0], seed=1), row(SIZES[1], us=150), row(SIZES[2], us=200))
    text = sentence(compared(tmp_path, a, b))
    assert text.startswith("of 3 rows B is slower in 2, same in 1 (within 5% is the same); most: ")
    assert "all_reduce float32 sum 64 MiB in place (c10d:gloo) takes 2.0" in text
