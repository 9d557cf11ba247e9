"""`oddrank bench compare`: what each row is, the output, refusals and exit codes."""

import pytest

from bench.told import by_name, refusal
from oddrank.bench import comparison
from processes import typed
from reports import valid
from saved_runs import report, row, saved, write

SIZES = [1 << 10, 1 << 20, 1 << 26]
NONE = {"median_us": None, "samples_us": []}
SKIPPED = {"check": "skipped", "reason": "not enough free memory", "median_us": None,
           "p99_us": None, "samples_us": []}  # fmt: skip


def compared(tmp_path, a, b, within=0.05, **options):
    one, other = saved(tmp_path, a, "a.json"), saved(tmp_path, b, "b.json")
    found = comparison.compare_runs(one, other, within=within, **options)
    return found, comparison.report(found, one, other)


def disturbed():
    times = [140 if 60 <= i < 170 else 100 for i in range(200)]  # for half of it
    return row() | {"samples_us": [t * (1 + i % 7 / 1000) for i, t in enumerate(times)]}


def test_what_each_row_is_and_why(tmp_path, golden):
    one, other, loud = row(), row(seed=1), {"noise": 0.5, "count": 30}
    slower_by_5 = row(us=105, seed=1)
    twice = [one, row(us=200)]
    rows = {
        "two samples of one machine":
            ([row(size, seed=1) for size in SIZES], [row(size, seed=2) for size in SIZES],
             "SAME SAME SAME"),
        "a fifth more": ([one], [row(us=120, seed=1)], "SLOWER"),
        "a fifth less": ([one], [row(us=100 / 1.2, seed=1)], "FASTER"),
        "about what counts as the same": ([one], [slower_by_5], "UNSURE"),
        "that, and more counts as the same": ([one], [slower_by_5], "SAME", 0.2),
        "that, and less counts as the same": ([one], [slower_by_5], "SLOWER", 0.01),
        "noise": ([row(**loud)], [row(us=110, **loud)], "UNSURE"),
        "few iterations": ([one], [row(us=500, count=5)], "UNSURE"),
        "not measured": ([one], [one | NONE], "UNSURE"),
        "no times of iterations": ([one], [one | {"samples_us": []}], "UNSURE"),
        "one slow stretch": ([one], [disturbed()], "UNSURE"),
        "wrong values": ([one], [row(check="wrong")], "WRONG"),
        "wrong values and slower": ([one, row(8)], [row(check="wrong", us=200), row(8, us=200)],
                                    "WRONG SLOWER"),
        "wrong values and no times": ([one], [row(check="wrong") | NONE], "WRONG"),
        "wrong values before": ([row(check="wrong")], [one], "UNSURE"),
        "a size that was measured twice": (twice, [other, row(us=400)], "SAME SLOWER"),
        "and once": (twice, [other], "SAME"),
        "several sizes": ([row(size) for size in SIZES],
                          [row(SIZES[0], seed=1), row(SIZES[1], us=150), row(SIZES[2], us=200)],
                          "SAME SLOWER SLOWER"),
    }  # fmt: skip
    said = {}
    for name, (a, b, verdicts, *within) in rows.items():
        found, made = compared(tmp_path, report(*a), report(*b), *within)
        assert " ".join(one.verdict for one in found.rows) == verdicts, name
        why = [f"\n  {one.verdict}: {one.why}" for one in found.rows if one.why]
        said[name] = f"{made.verdict}: {made.summary}".replace(f"{tmp_path}/", "") + "".join(why)
        if name.startswith("two samples"):
            assert all(each.low < 1 < each.high for each in found.rows)
    few = compared(tmp_path, report(one), report(row(us=500, count=5)))[0].rows[0]
    assert (few.ratio, few.low) == (5, None)
    golden(by_name(said))


def test_rows_are_matched_by_what_they_measure_and_the_rest_is_listed(tmp_path):
    a = report(row(8), row(16), row(16, dtype="bfloat16"), row(32, inplace=False))
    b = report(row(32), row(16), row(64), row(8, op="max"))
    found, made = compared(tmp_path, a, b)
    assert made.verdict == "incomplete"
    assert [each.key[4] for each in found.rows] == [16]
    assert [each.bytes for each in found.only_a] == [8, 16, 32]
    assert [each.bytes for each in found.only_b] == [32, 64, 8]
    assert len(compared(tmp_path, report(row(), row(us=200)), report(row()))[0].only_a) == 1


