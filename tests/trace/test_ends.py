"""A record tells how its process ended, and recording that changes nothing."""

import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from oddrank.trace import jobs, ranks
from oddrank.trace.ranks import End
from oddrank.trace.where import text
from patience import until

NO_WORD = "dead: killed, crashed or os._exit(), last event at "
# Last statement of the script -> the end in its record, and in `trace where`.
ENDS = {
    "pass": (End("exited", 0), "finished, last event at "),
    "sys.exit(3)": (End("exited", 3), "dead: ended with exit code 3, "),
    "sys.exit('why')": (End("exited", 1), "dead: ended with exit code 1, "),
    "1 / 0": (
        End("exited", 1, "ZeroDivisionError"), "dead: raised ZeroDivisionError (exit code 1), "
    ),
    "raise json.JSONDecodeError('no', '', 0)": (
        End("exited", 1, "json.decoder.JSONDecodeError"),
        "dead: raised json.decoder.JSONDecodeError (exit code 1), ",
    ),
    "os._exit(4)": (End("no word"), NO_WORD),
    "os.kill(os.getpid(), 9)": (End("no word"), NO_WORD),
    "os.kill(os.getpid(), 2); time.sleep(9)": (
        End("ending", None, "KeyboardInterrupt"), "dead: raised KeyboardInterrupt, "
    ),
    "atexit.register(lambda: os.kill(os.getpid(), 9))": (
        End("ending"), "dead: killed or crashed after its script's end, "
    ),
    # An interpreter in the script shows the exception; it ends nothing.
    "code.InteractiveInterpreter().runcode('1 / 0')": (End("exited", 0), "finished, "),
    # Raised in another thread.
    "threading.Thread(target=lambda: 1 / 0).start()": (End("exited", 0), "finished, "),
}  # fmt: skip
SCRIPT = """
import atexit, code, json, os, sys, threading, time
import oddrank
with oddrank.arm():
    before = time.time()
oddrank.arm()
assert sys.excepthook is sys.__excepthook__
def end():
    {}
end()
"""


@pytest.mark.parametrize("end", ENDS)
def test_a_record_tells_how_its_process_ended(end, script):
    script(SCRIPT.format(end), check=False)
    (rank,) = script.records()
    expected, said = ENDS[end]
    assert (rank.alive, rank.end) == (False, expected)
    assert said in text([rank], "job")[2]


