"""Reads reports as hostile input: every error is one line that says where."""

import json
import os
import resource
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oddrank import OddrankError
from oddrank.bench.plot import names
from oddrank.bench.saved import Saved, read
from saved_runs import pairs, report, row, saved, write

# Deeper than Python's parser allows, and more digits than int() should get.
HOSTILE = {
    "": "empty",
    "   \n": "empty",
    "{": "ends in the middle",
    '{"schema": "oddrank.report/1", "data': "ends in the middle",
    json.dumps(report(row()))[:-300]: "ends in the middle",
    "hello": "no JSON",
    "\x00\x01": "no JSON",
    "[]": "no report",
    "null": "no report",
    '{"schema": 3}': "schema is 3",
    '{"schema": "oddrank.report/2"}': "schema is 'oddrank.report/2'",
    '{"schema": "oddrank.report/1", "tool": "selftest"}': "'selftest', not",
    '{"schema": "oddrank.report/1", "tool": 7}': '"tool" is 7, not',
    '{"schema": "oddrank.report/1", "tool": "bench compare", "data": {}}': "'bench compare', not",
    '{"schema": "oddrank.report/1", "tool": "bench", "world": []}': "data is missing",
    '{"a": NaN}': "NaN",
    '{"a": -Infinity}': "Infinity",
    "9" * 100_000: "100000 digits",
    "[" * 100_000: "nested too deeply",
    '{"a":' * 100_000: "nested too deeply",
}


@pytest.mark.parametrize(("content", "why"), HOSTILE.items(), ids=range(len(HOSTILE)))
def test_what_is_no_report_is_refused_in_one_short_line(content, why, tmp_path):
    with pytest.raises(OddrankError) as caught:
        saved(tmp_path, content)
    assert why in str(caught.value)
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"bytes": "8"}, "data.rows[1].bytes is '8', not a whole number"),
        ({"bytes": -8}, "data.rows[1].bytes is -8"),
        ({"bytes": 8.5}, "data.rows[1].bytes"),
        ({"bytes": True}, "data.rows[1].bytes is True"),
        ({"bytes": 10**25}, "data.rows[1].bytes"),
        ({"backend": None}, "data.rows[1].backend is missing"),
        ({"backend": "x" * 1000}, "data.rows[1].backend"),
        ({"inplace": "yes"}, "data.rows[1].inplace"),
        ({"median_us": -1}, "data.rows[1].median_us"),
        ({"median_us": "fast"}, "data.rows[1].median_us"),
        ({"median_us": {}}, "data.rows[1].median_us is an object"),
        ({"busbw_GBps": [1]}, "data.rows[1].busbw_GBps is a list"),
        ({"samples_us": {}}, "data.rows[1].samples_us"),
        ({"samples_us": [1, None]}, "data.rows[1].samples_us"),
        ({"samples_us": [1, -1]}, "data.rows[1].samples_us"),
        ({"samples_us": [1, True]}, "data.rows[1].samples_us"),
    ],
)
def test_a_field_of_a_wrong_type_is_named_with_its_place(changes, place, tmp_path):
    with pytest.raises(OddrankError) as caught:
        saved(tmp_path, report(row(), {**row(), **changes}))
    assert place in str(caught.value)


def test_times_of_nothing_are_no_times(tmp_path):
    found = saved(tmp_path, report(row() | {"samples_us": [0, 1, 0.0]})).rows[0]
    assert found.samples == ()


def test_a_number_beyond_all_floats_is_no_time(tmp_path):
    text = json.dumps(report(row())).replace('"median_us": 100.0', '"median_us": 1e999')
    with pytest.raises(OddrankError, match="median_us"):
        saved(tmp_path, text)


@pytest.mark.parametrize("rows", [None, 3, "rows", {"a": 1}, [1], [None], [[]]])
def test_rows_that_are_no_list_of_objects_are_refused(rows, tmp_path):
    made = report()
    made["data"]["rows"] = rows
    with pytest.raises(OddrankError, match=r"data\.rows"):
        saved(tmp_path, made)


@pytest.mark.parametrize(
    "matrix",
    [
        3,
        {},
        {"names": ["a", "b"]},
        {"names": ["a"], "GBps": [[None]]},
        {"names": ["a", 2], "GBps": [[None, 1], [1, None]]},
        {"names": ["a", "b"], "GBps": [[None, 1]]},
        {"names": ["a", "b"], "GBps": [[None, 1], [1]]},
        {"names": ["a", "b"], "GBps": [[None, 1], [-1, None]]},
        {"names": ["a", "b"], "GBps": [[None, 1], ["1", None]]},
        {"names": ["a", "b"], "GBps": [[None, 1], [True, None]]},
        {"names": ["a"] * 5000, "GBps": []},
    ],
)
def test_a_matrix_that_is_none_is_refused(matrix, tmp_path):
    made = report()
    made["data"]["pairs"] = matrix
    with pytest.raises(OddrankError, match=r"data\.pairs"):
        saved(tmp_path, made)


def test_what_bench_writes_is_read(tmp_path):
    run = saved(tmp_path, report(row(us=50.0), row(median_us=None, samples_us=None)), "a.json")
    assert (names([run]), len(run.rows), run.matrices) == (["a"], 2, ())
    assert run.rows[0].key == ("c10d:gloo", "all_reduce", "float32", "sum", 1 << 20, True)
    assert (run.rows[0].median_us, len(run.rows[0].samples)) == (50.0, 200)
    assert (run.rows[1].median_us, run.rows[1].samples) == (None, ())
    assert saved(tmp_path, pairs(["a", "b"], [[None, 2], [1, None]])).matrices[0].GBps[0, 1] == 2


