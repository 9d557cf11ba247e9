"""A switch in a job of one rank: files, signals, forks, file systems that hang."""

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

import oddrank
from dead_fuse import dead_file_system
from oddrank.errors import OddrankError
from oddrank.switches import agreement, order_file
from oddrank.switches import switch as switch_module
from oddrank.switches.agreement import SwitchError
from patience import PATIENCE, until
from processes import typed
from reports import valid
from texts import texts


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(agreement, "_EVERY", 0.02)
    monkeypatch.setattr(switch_module, "_READ_EVERY", 0.02)
    monkeypatch.setattr(switch_module, "_REPORT_EVERY", 0.02)
    # A start that waits no longer goes on without the order.
    monkeypatch.setattr(switch_module, "_FIRST_READ_SECONDS", PATIENCE.limit)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run17"


def write(folder, word):
    order_file.write(folder, word, "alice@login1")


def obeys(switch):
    """Polls until there is an order; returns it."""
    return until(lambda: time.sleep(1e-3) or switch.poll())


def obeys_nothing(switch):
    for _ in range(100):
        time.sleep(1e-3)
        assert switch.poll() == ""


def shown(folder):
    found = order_file.reports(folder)
    return found[0].state if found else ""


def test_orders_are_obeyed_once_in_their_turn_and_shown(folder, capfd):
    with oddrank.switch(folder) as switch:
        assert not any(switch.poll() for _ in range(1000))
        write(folder, "save")
        assert obeys(switch) == "save"
        at = switch.steps
        until(lambda: "last order: save" in shown(folder))
        obeys_nothing(switch)
        subprocess.run(["sh", "-c", f"echo kill > {folder}/order"], check=True)
        assert obeys(switch) == "kill"
        assert switch.steps > at
    until(lambda: shown(folder) == "has ended")
    write(folder, "off")
    write(folder, "save")
    with oddrank.switch(folder) as switch:  # what earlier jobs were told once is not for this one
        obeys_nothing(switch)
    assert capfd.readouterr().err.count("this folder is new") == 1


