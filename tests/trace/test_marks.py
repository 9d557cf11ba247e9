"""oddrank.step, mark and section record what a script says, from any thread, at any time."""

import pytest

from oddrank import _native


def test_marks_are_nothing_without_arm_and_refuse_what_they_cannot_take():
    import oddrank

    oddrank.step(3)
    oddrank.mark("text")
    with oddrank.section("data") as section:
        assert section is not None
    wrong = [
        (oddrank.step, ("3",)),
        (oddrank.mark, (3,)),
        (oddrank.section, (3,)),
        (oddrank.section, ()),
        (oddrank.section, ("a", "b")),
    ]
    for function, arguments in wrong:
        with pytest.raises(TypeError):
            function(*arguments)
    oddrank.step(-1)
    oddrank.mark("stray \udc80 byte")
    with oddrank.section("stray \udc80 byte"):
        pass


def test_marks_from_many_threads_are_all_there(script):
    script(
        """
        import threading
        import oddrank
        oddrank.arm({"*": "off"})
        def work(n):
            for i in range(50):
                with oddrank.section("\\u00e9" * 40):
                    oddrank.step(n * 50 + i)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        open_section = oddrank.section("left open")
        open_section.__enter__()
        """
    )
    (rank,) = script.records()
    assert rank.sections == ("left open",)

    _, events, _ = _native.core().trace_history(rank.file, 10_000)
    marks = [event[5] for event in events if event[2] == 0]
    assert sorted(int(m.split()[1]) for m in marks if m.startswith("step")) == list(range(200))
    assert marks.count("begin " + "é" * 16) == 200
    assert marks.count("end " + "é" * 16) == 200
