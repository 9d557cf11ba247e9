"""A switch in a job of one rank: files, signals, forks, file systems that hang."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jsonschema
import pytest

import oddrank
from dead_fuse import dead_file_system
from oddrank.errors import OddrankError
from oddrank.report import SCHEMA_FILE
from oddrank.switches import agreement, job_reports, order_file
from oddrank.switches import switch as switch_module
from oddrank.switches.agreement import SwitchError
from oddrank.triage import report as triage
from patience import until


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(agreement, "_EVERY", 0.02)
    monkeypatch.setattr(switch_module, "_READ_EVERY", 0.02)
    monkeypatch.setattr(switch_module, "_REPORT_EVERY", 0.02)
    # A start that waits no longer goes on without the order.
    monkeypatch.setattr(switch_module, "_FIRST_READ_SECONDS", 60.0)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run17"


def write(folder, word):
    order_file.write(folder, word, "*", "alice@login1")


def obeys(switch):
    """Polls until there is an order; returns it."""
    found = []

    def polls():
        time.sleep(1e-3)
        word = switch.poll()
        found.extend([word] if word else [])
        return found

    until(polls)
    return found[0]


def test_an_order_is_obeyed_once_and_shown(folder):
    with oddrank.switch(folder) as switch:
        for _ in range(1000):
            assert switch.poll() == ""
        write(folder, "save")
        assert obeys(switch) == "save"
        at = switch.steps
        until(lambda: "last order: save" in job_reports.reports(folder)[0].state)
        for _ in range(100):
            time.sleep(1e-3)
            assert switch.poll() == ""
        write(folder, "kill")
        assert obeys(switch) == "kill"
        assert switch.steps > at
    until(lambda: shown(folder) == "has ended")


def test_a_pause_waits_until_it_is_taken_back(folder):
    with oddrank.switch(folder) as switch:
        write(folder, "pause")
        paused = threading.Event()

        def resumes():
            until(lambda: shown(folder).startswith("paused after call"))
            paused.set()
            write(folder, "resume")

        other = threading.Thread(target=resumes)
        other.start()
        until(lambda: (switch.poll(), paused.is_set())[1])
        other.join(60)


def test_a_pause_ends_after_its_time_and_does_not_come_again(folder):
    with oddrank.switch(folder, pause_seconds=0.2) as switch:
        write(folder, "pause")
        until(lambda: (switch.poll(), "last order: pause" in shown(folder))[1])
        for _ in range(100):
            time.sleep(1e-3)
            switch.poll()


def shown(folder):
    found = job_reports.reports(folder)
    return found[0].state if found else ""


def test_a_job_that_starts_under_a_kill_is_refused_also_if_a_save_was_ordered_since(folder):
    order_file.prepare(folder)
    write(folder, "kill")
    write(folder, "save")
    with pytest.raises(SwitchError, match=r"says kill \(alice@login1, .*oddrank switch off"):
        oddrank.switch(folder)
    write(folder, "off")
    with oddrank.switch(folder) as switch:
        switch.poll()


def test_a_job_that_starts_under_a_pause_waits_too(folder):
    order_file.prepare(folder)
    write(folder, "pause")
    with oddrank.switch(folder) as switch:
        taken_back = threading.Event()

        def resumes():
            until(lambda: shown(folder).startswith("paused after call"))
            write(folder, "resume")
            taken_back.set()

        other = threading.Thread(target=resumes)
        other.start()
        until(lambda: (switch.poll(), taken_back.is_set())[1])
        other.join(60)


def test_a_save_a_dump_and_a_kill_of_one_moment_are_all_obeyed(folder):
    with oddrank.switch(folder) as switch:
        for word in ("save", "dump"):
            write(folder, word)
        assert obeys(switch) == "save"
        until(lambda: list(folder.glob("dump-*/rank0.txt")))
        write(folder, "kill")
        write(folder, "save")
        assert obeys(switch) == "kill"


@pytest.mark.parametrize("text", [b"blub\n", b"\x00\x01\x02\n" * 10**4], ids=["word", "bytes"])
def test_a_job_does_not_start_while_an_order_can_t_be_read(folder, text):
    order_file.prepare(folder)
    (folder / "order").write_bytes(text)
    with pytest.raises(SwitchError, match=r"order can't be read: .*/order says '"):
        oddrank.switch(folder)
    assert command("check", folder).returncode == 2
    write(folder, "off")
    with oddrank.switch(folder) as switch:
        switch.poll()


def test_a_new_folder_is_named_and_its_parent_must_be_there(folder, capfd):
    with pytest.raises(SwitchError, match=r"does not exist\. Check the path"):
        oddrank.switch(folder / "a")
    assert not folder.exists()
    with oddrank.switch(folder):
        assert capfd.readouterr().err.count("this folder is new") == 1
    with oddrank.switch(folder):
        assert "new" not in capfd.readouterr().err


@pytest.mark.parametrize("path", [None, "", 3])
def test_what_names_no_folder_is_refused(path):
    with pytest.raises(OddrankError, match=r"oddrank.switch\(.*give "):
        oddrank.switch(path)


@pytest.mark.parametrize("word", ["save", "dump"])
def test_what_an_earlier_job_was_told_once_is_not_for_the_next_one(folder, word):
    order_file.prepare(folder)
    write(folder, word)
    with oddrank.switch(folder) as switch:
        for _ in range(200):
            time.sleep(1e-3)
            assert switch.poll() == ""
    assert not list(folder.glob("dump-*"))


def test_a_dump_is_written_while_the_rank_hangs_and_triage_reads_it(folder):
    with oddrank.switch(folder):
        write(folder, "dump")
        until(lambda: list(folder.glob("dump-*/rank0.txt")))
        (dump,) = folder.glob("dump-*")
        until(lambda: "test_a_dump_is_written" in (dump / "rank0.txt").read_text())
    found = triage.read([str(dump)])
    assert next(iter(triage.tree_lines(found))) == "stacks of 1 process"
    # The tree leaves out the middle of a deep stack: the main thread may be anywhere in glob().
    frames = [frame for stack in found.view.stacks for frame in stack.frames]
    assert any(frame.file.endswith("test_switch.py") for frame in frames)


def test_a_shell_s_order_is_enough(folder):
    with oddrank.switch(folder) as switch:
        subprocess.run(["sh", "-c", f"echo kill > {folder}/order"], check=True, timeout=60)
        assert obeys(switch) == "kill"


def test_nonsense_in_the_file_is_told_once_and_what_follows_is_obeyed(folder, capfd):
    with oddrank.switch(folder) as switch:
        (folder / "order").write_text("\x1b[2Jstop\n")
        until(lambda: "can't be read" in capfd.readouterr().err)
        time.sleep(0.2)
        assert capfd.readouterr().err == ""
        write(folder, "save")
        assert obeys(switch) == "save"


def test_an_order_for_some_jobs_stays_while_their_folder_can_t_be_listed(
    folder, monkeypatch, capfd
):
    with oddrank.switch(folder) as switch:
        order_file.write(folder, "pause", "?*", "alice@login1")
        until(switch._wanted)
        monkeypatch.setattr(order_file, "_files_for_some", lists_nothing)
        until(lambda: "can't be read: [Errno 116]" in capfd.readouterr().err)
        assert [one.word for one in switch._wanted()] == ["pause"]


def lists_nothing(folder):
    raise OSError(errno.ESTALE, "Stale file handle", str(folder / "jobs"))


@pytest.mark.needs("fuse")
def test_a_file_system_that_hangs_holds_up_neither_start_nor_steps_nor_end(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.setattr(switch_module, "_FIRST_READ_SECONDS", 0.2)
    (tmp_path / "dead").mkdir()
    folder = tmp_path / "dead" / "run17"
    with dead_file_system(tmp_path / "dead"), oddrank.switch(folder) as switch:
        until(lambda: "the file system hangs" in capfd.readouterr().err)
        for _ in range(1000):
            assert switch.poll() == ""
        os.kill(os.getpid(), signal.SIGUSR1)
        assert obeys(switch) == "save"
    # Else what it says of the dead file system would be in the output of another test.
    until(lambda: not switch._folder._poller._thread.is_alive())


@pytest.fixture
def slow(monkeypatch):
    """Holds up the thread that reads until it is set, beyond the time that the start waits."""
    event, prepare = threading.Event(), order_file.prepare

    def prepares(folder):
        event.wait(60)
        return prepare(folder)

    monkeypatch.setattr(switch_module, "_FIRST_READ_SECONDS", 0.05)
    monkeypatch.setattr(order_file, "prepare", prepares)
    yield event
    event.set()


def test_an_order_that_is_read_late_is_reported_and_the_job_s_end_too(folder, slow, capfd):
    folder.mkdir()
    (folder / "order").write_text("blub\n")
    with oddrank.switch(folder):
        slow.set()
        until(lambda: "an order can't be read" in capfd.readouterr().err)
    until(lambda: shown(folder) == "has ended")


def test_a_folder_that_is_unfit_late_is_reported(folder, slow, capfd):
    with oddrank.switch(folder / "a") as switch:
        slow.set()
        until(lambda: "watches no longer: the switch" in capfd.readouterr().err)
        assert switch.poll() == ""


@pytest.mark.parametrize(("number", "word"), [(signal.SIGUSR1, "save"), (signal.SIGTERM, "kill")])
def test_a_signal_becomes_an_order_and_its_handler_is_put_back(folder, number, word):
    before = signal.getsignal(number)
    with oddrank.switch(folder) as switch:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert obeys(switch) == word
        for _ in range(100):  # the second signal was about the same save
            time.sleep(1e-3)
            assert switch.poll() == ""
    assert signal.getsignal(number) == before
    assert signal.set_wakeup_fd(-1) == -1


def test_after_a_signal_a_file_s_order_is_obeyed_however_late_the_thread_looks(folder, monkeypatch):
    monkeypatch.setattr(switch_module, "_SAME_SECONDS", 0.0)
    with oddrank.switch(folder) as switch:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert obeys(switch) == "save"
        write(folder, "kill")
        until(lambda: obeys(switch) == "kill")


def test_the_script_s_own_handler_still_runs(folder):
    numbers = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: numbers.append(number))
    try:
        with oddrank.switch(folder) as switch:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert obeys(switch) == "save"
        os.kill(os.getpid(), signal.SIGUSR1)
        assert numbers == [signal.SIGUSR1] * 2
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_forked_child_ends_by_sigterm_and_its_parent_goes_on(folder):
    source, sink = os.pipe()
    with oddrank.switch(folder) as switch, os.fdopen(source, "rb") as ready:
        child = os.fork()
        if child == 0:
            os.write(sink, b"r")  # here it has its own signals
            signal.pause()
            os._exit(3)
        os.close(sink)
        assert ready.read(1) == b"r"
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGTERM
        for _ in range(100):
            time.sleep(1e-3)
            assert switch.poll() == ""


def test_without_signals_none_is_taken(folder):
    before = signal.getsignal(signal.SIGTERM)
    with oddrank.switch(folder, signals=False):
        assert signal.getsignal(signal.SIGTERM) == before


def test_a_second_switch_another_thread_and_bad_times_are_refused(folder, tmp_path):
    with oddrank.switch(folder), pytest.raises(OddrankError, match=r"watches .* already"):
        oddrank.switch(tmp_path / "other")
    errors = []

    def starts():
        with pytest.raises(OddrankError, match="only the main thread"):
            oddrank.switch(folder)
        errors.append(1)

    other = threading.Thread(target=starts)
    other.start()
    other.join(60)
    assert errors
    for seconds in (0, -1, float("nan"), float("inf")):
        with pytest.raises(OddrankError, match="pause_seconds"):
            oddrank.switch(folder, pause_seconds=seconds)


def test_a_folder_that_can_t_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SwitchError, match="can't be used"):
        oddrank.switch(tmp_path / "file" / "run17")


def test_a_rank_of_several_needs_a_process_group_first(folder, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(OddrankError, match="came before init_process_group"):
        oddrank.switch(folder)


# The main thread waits in C for ever: Python's own signal handlers never run.
ENDS_BY_DEFAULT = """
import ctypes, os, signal, sys
from oddrank.switches import switch as module
import oddrank
switch = oddrank.switch(sys.argv[1])
if sys.argv[2] == "unheard":  # rank 0 is dead, say
    module._TERM_SECONDS = -2.0
    module.Root.turn = lambda self: None
