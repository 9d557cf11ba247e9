"""A pause on purpose is in the record while it lasts, whole, and no section of the user's."""

from dataclasses import replace

import pytest

from oddrank import _native, pauses
from oddrank.pauses import Pause, Paused
from oddrank.trace import ranks
from oddrank.trace.where import text

NOTED = """
    import oddrank, os, time
    from oddrank.pauses import Paused
    oddrank.arm({"*": "off"})
    with Paused("switch", 60.0, "/over"):
        pass
    paused = Paused("switch", 86400.0, FOLDER)
    for _ in range(2):  # a second begin or end does nothing
        paused.begin()
    oddrank.section("mine").__enter__()
    for step in range(5000):  # more marks than the record holds
        oddrank.step(step)
"""


@pytest.mark.parametrize(
    "folder", ["/shared/run17", "/shared/" + "é" * 70, "a b/" * 25, "+x:" * 20, "", "💥" * 30]
)
def test_a_pause_is_in_the_record_however_long_its_text_and_whatever_follows(script, folder):
    script(NOTED.replace("FOLDER", repr(folder)))
    (rank,) = script.records()
    assert rank.sections == ("mine",)
    assert rank.pause is not None
    assert (rank.pause.kind, rank.pause.seconds, rank.pause.what) == ("switch", 86400.0, folder)
    assert rank.as_data()["pause"]["what"] == folder
    # The judge of `oddrank run` has a slim copy.
    slim = script.folder / "slim.trace"
    slim.write_bytes(_native.core().trace_slim(rank.file))
    (copy,) = ranks.read([slim])[0]
    assert copy.pause is not None
    # The copy has other pairs of clocks to tell a time by.
    assert copy.pause.since == pytest.approx(rank.pause.since, rel=1e-12)
    assert replace(copy.pause, since=rank.pause.since) == rank.pause


def test_a_longer_text_is_cut():
    (names, pause) = pauses.parted(
        [(n, 1, 5 * 10**9) for n in pauses._names("switch 1 " + "x" * 999)]
    )
    assert names == []
    assert pause is not None
    assert len(pause.what) < 200
    assert pause.what.endswith("...")
    assert pause.since == 5.0


def test_a_process_that_is_not_armed_notes_nothing_and_goes_on():
    with Paused("breakpoint", 60.0, "train.py:41"):
        pass


@pytest.mark.parametrize(
    "name",
    [
        "oddrank:", "oddrank:switch", "oddrank:nap 3 x", "oddrank:switch x y", "oddrank:+ab",
        "oddrank:switch nan x", "oddrank:waits inf 1", "oddrank:waits 0 1", "oddrank:waits -1 1",
    ],
)  # fmt: skip
def test_what_notes_no_pause_is_none_and_no_section(name):
    assert pauses.parted([(name, 1, None), ("mine", 1, None)]) == (["mine"], None)


def test_the_last_of_several_pauses_counts():
    names = ["oddrank:waits 60 1", "oddrank:breakpoint 9.5 train.", "oddrank:+py:41"]
    (_, pause) = pauses.parted([(name, 1, 10**9) for name in names])
    assert pause == Pause("breakpoint", 9.5, "train.py:41", 1.0)


def test_a_text_goes_on_in_sections_of_its_own_thread_only():
    names = [
        ("oddrank:breakpoint 9.5 train.", 1), ("oddrank:waits 60 1", 2), ("oddrank:+py:41", 1),
        ("oddrank:+0", 2), ("oddrank:+ab", 3),
    ]  # fmt: skip
    (_, pause) = pauses.parted([(name, thread, 10**9) for name, thread in names])
    assert pause == Pause("waits", 60.0, "10", 1.0)
    (_, pause) = pauses.parted([(name, thread, 10**9) for name, thread in names if thread != 2])
    assert pause == Pause("breakpoint", 9.5, "train.py:41", 1.0)


def test_a_pause_that_is_closed_does_not_begin_again(script):
    script("""
        import oddrank, threading
        from oddrank.pauses import Paused
        oddrank.arm({"*": "off"})
        paused = Paused("waits", 60.0, "1")
        for _ in range(2):  # it may begin again after end()
            paused.begin()
            paused.end()
        again = Paused("switch", 60.0, "/again")
        again.begin()
        again.end()
        again.begin()
        paused.close()
        late = threading.Thread(target=paused.begin)
        late.start()
        late.join()
    """)
    (rank,) = script.records()
    assert rank.pause is not None
    assert rank.pause.what == "/again"


def test_threads_that_begin_and_end_a_pause_at_once_leave_none_open(script):
    script("""
        import oddrank, sys, threading
        from oddrank.pauses import Paused
        sys.setswitchinterval(1e-6)
        oddrank.arm({"*": "off"})
        paused = Paused("switch", 60.0, "/shared/" + "x" * 100)
        def toggles():
            for _ in range(2000):
                paused.begin()
                paused.end()
        threads = [threading.Thread(target=toggles) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert not paused._is_open
        paused.begin()
    """)
    (rank,) = script.records()
    assert rank.pause is not None
    assert rank.pause.what == "/shared/" + "x" * 100


def test_a_pause_ends_by_its_deadline_as_far_as_times_tell():
    pause = Pause("breakpoint", 100.0, "train.py:41", since=1000.0)
    assert not pause.is_over(1100.0)
    assert pause.is_over(1200.0)
    assert not pause.is_over(None)
    assert not Pause("breakpoint", 100.0, "train.py:41").is_over(9999.0)


def test_where_shows_a_pause(script):
    script(NOTED.replace("FOLDER", "'/shared/run17'"))
    found = script.records()
    assert "  paused by the switch /shared/run17, on purpose, since " in "\n".join(text(found, "j"))
