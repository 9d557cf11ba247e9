"""Reads reports as hostile input: every error is one line that says where."""

import json
import os
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.told import refusal
from oddrank import OddrankError
from oddrank.bench.comparison import Saved, read
from oddrank.bench.plot import names
from saved_runs import report, row, saved, write

REPORT = '{"schema": "oddrank.report/1", '
# Some are deeper than Python's parser allows, or have more digits than int() should get.
NO_REPORTS = (
    "", "   \n", "{", REPORT + '"data', json.dumps(report(row()))[:-300], "hello", "\x00\x01",
    "[]", "null", '{"schema": 3}', '{"schema": "oddrank.report/2"}', REPORT + '"tool": "selftest"}',
    REPORT + '"tool": 7}', REPORT + '"tool": "bench compare", "data": {}}',
    REPORT + '"tool": "bench", "world": []}', '{"a": NaN}', '{"a": -Infinity}', "9" * 100_000,
    "[" * 100_000, '{"a":' * 100_000,
)  # fmt: skip
FIELDS_OF_A_WRONG_TYPE = (
    {"bytes": "8"}, {"bytes": -8}, {"bytes": 8.5}, {"bytes": True}, {"bytes": 10**25},
    {"backend": None}, {"backend": "x" * 1000}, {"inplace": "yes"}, {"median_us": -1},
    {"median_us": "fast"}, {"median_us": {}}, {"busbw_GBps": [1]}, {"samples_us": {}},
    {"samples_us": [1, None]}, {"samples_us": [1, -1]}, {"samples_us": [1, True]},
    {"samples_us": None}, {"op": None}, {"check": "right"},
)  # fmt: skip


def test_what_is_no_report_is_refused_in_one_short_line_that_says_where(tmp_path, golden):
    contents = list(NO_REPORTS)
    contents += [report(row(), {**row(), **changes}) for changes in FIELDS_OF_A_WRONG_TYPE]
    beyond = json.dumps(report(row())).replace('"median_us": 100.0', '"median_us": 1e999')
    contents.append(beyond)
    for value in (None, 3, "rows", {"a": 1}, [1], [None], [[]]):
        contents.append(report() | {"data": {"rows": value}})
    contents.append(report() | {"data": {"pairs": {}}})
    said = [refusal(saved, tmp_path, content) for content in contents]
    assert max(map(len, said)) < 500
    golden("\n".join(said).replace(f"{tmp_path}/run.json", "FILE"))


def test_what_bench_writes_is_read(tmp_path):
    run = saved(tmp_path, report(row(us=50.0), row(median_us=None, samples_us=[])), "a.json")
    assert (names([run]), len(run.rows)) == (["a"], 2)
    assert run.rows[0].key == ("c10d:gloo", "all_reduce", "float32", "sum", 1 << 20, True)
    assert (run.rows[0].median_us, len(run.rows[0].samples_us)) == (50.0, 200)
    assert (run.rows[1].median_us, run.rows[1].samples_us) == (None, ())
    of_nothing = saved(tmp_path, report(row() | {"samples_us": [0, 1, 0.0]}))
    assert of_nothing.rows[0].samples_us == ()


def test_what_is_no_file_is_refused_and_never_waited_for_nor_read_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    for name in ("", "absent", ".", "/dev/zero", "nul\0", "a" * 5000, "pipe"):
        with pytest.raises(OddrankError, match="cannot read"):
            read(name)
    with open("large.json", "w") as file:
        file.truncate(1 << 40)  # sparse
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(OddrankError, match="more than 64 MiB"):
        read("large.json")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10


def reads_or_refuses(path):
    """Reads a report or gets a refusal of one short line; any other exception fails."""
    try:
        return isinstance(read(path), Saved)
    except OddrankError as error:
        return len(str(error)) < 500


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.sampled_from(sorted(row())), st.sampled_from(sorted(report())), JSON)
def test_whatever_a_row_or_the_envelope_holds_it_is_read_or_refused(
    tmp_path_factory, field, member, value
):
    path = tmp_path_factory.getbasetemp() / "any.json"
    for content in (report(row(count=2) | {field: value}), report() | {member: value}):
        assert reads_or_refuses(write(path, content))


@given(st.integers(0, 4000), st.binary(min_size=1, max_size=3))
def test_whatever_bytes_are_damaged_it_is_read_or_refused(tmp_path_factory, at, damage):
    content = bytearray(json.dumps(report(row(count=20))).encode())
    at %= len(content)
    content[at : at + len(damage)] = damage
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_bytes(content)
    assert reads_or_refuses(str(path))


def test_reports_are_named_after_their_files_and_never_two_alike(tmp_path):
    for called in (
        {"last week.json": "last week"},
        {"before/x.json": "before/x.json", "after/x.json": "after/x.json", "after/y.json": "y"},
        {"a/x": "a/x", "a/x.json": "a/x.json"},
    ):
        made = []
        for file in called:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            made.append(saved(tmp_path, report(row()), file))
        assert [name.removeprefix(f"{tmp_path}/") for name in names(made)] == [*called.values()]
    assert names([saved(tmp_path, report(row()), ".json")]) != [""]
