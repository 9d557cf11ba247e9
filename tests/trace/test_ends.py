"""A record tells how its process ended, and recording that changes nothing."""

import re
import sys
from pathlib import Path

import pytest

from oddrank.trace import arm, jobs, ranks
from oddrank.trace.ranks import End
from oddrank.trace.where import text
from patience import until
from processes import captured
from texts import rows, texts

TEXTS = texts(__file__)

# Last statement of the script -> the end in its record.
ENDS = {
    "pass": End("exited", 0),
    "sys.exit(256 + 3)": End("exited", 3),
    "sys.exit('why')": End("exited", 1),
    "1 / 0": End("exited", 1, "ZeroDivisionError", "division by zero"),
    "raise ValueError('first\\nsecond')": End("exited", 1, "ValueError", "first"),
    "raise json.JSONDecodeError('no', '', 0)": End(
        "exited", 1, "json.decoder.JSONDecodeError", "no: line 1 column 1 (char 0)"
    ),
    "exec('try: 1 / 0\\nfinally: [].pop()')": End(
        "exited", 1, "IndexError", "pop from empty list, after ZeroDivisionError: division by zero"
    ),
    "raise ValueError('v' * 300) from OSError(28, 'full')": End(
        "exited", 1, "ValueError", f"{'v' * 159}, after OSError: [Errno 28] full"
    ),
    "raise ValueError('v' * 300) from OSError('w' * 300)": End(
        "exited", 1, "ValueError", f"{'v' * 100}, after OSError: {'w' * 74}"
    ),
    "raise ValueError('v' * 150) from OSError('full')": End(
        "exited", 1, "ValueError", f"{'v' * 150}, after OSError: full"
    ),
    "exec('try: 1 / 0\\nexcept ArithmeticError: raise KeyError(1) from None')": End(
        "exited", 1, "KeyError", "1"
    ),
    "os._exit(4)": End("no word"),
    "os.kill(os.getpid(), 9)": End("no word"),
    "os.kill(os.getpid(), 15); time.sleep(9)": End("no word"),
    "os.kill(os.getpid(), 2); time.sleep(9)": End("ending", None, "KeyboardInterrupt"),
    "atexit.register(lambda: os.kill(os.getpid(), 9))": End("ending"),
    # An interpreter in the script shows the exception; it ends nothing.
    "code.InteractiveInterpreter().runcode('1 / 0')": End("exited", 0),
    # Raised in another thread.
    "threading.Thread(target=lambda: 1 / 0).start()": End("exited", 0),
}
SCRIPT = TEXTS["script"]


def test_a_record_tells_how_its_process_ended(script):
    for statement, end in ENDS.items():
        script(SCRIPT.format(statement), check=False)
        rank = max(script.records(), key=lambda each: each.started)
        assert (rank.alive, rank.end) == (False, end), statement


def test_what_ended_a_thread_is_told_until_an_exception_ends_the_script(script, source):
    for last, end in (
        ("", End("exited", 0)),
        ("raise ValueError\n", End("exited", 1, "ValueError")),
    ):
        done = script(source + last, check=False)
        rank = max(script.records(), key=lambda each: each.started)
        assert done.stdout == "['SystemExit', 'KeyError', 'ZeroDivisionError']\n"
        assert rank.end == end
        said = re.fullmatch(
            r"its thread loader raised KeyError: 'lr', at load \(script.py:\d+\)",
            rank.thread_raised,
        )
        assert bool(said) == (not last), rank.thread_raised
        assert (f"  {rank.thread_raised}" in text([rank], "j")) == (not last)


def test_the_place_of_what_a_thread_raised_fits_into_a_record():
    name, file = 99 * "f", f"{99 * 'd/'}train.py"
    source = f"{100000 * chr(10)}def {name}(): 1 / 0\n{name}()"
    with pytest.raises(ZeroDivisionError) as raised:
        exec(compile(source, file, "exec"), {})
    place = arm._place_of(raised.tb)
    line, function, told = place.split("\n")
    assert (line, function, told) == ("100001", name[:80], file[-120:])
    assert len(f"thread {arm._LONGEST_THREAD * 'n'}\n{place}") < 256


# torch's handler of SIGCHLD raises for each worker that died, while another exception already ends
# the script.
DIES_TWICE = TEXTS["dies twice"]


def test_a_script_that_our_launcher_runs_ends_likewise(tmp_path):
    script = tmp_path / "script.py"
    line = [sys.executable, "-m", "oddrank", "run", "--no-watch", script]
    cases = {"ValueError": "raise ValueError", "KeyError": DIES_TWICE}
    if sys.version_info < (3, 11):  # it runs handlers before each bytecode: nothing can be first
        del cases["KeyError"]
    for name, source in cases.items():
        script.write_text(source)
        done = captured(line, ODDRANK_DIR=str(tmp_path / name))
        assert done.returncode == 1
        assert done.stdout == ("told KeyError True\n" if source is DIES_TWICE else "")
        ((rank,), _) = ranks.read(jobs.find([str(tmp_path / name)]).files)
        assert (rank.end.exit_code, rank.end.raised) == (1, name)


def test_children_note_their_own_ends_and_never_their_parents(script, source):
    script(source)
    found = script.records()
    assert [rank.end for rank in found if not rank.is_child] == [End("no word")]
    raised = End("ending", None, "ValueError" if sys.version_info < (3, 13) else "")
    ends = [End("ending"), raised, End("no word"), End("exited", 5)]
    assert sorted(repr(rank.end) for rank in found if rank.is_child) == sorted(map(repr, ends))


def test_a_rank_that_has_failed_and_waits_for_a_thread_says_so_alive(script, source):
    with script.running(source):
        until(lambda: script.records()[0].end.how != "no word")
        (rank,) = script.records()
    assert (rank.alive, rank.end) == (True, End("ending", None, "ValueError", "why"))
    assert "raised ValueError: why and Python is shutting" in text([rank], "j")[2]


def test_an_exited_process_is_dead_also_where_its_pid_cannot_be_looked_up(script, tmp_path):
    rank = script.rank("\n")
    boot = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    elsewhere = tmp_path / "rank0-1-1.trace"
    elsewhere.write_bytes(Path(rank.file).read_bytes().replace(boot, bytes(reversed(boot))))
    ((rank,), _) = ranks.read([elsewhere])
    assert rank.alive is False


RAISES = TEXTS["raises"]
# Body of outer() -> the place that the rank ran last.
PLACES = rows(__file__, "places")


def test_the_place_of_the_exception_or_the_last_line_is_shown_and_is_one_of_many(script):
    for body, function, line in PLACES:
        script.armed(RAISES.format(body), check=False)
        rank = max(script.records(), key=lambda each: each.started)
        assert rank.last_at is not None, body
        assert (rank.last_at.function, str(rank.last_at.line)) == (function, line), body
        place, lines = text([rank], "job")[-2:]
        assert place.startswith("    no code is running any more: last at ")
        assert place.endswith(f"/script.py:{line} in {function}")
        assert lines == f"    last lines: oddrank trace tail {rank.file}"
    # A killed one has its stack.
    script.armed(RAISES.format("os.kill(os.getpid(), 9)"))
    killed = max(script.records(), key=lambda each: each.started)
    assert (killed.last_at, script.functions(killed)) == (None, ["<module>", "outer"])
    # Ranks that raised at different places are not folded.
    shown = [line for line in text(script.records(), "job") if "last at" in line]
    assert {line.split()[-1] for line in shown} == {"inner", "outer"}