def test_other_worlds_are_refused_and_possible_reasons_told(tmp_path, golden):
    hosts, usual = {"hosts": ["n1", "n2"]}, {"devices": {"CPU": 4}}
    knows = {"nccl": "2.29.7", "torch": "2.11.0", "switches": ["c"]}
    settings = {"settings": {"OMP_NUM_THREADS": "1"}}
    setup, ring = knows | settings, {"settings": {"NCCL_ALGO": "Ring"}}
    trees = {"OMP_NUM_THREADS": "1", "NCCL_ALGO": {"Ring": 4, "Tree": 4}}
    a = report(row(), world=hosts, **usual, setup=setup)
    many = [[f"{side}{i}" for i in range(1250)] + ["n1"] for side in "xy"]
    many += [many[0][::-1], [*many[0][:-1], "z"]]
    *on_many, turned, last = [report(row(), setup={"hosts": names}) for names in many]
    # Each is (a, b, whether it is another world).
    rows = {
        "ranks": (a, report(row(), world=hosts | {"size": 8}, **usual, setup=setup), True),
        "nodes": (a, report(row(), world=hosts | {"nodes": 2}, **usual, setup=setup), True),
        "hosts": (a, report(row(), world={"hosts": ["n1", "n3"]}, **usual, setup=setup), True),
        "devices": (a, report(row(), world=hosts, devices={"H200": 4}, setup=setup), True),
        "back end": (report(row(backend="nccl")), report(row(backend="c10d:nccl", us=130)), True),
        **{
            name: (a, report(row(), world=hosts, **usual, setup=setup | {name: value}), False)
            for name, value in {
                "switches": ["a", "b", "b"], "nccl": "2.30.7", "settings": trees,
                "torch": {"2.11.0": 3, "2.12.0": 1},
            }.items()
        },
        "job": (report(row()), report(row(), world={"job": "2", "launcher": "slurm"}), False),
        "many hosts": (*on_many, False),
        "the same hosts": (on_many[0], turned, False),
        "another last host": (on_many[0], last, False),
        "only B says": (report(row()), report(row(), setup={"nccl": "2.30.7"}), False),
    }  # fmt: skip
    for number, silent in enumerate(({}, {"settings": "Ring"})):
        known, quiet = report(row(), setup=ring), report(row(), setup=silent)
        rows[f"settings of A alone, {number}"] = (known, quiet, False)
        rows[f"settings of B alone, {number}"] = (quiet, known, False)
    said = {}
    for name, (one, other, is_another) in rows.items():
        if is_another:
            said[f"{name}, refused"] = refusal(compared, tmp_path, one, other)
        found, _ = compared(tmp_path, one, other, force=is_another)
        assert len(found.rows) == 1
        assert max([0, *map(len, found.notes)]) < 200
        said[name] = "\n".join(found.notes)
    golden(by_name(said))
    assert compared(tmp_path, *rows["back end"][:2], force=True)[1].verdict == "odd"


def test_runs_with_nothing_in_common_and_reports_without_rows_are_refused(tmp_path, golden):
    every = (([row(8)], [row(16)]), ([], [row()]))
    said = "\n".join(refusal(compared, tmp_path, report(*a), report(*b)) for a, b in every)
    golden(said.replace(str(tmp_path), "FOLDER"))


@pytest.fixture
def run(tmp_path):
    """Runs the command in this process: (exit code, stdout, stderr)."""

    def start(a, b, *arguments):
        files = [write(tmp_path / f"{name}.json", made) for name, made in (("a", a), ("b", b))]
        done = typed("bench", "compare", *files, *arguments, COLUMNS="120")
        return done.returncode, done.stdout, done.stderr

    return start