def test_rows_of_an_older_version_have_no_op_and_no_single_times(tmp_path):
    old = row()
    for name in ("op", "inplace", "p99_us", "cv", "samples_us"):
        del old[name]
    found = saved(tmp_path, report(old)).rows[0]
    assert (found.op, found.in_place, found.p99_us, found.samples) == ("sum", True, None, ())


@pytest.mark.parametrize("name", ["", "absent", ".", "/dev/zero", "nul\0", "a" * 5000, "pipe"])
def test_what_is_no_file_is_refused_and_never_waited_for(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises(OddrankError, match="cannot read"):
        read(name)


def test_a_file_that_is_too_large_is_not_read_whole(tmp_path):
    path = tmp_path / "large.json"
    path.touch()
    os.truncate(path, 1 << 40)  # sparse
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(OddrankError, match="more than 64 MiB"):
        read(str(path))
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
FIELDS = st.sampled_from(sorted(row()))


@given(FIELDS, JSON)
def test_whatever_a_field_holds_a_row_is_read_or_refused(tmp_path_factory, field, value):
    path = tmp_path_factory.getbasetemp() / "any.json"
    assert reads_or_refuses(write(path, report(row(count=2) | {field: value})))


@given(st.sampled_from(["world", "data", "findings", "tool", "schema"]), JSON)
def test_whatever_the_envelope_holds_it_is_read_or_refused(tmp_path_factory, member, value):
    path = tmp_path_factory.getbasetemp() / "any.json"
    assert reads_or_refuses(write(path, report() | {member: value}))


@given(st.integers(0, 4000), st.binary(min_size=1, max_size=3))
def test_whatever_bytes_are_damaged_it_is_read_or_refused(tmp_path_factory, at, damage):
    content = bytearray(json.dumps(report(row(count=20))).encode())
    at %= len(content)
    content[at : at + len(damage)] = damage
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_bytes(content)
    assert reads_or_refuses(str(path))


@pytest.mark.parametrize(
    ("files", "called"),
    [
        (["last week.json"], ["last week"]),
        (["a/x.json", "a/y.json"], ["x", "y"]),
        (["before/x.json", "after/x.json"], ["before/x", "after/x"]),
        (["before/x.json", "after/x.json", "after/y.json"], ["before/x", "after/x", "y"]),
        (["1/a/x.json", "1/b/x.json", "2/b/x.json"], ["1/a/x", "1/b/x", "2/b/x"]),
        (["x.json", "x.json", "y.json"], ["x #1", "x #2", "y"]),
        (["a/x.json", "b/x.json", "a/x.json"], ["a/x #1", "b/x", "a/x #2"]),
        (["a/x", "a/x.json"], ["x #1", "x #2"]),
    ],
)
def test_reports_are_named_after_their_files_and_never_two_alike(files, called, tmp_path):
    made = []
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        made.append(saved(tmp_path, report(row()), file))
    assert names(made) == called


def test_a_file_without_a_name_has_one(tmp_path):
    assert names([saved(tmp_path, report(row()), ".json")]) != [""]


def test_a_list_of_links_is_read_as_the_matrix_that_it_stands_for(tmp_path):
    few = {"names": ["a", "b", "c"], "ranks": [[0], [1], [2]], "links": [[0, 2, 5.0, None]]}
    (matrix,) = saved(tmp_path, pairs(few["names"], None) | {"data": {"pairs": few}}).matrices
    assert matrix.GBps == {(0, 2): 5.0}
    assert matrix.latency_us == {}


@pytest.mark.parametrize(("names", "matrices"), [(16_384, 1), (2, 10_000), (8, 2_000)])
def test_names_without_measured_links_take_no_memory_to_speak_of(names, matrices, tmp_path):
    """Sizes as with 16,384 nodes of one rank, or 10,000 nodes of two ranks."""
    few = {"names": [""] * names, "links": [[0, 1, 1.0, 2.0]]}
    inside = [few | {"node": "n"}] * (matrices - 1)
    file = write(
        tmp_path / "run.json", pairs([], None) | {"data": {"pairs": few | {"inside": inside}}}
    )
    tracemalloc.start()
    try:
        found = read(file)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.matrices) == matrices
    assert most < 128 << 20  # half of it is for reading any file


@pytest.mark.parametrize("many", ["names", "GBps"])
def test_more_than_any_report_of_ours_has_is_refused(many, tmp_path, monkeypatch):
    monkeypatch.setattr("oddrank.bench.saved._MOST_NAMES", 5)
    monkeypatch.setattr("oddrank.bench.saved._MOST_FIGURES", 7 if many == "names" else 3)
    one = {"names": ["a", "b"], "GBps": [[None, 1], [1, None]]}
    inside = [one | {"node": "n"}] * (2 if many == "names" else 1)
    with pytest.raises(OddrankError, match=many):
        saved(tmp_path, pairs([], None) | {"data": {"pairs": one | {"inside": inside}}})


@pytest.mark.parametrize(
    "link", [[0, 3, 1.0, 1.0], [0, 1, 1.0], [True, 1, 1.0, 1.0], [0, 1, "x", 1.0]]
)
def test_a_link_that_is_none_is_refused(link, tmp_path):
    few = {"names": ["a", "b", "c"], "links": [link]}
    with pytest.raises(OddrankError, match="links"):
        saved(tmp_path, pairs(few["names"], None) | {"data": {"pairs": few}})
