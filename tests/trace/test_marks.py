"""oddrank.step, mark and section record what a script says, from any thread, at any time."""

import pytest

import oddrank
from oddrank import _native
from texts import cases


def test_marks_are_nothing_without_arm_and_refuse_what_they_cannot_take():
    oddrank.step(3)
    oddrank.mark("text")
    with oddrank.section("data") as section:
        assert section is not None
    wrong = [
        (oddrank.step, ("3",)), (oddrank.mark, (3,)), (oddrank.section, (3,)),
        (oddrank.section, ()), (oddrank.section, ("a", "b")),
    ]  # fmt: skip
    for function, arguments in wrong:
        with pytest.raises(TypeError):
            function(*arguments)
    oddrank.step(-1)
    oddrank.mark("stray \udc80 byte")
    with oddrank.section("stray \udc80 byte"):
        pass


def marks_of(rank):
    _, events, _ = _native.core().trace_history(rank.file, 10_000)
    return [event[4] for event in events if event[2] == "mark"]


OFF = '{"*": "off"}'


def test_marks_from_many_threads_are_all_there(script, source):
    rank = script.rank(source, OFF)
    assert rank.sections == ("left open",)
    marks = marks_of(rank)
    assert sorted(int(m.split()[1]) for m in marks if m.startswith("step")) == list(range(200))
    assert marks.count("begin " + "é" * 16) == 200
    assert marks.count("end " + "é" * 16) == 200


def test_a_section_is_in_the_record_while_it_is_open_however_many_marks_follow(script, source):
    rank = script.rank(source, OFF)
    assert rank.sections == ("training",)
    marks = marks_of(rank)
    assert marks[0] == "begin training"
    assert marks.count("begin training") == 1
    assert marks[-2:] == ["step 4999", "end forward"]


# Scripts that record marks only, and their open sections at the end.
SECTIONS = cases(__file__)


@pytest.mark.parametrize("name", SECTIONS)
def test_sections_are_open_until_they_end(script, name):
    source, sections, _ = SECTIONS[name]
    assert script.rank(source, OFF).sections == tuple(sections.split())
