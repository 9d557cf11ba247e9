"""The envelope fits its schema, and the file is whole or absent."""

import json
import os
import re
import stat

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oddrank import OddrankError
from oddrank.report import SCHEMA_FILE, Report, check_writable, envelope, write_json
from reports import DATA, finding, report

SCHEMA = json.loads(SCHEMA_FILE.read_text())
CHECKER = jsonschema.Draft202012Validator(SCHEMA)


def test_the_schema_is_one():
    CHECKER.check_schema(SCHEMA)


def test_every_verdict_fits_the_schema(tmp_path):
    unknown = finding(condition="unknown")
    for made in (
        report(), report(finding()), report(finding(), unknown, complete=False), report(unknown),
        report(complete=False),
    ):  # fmt: skip
        write_json(made.envelope(), tmp_path / "report.json")
        CHECKER.validate(json.loads((tmp_path / "report.json").read_text()))
    # A command that shows, and does not judge.
    CHECKER.validate(envelope("mine", {}, {"parts": []}))


def test_the_schema_knows_the_data_of_each_tool():
    for tool, data in (
        ("selftest", {key: DATA[key] for key in DATA if key != "ranks"}),
        ("selftest", {**DATA, "ranks": [{"rank": -1, "host": "a", "metrics": {}}]}),
        ("selftest", {**DATA, "nodes": [{"host": "a", "ranks": "0 to 3", "joined_s": 1.0}]}),
        ("bench", {}), ("bench", {"rows": [{"collective": "all_reduce"}]}),
        ("bench compare", {"a": "a.json", "b": "b.json"}), ("doctor", {"parts": {}}),
        ("logs split", {"files": []}), ("logs merge", {"files": [], "lines": -1}),
        ("logs first-error", {"order": "alphabet", "said": [], "skipped": []}),
        ("switch status", {"orders": [{"word": "explode"}], "jobs": []}),
        ("trace where", {"job": "1", "ranks": [{"rank": 0}]}),
    ):  # fmt: skip
        assert not CHECKER.is_valid(envelope(tool, {}, data)), tool


def test_every_tool_that_writes_a_report_has_its_data_in_the_schema():
    written = re.compile(r'(?:envelope|Report\.of|Report\.concluding)\(\s*"([a-z -]+)"')
    sources = SCHEMA_FILE.parent.rglob("*.py")
    tools = {name for file in sources for name in written.findall(file.read_text())}
    known = {rule["if"]["properties"].get("tool", {}).get("const") for rule in SCHEMA["allOf"]}
    assert tools
    assert tools <= known


def test_what_is_no_report_does_not_fit_the_schema():
    for wrong in (
        {"verdict": "fine"}, {"verdict": "healthy"}, {"findings": []}, {"summary": None},
        {"extra": 1}, {"world": {"size": 0}},
    ):  # fmt: skip
        assert not CHECKER.is_valid(report(finding()).envelope() | wrong), wrong


@given(st.floats(), st.text(), st.dictionaries(st.text(), st.floats() | st.text()))
def test_any_number_and_any_text_become_json(value, text, data):
    made = Report.of("bench", {"size": 2}, data, [finding(what=text or "x")], complete=True)
    path = f"/dev/shm/oddrank-test-{os.getpid()}.json"
    try:
        write_json({**made.envelope(), "value": value}, path)
        with open(path, encoding="ascii") as file:
            read = json.load(file, parse_constant=pytest.fail)
    finally:
        os.unlink(path)
    assert read["findings"][0]["what"] == (text or "x")
    assert read["value"] == (value if abs(value) < float("inf") else None)


def test_numbers_of_numpy_are_numbers(tmp_path):
    numpy = pytest.importorskip("numpy")
    write_json({"a": numpy.int64(3), "b": numpy.float32("nan")}, tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": 3, "b": None}


def test_the_umask_decides_who_may_read_it(tmp_path):
    before = os.umask(0o027)
    try:
        write_json({}, tmp_path / "report.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "report.json").stat().st_mode) == 0o640


def test_a_link_is_written_through(tmp_path):
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    write_json({"a": 1}, tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text()) == {"a": 1}


def test_a_pipe_is_written_and_not_replaced(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    check_writable(str(path))
    write_json({"a": 1}, path)
    assert json.loads(os.read(reader, 100)) == {"a": 1}
    os.close(reader)
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_what_can_not_be_written_is_refused_in_one_line_and_nothing_is_left(
    tmp_path, monkeypatch, golden
):
    def refusal(write, name):
        with pytest.raises(OddrankError) as caught:
            write(name)
        return f"{name[:20] or 'nothing'}: {str(caught.value).replace('a' * 290, '')}"

    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    said = [
        refusal(write, name)
        for name in ("absent/report.json", ".", "", "a" * 300, "file/report.json")
        for write in (check_writable, lambda path: write_json({}, path))
    ]
    said.append(refusal(lambda path: write_json({}, path), "/dev/full"))
    assert all("\n" not in one for one in said)
    golden("\n".join(said))
    assert os.listdir(tmp_path) == ["file"]
