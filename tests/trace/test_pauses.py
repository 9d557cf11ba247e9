"""A pause on purpose is in the record while it lasts, whole, and no section of the user's."""

import pytest

from oddrank import pauses
from oddrank.pauses import Pause, Paused
from oddrank.trace.where import text
from texts import texts

OFF = '{"*": "off"}'
NOTED = texts(__file__)["noted"]


@pytest.mark.parametrize(
    "folder", ["/shared/run17", "/shared/" + "é" * 70, "a b/" * 25, "+x:" * 20, "", "💥" * 30]
)
def test_a_pause_is_in_the_record_however_long_its_text_and_whatever_follows(script, folder):
    rank = script.rank(NOTED.replace("FOLDER", repr(folder)), OFF)
    assert rank.sections == ("mine",)
    assert rank.pause is not None
    assert (rank.pause.kind, rank.pause.seconds, rank.pause.what) == ("breakpoint", 86400.0, folder)
    assert rank.as_data()["pause"]["what"] == folder
    shown = "\n".join(text([rank], "j"))
    assert f"  stands in a breakpoint ({folder}), on purpose, since " in shown


def test_a_longer_text_is_cut():
    (names, pause) = pauses.parted(
        [(n, 1, 5 * 10**9) for n in pauses._names("waits 1 " + "x" * 999)]
    )
    assert names == []
    assert pause is not None
    assert len(pause.what) < 200
    assert pause.what.endswith("...")
    assert pause.since == 5.0


def test_a_process_that_is_not_armed_notes_nothing_and_goes_on():
    with Paused("breakpoint", 60.0, "train.py:41"):
        pass


# Names of open sections and their threads -> the pause that they note.
NOTES = [
    *(([(name, 1)], None) for name in (
        "oddrank:", "oddrank:waits", "oddrank:nap 3 x", "oddrank:waits x y", "oddrank:+ab",
        "oddrank:waits nan x", "oddrank:waits inf 1", "oddrank:waits 0 1", "oddrank:waits -1 1",
    )),
    # The last of several counts.
    ([("oddrank:waits 60 1", 1), ("oddrank:breakpoint 9.5 train.", 1), ("oddrank:+py:41", 1)],
     Pause("breakpoint", 9.5, "train.py:41", 1.0)),
    # A text goes on in sections of its own thread only.
    ([("oddrank:breakpoint 9.5 train.", 1), ("oddrank:waits 60 1", 2), ("oddrank:+py:41", 1),
      ("oddrank:+0", 2), ("oddrank:+ab", 3)], Pause("waits", 60.0, "10", 1.0)),
    ([("oddrank:breakpoint 9.5 train.", 1), ("oddrank:+py:41", 1), ("oddrank:+ab", 3)],
     Pause("breakpoint", 9.5, "train.py:41", 1.0)),
]  # fmt: skip


def test_sections_that_note_a_pause_are_no_sections_and_what_notes_none_is_neither():
    for names, expected in NOTES:
        sections = [(name, thread, 10**9) for name, thread in (*names, ("mine", 1))]
        assert pauses.parted(sections) == (["mine"], expected), names


def test_a_pause_that_is_closed_does_not_begin_again(script, source):
    rank = script.rank(source, OFF)
    assert rank.pause is not None
    assert rank.pause.what == "/again"


def test_threads_that_begin_and_end_a_pause_at_once_leave_none_open(script, source):
    rank = script.rank(source, OFF)
    assert rank.pause is not None
    assert rank.pause.what == "/shared/" + "x" * 100


def test_a_pause_ends_by_its_deadline_as_far_as_times_tell():
    pause = Pause("breakpoint", 100.0, "train.py:41", since=1000.0)
    assert not pause.is_over(1100.0)
    assert pause.is_over(1200.0)
    assert not pause.is_over(None)
    assert not Pause("breakpoint", 100.0, "train.py:41").is_over(9999.0)
