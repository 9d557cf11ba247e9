"""The table of variables is whole: each row explained, sourced, and known to the white list."""

import re

from oddrank.advise import checks
from oddrank.advise.variables import FAMILIES, KNOWN, TABLE, rows
from oddrank.machine.settings import SETTINGS

UNDOCUMENTED = {"NCCL_GRAPH_FILE"}  # NCCL reads it, and its guide does not have it


def test_a_row_says_what_the_variable_does_and_where_that_is_documented():
    for row in TABLE.values():
        assert row.does, row.name
        assert row.source, row.name
        assert row.name.startswith(FAMILIES)
        assert len(row.does) <= 120, row.name
        for version in filter(None, (row.since, row.until)):
            assert re.fullmatch(r"(NCCL|torch) \d+\.\d+(\.\d+)?", version), row.name
        assert not row.instead or row.instead in TABLE, row.name


def test_every_setting_that_reports_show_is_explained():
    assert {*SETTINGS} - {*TABLE} == UNDOCUMENTED


def test_no_variable_has_two_rows():
    names = [row.name for row in rows()]
    assert len(names) == len(set(names)) == len(TABLE)


def test_checks_name_known_variables():
    named = {*checks.LEFT_OVER, *checks.TWO_NAMES, *checks.TWO_NAMES.values()}
    assert named <= KNOWN
    assert {*checks.LEFT_OVER} <= {*TABLE}


def test_every_cause_has_a_source_and_something_to_type():
    for cause in checks.CAUSES.values():
        assert cause.source
        assert cause.why
        assert all(re.match(r"export |unset |oddrank ", command) for command in cause.next)
        assert cause.next