def test_the_verdict_and_exit_code_are_those_of_every_command(run):
    one, eight, wrong = row(), row(8), row(check="wrong")
    slow, fast, unsure = (row(us=us, seed=1) for us in (130, 70, 105))
    skipped, unmeasured = row(**SKIPPED), row(**NONE)
    for a, b, fail_on, code in (
        ([one], [row(seed=1)], None, 0),
        ([one], [slow], None, 1),
        ([one], [slow], "none", 0),
        ([one], [slow], "unknown", 0),
        ([one], [fast], None, 0),
        # A gate that could not tell is not green.
        ([one], [unsure], None, 1),
        ([one], [unsure], "odd", 0),
        ([one, eight], [row(seed=1), row(8, count=5)], None, 1),
        ([one], [wrong], None, 1),
        ([one], [wrong], "odd", 1),
        # Incomplete is what A has measured and B has not.
        ([one, eight], [row(seed=1)], None, 3),
        ([one, eight], [row(seed=1)], "odd,unknown", 0),
        ([eight, one], [eight, skipped], None, 1),
        ([eight, one], [eight, unmeasured], None, 1),
        ([eight, skipped], [eight, skipped], None, 0),
        ([eight, skipped], [eight], None, 0),
    ):
        options = ["--fail-on", fail_on] if fail_on else []
        assert run(report(*a), report(*b), *options)[0] == code, (b, fail_on)


def test_the_table_ends_with_the_verdict_and_what_to_do_next(run, tmp_path, golden):
    one, large = row(), row(size=1 << 30)
    not_large = large | SKIPPED
    said = []
    for name, a, b in (
        ("slower", [one, row(8)], [row(us=200)]),
        ("not decided", [one], [row(us=105, seed=1)]),
        ("the same", [one], [row(seed=1)]),
        ("wrong values", [one], [row(check="wrong")]),
        ("skipped in A", [one, not_large], [one, large]),
        ("skipped in B", [one, large], [one, not_large]),
        ("skipped in A, not in B", [one, not_large], [one]),
        ("skipped in B, not in A", [one], [one, not_large]),
        ("skipped in both", [one, not_large], [one, not_large]),
    ):
        _, out, err = run(report(*a), report(*b))
        assert err == ""
        said.append(f"{name}\n{out}".replace(str(tmp_path), "FOLDER"))
    golden("\n".join(said))


def test_the_json_fits_the_schema_and_is_alone_on_stdout(run):
    code, out, _ = run(report(row(), row(8)), report(row(us=200)), "--json", "-")
    made = valid(out)
    assert (code, made["tool"], made["verdict"]) == (1, "bench compare", "odd")
    (only,) = made["data"]["rows"]
    assert only["low"] > 1.9
    assert (only["bytes"], only["verdict"]) == (1 << 20, "SLOWER")
    assert [each["bytes"] for each in made["data"]["only_a"]] == [8]


def test_bad_options_and_files_are_refused_in_one_line(run, tmp_path, golden):
    one, large, said = report(row()), row(size=1 << 30) | SKIPPED, []
    for a, *arguments in (
        *((one, "--within", share) for share in ("x", "-5%", "0%", "nan")),
        (one, "--fail-on", "slower"),
        (one, "--fail-on", ""),
        (one, "--json", "absent/x.json"),
        ("no report \x1b[2J",),
        (one | {"tool": "bench run"},),
        (report(large),),
    ):
        code, out, err = run(a, report(large) if a == report(large) else one, *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), arguments
        said.append(err)
    done = typed("bench", "compare", *[write(tmp_path / "a.json", one)] * 2)
    assert (done.returncode, done.stdout) == (2, "")
    golden("".join([*said, done.stderr]).replace(str(tmp_path), "FOLDER"))


def test_names_that_are_not_ours_move_no_cursor(run):
    hostile = row(collective="\x1b[2Jall\nreduce", backend="\u202egloo")
    _, out, _ = run(report(hostile), report(hostile))
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_the_ratio_shown_is_that_of_the_medians_shown(run):
    """Saved samples are a part of all iterations and may have another median."""
    _, out, _ = run(report(row(median_us=93.0)), report(row(us=115, seed=1, median_us=101.0)))
    (shown,) = (line.split() for line in out.splitlines() if line.startswith("1 MiB"))
    a_us, b_us, ratio = map(float, shown[-5:-2])
    assert ratio == pytest.approx(b_us / a_us, abs=0.002)
    low, high = map(float, shown[-2].split("-"))
    assert low <= ratio <= high
