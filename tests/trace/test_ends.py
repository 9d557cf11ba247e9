"""How a process ended, as far as its record can tell; and that telling it changes nothing."""

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
from waiting import until

NO_WORD = "dead without a word (killed, crashed or os._exit), last event at "
# What the script does at its end -> what its record says, and how `trace where` says it.
ENDS = {
    "pass": (End("exited", 0), "dead: ended with exit code 0, last event at "),
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
    # Shown by an interpreter within the script: it has ended nothing.
    "code.InteractiveInterpreter().runcode('1 / 0')": (End("exited", 0), "dead: ended with "),
    # Of another thread.
    "threading.Thread(target=lambda: 1 / 0).start()": (End("exited", 0), "dead: ended with "),
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
def test_a_record_tells_what_its_process_could_say_of_its_end(end, script):
    script(SCRIPT.format(end), check=False)
    (rank,) = script.records()
    expected, said = ENDS[end]
    assert (rank.alive, rank.end) == (False, expected)
    assert said in text([rank], "job")[2]


def test_a_script_that_our_launcher_runs_ends_likewise(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("def fails():\n    raise ValueError\nfails()\n")
    done = subprocess.run(
        [sys.executable, "-m", "oddrank", "trace", "run", script],
        env={**os.environ, "ODDRANK_DIR": str(tmp_path / "records")},
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    ((rank,), _) = ranks.read(jobs.find([str(tmp_path / "records")]).files)
    assert rank.end == End("exited", 1, "ValueError")


def test_children_tell_of_themselves_and_never_of_their_parent(script):
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


def test_a_record_of_an_older_version_is_read_and_claims_nothing(script, tmp_path):
    script(SCRIPT.format("os.kill(os.getpid(), 9)"), check=False)
    (now,) = script.records()
    record = bytearray(Path(now.file).read_bytes())
    assert struct.unpack_from("<8sI", record) == (b"oddrank\n", 2)
    for version, readable in ((1, True), (3, False)):
        struct.pack_into("<I", record, 8, version)
        old = tmp_path / Path(now.file).name
        old.write_bytes(record)
        found, refused = ranks.read([old])
        assert [rank.end for rank in found] == [End()] * readable
        stacks = [[thread.stack for thread in rank.threads] for rank in (now, *found)]
        assert stacks == stacks[:1] * (1 + readable)
        assert len(refused) == (not readable)
    assert "has version 3 and this oddrank reads versions 1 to 2" in refused[old]


def test_an_exited_process_is_dead_also_where_its_pid_cannot_be_looked_up(script, tmp_path):
    script(SCRIPT.format("pass"))
    (now,) = script.records()
    record = Path(now.file).read_bytes()
    boot = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    elsewhere = tmp_path / "rank0-1-1.trace"
    elsewhere.write_bytes(record.replace(boot, bytes(reversed(boot))))
    ((rank,), _) = ranks.read([elsewhere])
    assert rank.alive is False


def test_signals_by_default_are_no_words(script):
    done = script(SCRIPT.format("os.kill(os.getpid(), 15); time.sleep(9)"), check=False)
    assert done.returncode == -signal.SIGTERM
    assert script.records()[0].end == End("no word")
