"""What people read: plain where it is not a terminal, short where all is well, harmless always."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oddrank import render
from oddrank.finding import Evidence, Who
from reports import finding, report


def shown(made, encoding="utf-8"):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict", write_through=True)
    render.report(made, stream)
    return raw.getvalue().decode(encoding)


def test_what_people_read_of_reports(golden):
    few = [finding(rank, evidence=(Evidence("seen", "there"),) * 20) for rank in range(3)]
    texts = {
        "a healthy job of a thousand ranks": shown(report(size=1000)),
        "the odd rank first, the others folded": shown(report(finding(rank=5), size=1000)),
        "a few findings whole, but not endless evidence": shown(report(*few)),
        "one rank in two findings": shown(
            report(finding(rank=0), finding(rank=0, condition="slow"), size=2)
        ),
        "of ranks that raised too it is not said that nothing was found": shown(
            report(finding(rank=2), raised=[1, 2, 4, 5], size=7)
        ),
        "all others raised": shown(report(finding(rank=2), raised=[0, 1], size=3)),
        "a deadline says who is not proven healthy by saying nothing": shown(
            report(complete=False)
        ),
    }
    assert not any("\x1b" in text for text in texts.values())
    golden("\n".join(f"=== {name}\n{text}" for name, text in texts.items()))


def test_five_hundred_dead_ranks_still_fit_a_screen():
    dead = [finding(rank=rank, condition="dead", cause="killed") for rank in range(0, 1000, 2)]
    text = shown(report(*dead, size=1000))
    assert len(text.splitlines()) < 40
    assert max(map(len, text.splitlines())) < 250
    assert "rank 0 " in text


def test_findings_of_many_kinds_fit_a_screen_too_and_what_is_left_out_is_counted():
    many = [finding(rank, cause=f"cause-{rank}", what="x" * 200) for rank in range(300)]
    text = shown(report(*many, size=1000))
    assert len(text.splitlines()) < 45
    assert "more kinds of findings in the JSON" in text


@pytest.mark.parametrize(
    "evil",
    ["\x1b[2J", "\x1b]0;title\x07", "\r", "\n", "\x9b31m", "\u202e", "\u2028", "\x00", "\udc9b"],
)
def test_nothing_in_a_text_moves_the_cursor_or_turns_it(evil):
    text = shown(report(finding(what=f"a{evil}b", who=Who("rank", (1,), evil), cause=evil)))
    assert evil not in text.replace("\n", "")
    assert any(line.startswith("a\\") and line.endswith("b") for line in text.splitlines())


def test_any_encoding_shows_any_text():
    for encoding in ("ascii", "latin-1", "utf-8"):
        assert "gr" in shown(report(finding(what="größer 大 \U0001f600 \udc80")), encoding)


@given(st.text())
def test_safe_text_is_one_printable_line_and_safe_again(text):
    once = render.safe(text)
    assert once.isprintable()
    assert len(once.splitlines()) <= 1
    assert render.safe(once) == once or len(text) > 1000


def test_an_endless_text_is_cut_and_says_so():
    assert "(9000 more characters)" in render.safe("x" * 10_000)


def shown_table(columns, rows, **options):
    stream = io.StringIO()
    render.table(columns, rows, stream, **options)
    return stream.getvalue()


WIDE = ["stage", "ranks", "seconds", "result"]
STAGES = [["speed", "4/4", "2.9", "slow"], ["links", "-", "-", "not run: " + "no link, " * 20]]


def test_a_table_aligns_numbers_to_the_right_and_wraps_its_texts_to_fit(monkeypatch, golden):
    rows = [["8 B", 1.5, "ok"], ["256 MiB", 12000, None]]
    texts = [shown_table(["bytes", "median_us", "check"], rows, title="all_reduce")]
    texts += [shown_table(["a", "b"], []), whole := shown_table(WIDE, STAGES)]
    monkeypatch.setenv("COLUMNS", "60")
    texts.append(shown_table(WIDE, STAGES))
    assert max(map(len, texts[-1].splitlines())) <= 60 < max(map(len, whole.splitlines()))
    golden("\n".join(texts))


def test_a_table_of_many_numbers_comes_in_parts_each_with_the_first_column(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    columns = ["node", *(f"node{i}" for i in range(16))]
    rows = [[f"node{i}", *(f"{i}.{k:05d}" for k in range(16))] for i in range(3)]
    text = shown_table(columns, rows, title="GB/s")
    assert max(map(len, text.splitlines())) <= 60
    assert text.count("node2") == text.count("\n\n") + 1 + 1  # a row of each part, and a heading
    assert all(cell in text for row in rows for cell in row)


def test_each_part_of_a_table_has_the_columns_that_tell_its_rows_apart(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    columns = ["size", "collective", *(f"figure {i}" for i in range(8))]
    rows = [[f"{1 << i} MiB", name, *(f"{i}.{k}23456" for k in range(8))]
            for name in ("all_reduce", "all_gather") for i in range(3)]  # fmt: skip
    parts = shown_table(columns, rows).split("\n\n")
    assert len(parts) > 1
    for part in parts:
        assert max(map(len, part.splitlines())) <= 60
        assert part.count("all_gather") == part.count("all_reduce") == 3


# No text that begins like a number: a column of numbers is never cut.
TEXT_OR_NUMBER = (
    st.text(max_size=200).map(lambda text: f"x{text}")
    | st.integers(-99_999_999, 99_999_999)
    | st.none()
)


@given(st.lists(st.lists(TEXT_OR_NUMBER, min_size=5, max_size=5), max_size=5), st.integers(60, 200))
def test_no_table_of_short_numbers_is_wider_than_the_terminal(rows, width):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        lines = shown_table(["a", "b", "c", "d", "e"], rows).splitlines()
    assert max(map(len, lines)) <= width


def test_a_long_list_of_ranks_is_cut_behind_a_rank():
    text = shown(report(*(finding(rank) for rank in range(0, 400, 2)), size=402))
    assert ",..." not in text
    assert ", ..." in text


def test_numbers_have_no_exponent_that_people_must_work_out():
    for value, text in (
        (3600.4, "3600"), (12345.6, "12346"), (1.23456, "1.235"), (0.0, "0"), (-98765.4, "-98765"),
    ):  # fmt: skip
        evidence = Evidence("seen", "there", value, "s")
        assert f"seen: {text} s [there]" in shown(report(finding(evidence=(evidence,))))
