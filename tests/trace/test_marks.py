"""oddrank.step, mark and section record what a script says, from any thread, at any time."""

import pytest

import oddrank
from oddrank import _native


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
    return [event[5] for event in events if event[2] == "mark"]


OFF = '{"*": "off"}'


def test_marks_from_many_threads_are_all_there(script):
    rank = script.rank("""
        def work(n):
            for i in range(50):
                with oddrank.section("\\u00e9" * 40):
                    oddrank.step(n * 50 + i)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        open_section = oddrank.section("left open")
        open_section.__enter__()
    """, OFF)  # fmt: skip
    assert rank.sections == ("left open",)
    marks = marks_of(rank)
    assert sorted(int(m.split()[1]) for m in marks if m.startswith("step")) == list(range(200))
    assert marks.count("begin " + "é" * 16) == 200
    assert marks.count("end " + "é" * 16) == 200


def test_a_section_is_in_the_record_while_it_is_open_however_many_marks_follow(script):
    rank = script.rank("""
        with oddrank.section("training"):
            for step in range(5000):
                with oddrank.section("forward"):
                    oddrank.step(step)
            os._exit(0)
    """, OFF)  # fmt: skip
    assert rank.sections == ("training",)
    marks = marks_of(rank)
    assert marks[0] == "begin training"
    assert marks.count("begin training") == 1
    assert marks[-2:] == ["step 4999", "end forward"]


# Scripts that record marks only, and their open sections at the end.
SECTIONS = {
    "a section entered again while it is open ends with its last exit": ("""
        inner = oddrank.section("forward")
        def descend(depth):
            with inner:
                if depth:
                    descend(depth - 1)
        descend(3)
        with oddrank.section("backward") as outer:
            with outer:
                pass
            os._exit(0)
    """, ("backward",)),
    "a section that ends while nothing is recorded does not come back": ("""
        with oddrank.section("before"):
            armed.disarm()
        oddrank.arm({"*": "off"})
        for step in range(5000):
            oddrank.step(step)
    """, ()),
}  # fmt: skip


@pytest.mark.parametrize("name", SECTIONS)
def test_sections_are_open_until_they_end(script, name):
    source, sections = SECTIONS[name]
    assert script.rank(source, OFF).sections == sections