def test_a_script_that_our_launcher_runs_ends_likewise(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("def fails():\n    raise ValueError\nfails()\n")
    done = subprocess.run(
        [sys.executable, "-m", "oddrank", "run", "--no-watch", script],
        env={**os.environ, "ODDRANK_DIR": str(tmp_path / "records")},
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    ((rank,), _) = ranks.read(jobs.find([str(tmp_path / "records")]).files)
    assert rank.end == End("exited", 1, "ValueError")


def test_children_note_their_own_ends_and_never_their_parents(script):
    script(
        """
        import multiprocessing, os, signal, sys
        import oddrank
        def returns():
            pass
        def raises():
            raise ValueError
        def killed():
            os.kill(os.getpid(), signal.SIGKILL)
        if __name__ == "__main__":
            oddrank.arm()
            fork = multiprocessing.get_context("fork")
            for target in (returns, raises, killed):
                process = fork.Process(target=target)
                process.start()
                process.join()
            child = os.fork()
            if child == 0:
                returns()
                sys.exit(5)
            os.waitpid(child, 0)
            os._exit(0)
        """
    )
    found = script.records()
    (parent,) = [rank for rank in found if not rank.is_child]
    assert parent.end == End("no word")
    children = sorted((rank for rank in found if rank.is_child), key=lambda rank: rank.started)
    ends = [rank.end for rank in children]
    assert sorted(map(repr, ends)) == sorted(
        map(repr, [End("ending"), End("ending"), End("no word"), End("exited", 5)])
    )


def test_a_rank_that_has_failed_and_waits_for_a_thread_says_so_alive(script):
    process = script(
        """
        import sys, threading
        import oddrank
        oddrank.arm()
        threading.Thread(target=sys.stdin.readline).start()
        raise ValueError("why")
        """,
        wait=False,
        stdin=subprocess.PIPE,
    )
    try:
        while not process.stderr.readline().startswith("ValueError"):
            pass
        until(lambda: script.records()[0].end.how != "no word")
        (rank,) = script.records()
    finally:
        process.communicate("\n", timeout=30)
    assert (rank.alive, rank.end) == (True, End("ending", None, "ValueError"))
    assert (
        "alive, but its script has raised ValueError and Python is shutting" in text([rank], "j")[2]
    )


@pytest.mark.parametrize("version", [3, 5])
def test_a_record_of_another_version_is_refused(script, tmp_path, version):
    script(SCRIPT.format("os.kill(os.getpid(), 9)"), check=False)
    (now,) = script.records()
    record = bytearray(Path(now.file).read_bytes())
    assert struct.unpack_from("<8sI", record) == (b"oddrank\n", 4)
    struct.pack_into("<I", record, 8, version)
    other = tmp_path / Path(now.file).name
    other.write_bytes(record)
    found, refused = ranks.read([other])
    assert not found
    assert f"has version {version} and this oddrank reads version 4" in refused[other]


def test_an_exited_process_is_dead_also_where_its_pid_cannot_be_looked_up(script, tmp_path):
    script(SCRIPT.format("pass"))
    (now,) = script.records()
    record = Path(now.file).read_bytes()
    boot = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    elsewhere = tmp_path / "rank0-1-1.trace"
    elsewhere.write_bytes(record.replace(boot, bytes(reversed(boot))))
    ((rank,), _) = ranks.read([elsewhere])
    assert rank.alive is False


def test_a_death_by_signal_leaves_no_word(script):
    done = script(SCRIPT.format("os.kill(os.getpid(), 15); time.sleep(9)"), check=False)
    assert done.returncode == -signal.SIGTERM
    assert script.records()[0].end == End("no word")


RAISES = """
import atexit
import oddrank
oddrank.arm()

def inner(number):
    if number:
        raise ValueError("why")

def later():
    return 1

atexit.register(later)

def outer():
    {}

outer()
"""
# Body of outer() -> the place that the rank ran last.
PLACES = {
    "inner(1)": ("inner", 8),
    "pass": ("later", 11),
    "later()\n    raise ValueError": ("outer", 17),
    "with oddrank.section('a'):\n        inner(1)": ("inner", 8),
    "try:\n        inner(1)\n    finally:\n        x = 1": ("inner", 8),
    "try:\n        inner(1)\n    except OSError:\n        x = 1": ("inner", 8),
    "try:\n        inner(1)\n    except ValueError:\n        x = 1\n    x + '1'": ("outer", 20),
    "for i in range(9):\n        inner(i == 8)": ("inner", 8),
    "int('no')": ("outer", 16),
}


@pytest.mark.parametrize("body", PLACES)
def test_the_place_of_the_exception_or_the_last_line_is_shown(body, script):
    script(RAISES.format(body), check=False)
    (rank,) = script.records()
    function, line = PLACES[body]
    assert rank.last_at is not None
    assert (rank.last_at.function, rank.last_at.line) == (function, line)
    lines = text([rank], "job")
    assert lines[-2].endswith(f"/script.py:{line} in {function}")
    assert lines[-2].startswith("    no code is running any more: last at ")
    assert lines[-1] == f"    last lines: oddrank trace tail {rank.file}"


def test_ranks_that_raised_at_different_places_are_not_folded(script):
    script(RAISES.format("inner(1)"), check=False)
    script(RAISES.format("int('no')"), check=False)
    shown = [line for line in text(script.records(), "job") if "last at" in line]
    assert len(shown) == 2


def test_a_killed_rank_has_its_stack_and_needs_no_last_place(script):
    script(RAISES.format("import os; os.kill(os.getpid(), 9)"), check=False)
    (rank,) = script.records()
    assert rank.last_at is None
    assert script.functions(rank) == ["<module>", "outer"]