def test_a_start_that_is_refused_says_why(folder, tmp_path, monkeypatch, golden):
    said = []

    def refuses(name, path=folder, error=SwitchError, **how):
        with pytest.raises(error) as refusal:
            oddrank.switch(path, **how)
        said.append(f"{name}: {refusal.value}".replace(str(tmp_path), "TMP"))

    refuses("no parent", folder / "a")
    assert not folder.exists()
    (tmp_path / "file").write_text("")
    refuses("a file", tmp_path / "file" / "run17")
    order_file.prepare(folder)
    for name, text in (("a word", b"blub\n"), ("bytes", b"\x00\x01\x02\n" * 10**4)):
        (folder / "order").write_bytes(text)
        refuses(name)
    write(folder, "off")
    write(folder, "kill")
    refuses("a kill")
    assert order_file.reports(folder) == []
    write(folder, "off")
    for path in (None, "", 3):
        refuses("a path", path, OddrankError)
    with oddrank.switch(folder):
        refuses("a second switch", tmp_path / "other", OddrankError)
    other = threading.Thread(target=refuses, args=("a thread", folder, OddrankError))
    other.start()
    other.join()
    for name, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    refuses("before the process group", error=OddrankError)
    golden(re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z", "TIME", "\n".join(said)))


def test_nonsense_in_the_file_is_told_once_and_what_follows_is_obeyed(folder, monkeypatch):
    monkeypatch.setattr(sys, "stderr", printed := io.StringIO())
    with oddrank.switch(folder) as switch:
        (folder / "order").write_text("\x1b[2Jstop\n")
        until(lambda: "can't be read" in printed.getvalue())
        obeys_nothing(switch)
        assert printed.getvalue().count("can't be read") == 1
        write(folder, "save")
        assert obeys(switch) == "save"


@pytest.mark.needs("fuse")
def test_a_file_system_that_hangs_holds_up_neither_start_nor_steps_nor_end(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", printed := io.StringIO())
    monkeypatch.setattr(switch_module, "_FIRST_READ_SECONDS", 0.2)
    (tmp_path / "dead").mkdir()
    folder = tmp_path / "dead" / "run17"
    with dead_file_system(tmp_path / "dead"), oddrank.switch(folder) as switch:
        until(lambda: "the file system hangs" in printed.getvalue())
        assert not any(switch.poll() for _ in range(1000))
        os.kill(os.getpid(), signal.SIGUSR1)
        assert obeys(switch) == "save"
    # Else what it says of the dead file system would be in the output of another test.
    until(lambda: not switch._folder.poller._thread.is_alive())


@pytest.fixture
def slow(monkeypatch):
    """Holds up the thread that reads until it is set, beyond the time that the start waits."""
    event, prepare = threading.Event(), order_file.prepare
    monkeypatch.setattr(switch_module, "_FIRST_READ_SECONDS", 0.05)
    monkeypatch.setattr(order_file, "prepare", lambda folder: event.wait() and prepare(folder))
    yield event
    event.set()


def test_what_is_read_late_is_reported_and_the_job_s_end_too(folder, slow, monkeypatch):
    monkeypatch.setattr(sys, "stderr", printed := io.StringIO())
    folder.mkdir()
    (folder / "order").write_text("blub\n")
    with oddrank.switch(folder):
        slow.set()
        until(lambda: "an order can't be read" in printed.getvalue())
    until(lambda: shown(folder) == "has ended")
    slow.clear()
    with oddrank.switch(folder / "a" / "b") as switch:
        slow.set()
        until(lambda: "watches no longer: the switch" in printed.getvalue())
        assert switch.poll() == ""


@pytest.mark.parametrize(("number", "word"), [(signal.SIGUSR1, "save"), (signal.SIGTERM, "kill")])
def test_a_signal_becomes_an_order_and_its_handler_is_put_back(folder, number, word):
    before = signal.getsignal(number)
    with oddrank.switch(folder) as switch:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert obeys(switch) == word
        obeys_nothing(switch)  # the second signal was about the same save
    assert signal.getsignal(number) == before
    assert signal.set_wakeup_fd(-1) == -1
    with oddrank.switch(folder, signals=False):
        assert signal.getsignal(number) == before


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
        obeys_nothing(switch)


@pytest.mark.parametrize("why", ["unheard", "refused"])
def test_sigterm_ends_a_rank_whose_job_agrees_on_nothing(folder, why):
    # The main thread waits in C for ever: Python's own signal handlers never run.
    line = [sys.executable, "-c", texts(__file__)["ends by default"], folder, why]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout.readline() == "ready\n"
        program.terminate()
        assert program.wait(PATIENCE.limit) == -signal.SIGTERM


@pytest.fixture
def command(folder):
    """Runs a command in this process: `command("save DIR")`; returns what a user sees of it."""

    def run(line):
        time.sleep(0.01)  # files of one tick of the clock have one time
        given = [word.replace("DIR", str(folder)) for word in line.split(" ")]
        done = typed("switch", *given)
        return f"$ oddrank switch {line}\n{done.stdout}{done.stderr}[{done.returncode}]\n"

    return run


def test_the_command_writes_orders_and_shows_jobs(folder, tmp_path, command, golden, monkeypatch):
    monkeypatch.setenv("USER", "alice")
    monkeypatch.setenv("LOGNAME", "alice")
    monkeypatch.setenv("COLUMNS", "200")
    said = [command("kill DIR")]
    with oddrank.switch(folder) as switch:
        said.append(command("save DIR"))
        assert obeys(switch) == "save"
        until(lambda: "last order: save" in shown(folder))
        for line in ("status DIR", "off DIR", "status DIR"):
            said.append(command(line))
        report = valid(command("status DIR --json -").partition("\n")[2].rpartition("[")[0])
        assert [one["world"] for one in report["data"]["jobs"]] == [1]
    until(lambda: shown(folder) == "has ended")
    for line in (
        "save DIR",
        "kill DIR",
        "save DIR",
        "kill ",
        "check ",
        "status DIR",
        "status DIR/a",
    ):
        said.append(command(line))
    text = "\n".join(said).replace(str(folder), "DIR").replace(os.uname().nodename, "HOST")
    text = text.replace(switch.report().job, "JOB")
    for pattern, name in (
        (r"\d{4}-\d\d-\d\dT[\d:]+Z", "TIME"), (r"(?m)^oddrank: switch DIR: .*\n", ""),
        (r" +(1) +\d+ +", r" \1 N "), (r"\d+ s ago", "N s ago"), (" {2,}", " "), ("-{2,}", "--"),
    ):  # fmt: skip
        text = re.sub(pattern, name, text)
    golden(text)


def test_check_allows_or_refuses_a_job(folder, tmp_path, command, golden):
    said = [command("check DIR"), command("check DIR/a")]
    order_file.prepare(folder)
    for order in ("save", "kill", "off"):
        write(folder, order)
        said.append(f"after {order}: {command('check DIR')}")
    write(folder, "kill")
    (folder / "order").write_text("nonsense\n")
    said.append(command("check DIR"))
    text = "\n".join(said).replace(str(folder), "DIR").replace(str(tmp_path), "TMP")
    golden(re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z", "TIME", text))