else:  # a rank has ended by an exception
    switch._store.world = 2
    switch._store.count("closed", 1)
print("ready", flush=True)
mutex = ctypes.create_string_buffer(64)
for _ in range(2):
    ctypes.CDLL(None).pthread_mutex_lock(mutex)
"""


@pytest.mark.parametrize("why", ["unheard", "refused"])
def test_sigterm_ends_a_rank_whose_job_agrees_on_nothing(folder, why):
    program = subprocess.Popen(
        [sys.executable, "-c", ENDS_BY_DEFAULT, folder, why], stdout=subprocess.PIPE, text=True
    )
    with program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.terminate()
        assert program.wait(60) == -signal.SIGTERM


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "oddrank", "switch", *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_command_writes_orders_and_shows_jobs(folder):
    refused = command("kill", folder)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "is no switch" in refused.stderr
    with oddrank.switch(folder) as switch:
        done = command("save", folder)
        assert done.returncode == 0, done.stderr
        assert "save is written" in done.stdout
        assert obeys(switch) == "save"
        until(lambda: "last order: save" in shown(folder))
        status = command("status", folder)
        assert status.returncode == 0, status.stderr
        assert "order: save (" in status.stdout
        assert re.search(r"job +host +ranks +calls +state +seen", status.stdout)
        assert "last order: save" in status.stdout
        said = json.loads(command("status", folder, "--json", "-").stdout)
        jsonschema.validate(said, json.loads(SCHEMA_FILE.read_text()))
        assert [one["world"] for one in said["data"]["jobs"]] == [1]
        assert [one["word"] for one in said["data"]["orders"]] == ["save"]
        assert command("kill", folder, "--jobs", "a b").returncode == 2
        for jobs in ("nothing*", "other*"):
            done = command("pause", folder, "--jobs", jobs)
            said_ = f"No job watches {folder} now and is named {jobs}: a job that starts waits"
            assert said_ in done.stdout
            assert "next:" not in done.stdout
        assert "also in force: pause (" in done.stdout
        status = command("status", folder)
        assert "jobs nothing*" in status.stdout
        assert "jobs other*" in status.stdout
        assert command("off", folder).returncode == 0
        assert "order: off" in command("status", folder).stdout
    until(lambda: shown(folder) == "has ended")
    done = command("save", folder)
    assert "No job watches" in done.stdout
    assert "nobody obeys it" in done.stdout
    for word in ("kill", "status", "check"):
        assert "it is empty" in command(word, "").stderr
    assert command("status", Path("/nowhere")).returncode == 2


def test_check_prints_its_answer_and_exits_with_1_under_an_order_that_refuses_this_job(
    folder, tmp_path
):
    done = command("check", tmp_path / "no-job-yet")
    assert (done.returncode, done.stdout) == (0, "allowed\n")
    assert "no-job-yet does not exist yet: the first job makes it" in done.stderr
    done = command("check", tmp_path / "no-folder" / "no-job-yet")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no-folder does not exist. Check the path" in done.stderr
    order_file.prepare(folder)
    for word, jobs, code in (
        ("save", "*", 0), ("pause", "*", 0), ("off", "*", 0), ("kill", "slurm-4712*", 0),
        ("kill", "slurm-4711*", 1), ("off", "*", 0), ("kill", "*", 1),
    ):  # fmt: skip
        order_file.write(folder, word, jobs, "alice@login1")
        done = command("check", folder, "--job", "slurm-4711.0")
        answer = "refused\n" if code else "allowed\n"
        assert (done.returncode, done.stdout) == (code, answer), (word, jobs, done.stderr)
        said = f"says {word} (alice@login1" in done.stderr and "no job may start" in done.stderr
        assert said == (code == 1)
        assert ("will wait after its first steps" in done.stderr) == (word == "pause")
    (folder / "order").write_text("nonsense\n")
    done = command("check", folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "says 'nonsense'" in done.stderr


def test_check_allows_nothing_while_orders_for_some_jobs_can_t_be_listed(folder):
    order_file.prepare(folder)
    (folder / "jobs").rmdir()
    (folder / "jobs").write_text("")
    done = command("check", folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "can't be read: Not a directory" in done.stderr


def test_check_finds_a_kill_for_this_job_where_the_file_for_all_jobs_is_gone(folder):
    order_file.prepare(folder)
    order_file.write(folder, "kill", "slurm-4711.*", "alice@login1")
    (folder / "order").unlink()
    done = command("check", folder, "--job", "slurm-4711.0")
    assert (done.returncode, done.stdout) == (1, "refused\n")
