"""The folder of a switch: what people write, what a reader makes of it, and what is refused."""

import errno
import os
import shlex
import stat
import threading
import time

import pytest

from oddrank.errors import OddrankError
from oddrank.switches import order_file
from oddrank.switches.order_file import JobReport
from patience import until
from texts import rows


@pytest.fixture
def folder(tmp_path):
    order_file.prepare(tmp_path / "run17")
    return tmp_path / "run17"


def write(folder, word):
    """Writes an order, at a time of its own: files of one tick of the clock have one time."""
    order_file.write(folder, word, "alice@login1")
    clock = folder.with_name(f"{folder.name}-clock")
    clock.touch()
    now = clock.stat().st_mtime_ns
    until(lambda: (clock.touch(), clock.stat().st_mtime_ns != now)[1])


def does(folder, step):
    """Follows a step of a history: `WORD`, `sh: TEXT` by a shell, or `made again`."""
    if step.startswith("sh: "):
        time.sleep(0.01)
        (folder / "order").write_text(step.removeprefix("sh: ").replace("NULS", "\0" * 1000))
        time.sleep(0.01)
    elif step == "made again":
        (folder / "order").unlink()
        order_file.prepare(folder)
    else:
        write(folder, step)


def test_what_jobs_obey_after_a_history_of_orders_and_nothing_after_off(tmp_path):
    for number, (history, obeyed) in enumerate(rows(__file__, "histories")):
        folder = tmp_path / str(number)
        order_file.prepare(folder)
        for step in filter(None, history.split("; ")):
            does(folder, step)
        assert order_file.read(folder).word == (obeyed or "off"), history
        write(folder, "off")
        assert order_file.read(folder).word == "off", history


def test_an_order_is_read_with_its_writer_and_time(folder):
    order_file.write(folder, "kill", "somebody-with-a-long-name@login1")
    order_file.write(folder, "off", "x")
    order_file.write(folder, "kill", "alice@login1")
    assert str(order_file.read(folder)).startswith("kill (alice@login1, 20")
    (folder / "order").write_bytes(b"kill by=\x1b[2Jmallory\n")
    assert str(order_file.read(folder)).isprintable()


def test_two_equal_orders_are_two_orders(folder):
    keys = set()
    for _ in range(2):
        order_file.write(folder, "save", "alice@login1")
        keys.add(order_file.read(folder).key)
    (folder / "order").write_text("kill\n")
    for at in (10**18, 10**18 + 1):
        os.utime(folder / "order", ns=(0, at))
        keys.add(order_file.read(folder).key)
    assert len(keys) == 4


def test_who_reads_an_order_while_it_is_written_sees_the_old_one_or_the_new_one(
    folder, monkeypatch
):
    real, seen = os.write, []

    def write_byte_by_byte(file, text):
        for place in range(len(text)):
            real(file, text[place : place + 1])
            seen.append(order_file.read(folder))
        return len(text)

    write(folder, "save")
    monkeypatch.setattr(os, "write", write_byte_by_byte)
    for word in ("save", "kill", "off"):
        before = order_file.read(folder)
        seen.clear()
        write(folder, word)
        assert len(seen) > 40
        assert set(seen) <= {before, order_file.read(folder)}, word
    assert not list(folder.rglob(".*"))


def test_a_disk_without_room_keeps_the_old_order(folder, monkeypatch):
    write(folder, "kill")
    before, real = order_file.read(folder), os.write

    def write_half(file, text):
        if len(text) < 9:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, text[: len(text) // 2])

    monkeypatch.setattr(os, "write", write_half)
    with pytest.raises(OddrankError, match="No space left"):
        order_file.write(folder, "kill", "bob@login1")
    assert order_file.read(folder) == before
    assert not list(folder.rglob(".*"))


def test_a_file_that_an_nfs_server_has_forgotten_is_opened_anew(folder, monkeypatch):
    write(folder, "kill")
    real, times = os.read, []

    def forgets(file, length):
        times.append(1)
        if len(times) % 2:
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(file, length)

    monkeypatch.setattr(os, "read", forgets)
    assert order_file.read(folder).word == "kill"


def test_what_is_refused(folder, tmp_path, golden):
    """What is no order is named without its control characters."""
    (tmp_path / "file").touch()
    (tmp_path / "other" / "jobs").mkdir(parents=True)
    said = []

    def refuses(name, function, *arguments):
        with pytest.raises(OddrankError) as error:
            function(*arguments)
        assert str(error.value).isprintable()
        said.append(f"{name}: {error.value}".replace(str(tmp_path), "TMP"))

    for name, content in {
        "escape": b"\x1b[2Jkill\n", "no UTF-8": b"\xff\xfe\x00kill", "long": b"x" * 10**6,
        "unknown": b"restart\n", "control characters": b"\x01\n\x02kill", "later lines": b"\n?",
    }.items():  # fmt: skip
        (folder / "order").write_bytes(content)
        refuses(name, order_file.read, folder)
    file = folder / "order"
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)):
        file.unlink() if not file.is_dir() else file.rmdir()
        make(file)
        refuses("no file", order_file.read, folder)
        refuses("no file", order_file.write, folder, "kill", "alice@login1")
    file.unlink()
    order_file.prepare(folder)
    order_file.write(folder, "kill", "alice@login1")
    assert order_file.read(folder).word == "kill"
    for name in ("file", "missing/run17"):
        refuses(f"a job at {name}", order_file.prepare, tmp_path / name)
    for name in (".", "other"):
        refuses(f"an order at {name}", order_file.write, tmp_path / name, "kill", "alice")
    assert [one.name for one in (tmp_path / "other").iterdir()] == ["jobs"]
    golden("\n".join(said))


@pytest.mark.parametrize(("mode", "made"), [(0o2770, 0o660), (0o777, 0o664), (0o700, 0o600)])
def test_those_who_may_write_to_the_folder_may_write_orders_but_for_everybody(tmp_path, mode, made):
    tmp_path.chmod(mode)
    order_file.prepare(tmp_path)
    write(tmp_path, "kill")
    files = [one for one in tmp_path.rglob("*order*") if one.is_file()]
    assert {stat.S_IMODE(one.stat().st_mode) for one in files} == {made}
    assert stat.S_IMODE((tmp_path / "jobs").stat().st_mode) == mode
    assert len(files) == 1


def test_a_file_is_given_to_the_folder_s_group_and_by_root_to_its_owner(folder, monkeypatch):
    def fchown(file, *ids):
        given.append(ids)
        raise PermissionError  # some file systems allow it to nobody

    status = folder.stat()
    monkeypatch.setattr(os, "fchown", fchown)
    for user, owner in ((0, status.st_uid), (1000, -1)):
        given = []
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        write(folder, "kill")
        assert given == [(owner, status.st_gid)]
        assert order_file.read(folder).word == "kill"


def test_a_kill_that_is_written_while_a_job_makes_the_file_stays(tmp_path, monkeypatch):
    chmod = os.fchmod

    def fchmod(file, mode):
        order = tmp_path / "run17" / "order"
        if order.exists() and not order.read_text():
            order.write_text("kill\n")
        chmod(file, mode)

    monkeypatch.setattr(os, "fchmod", fchmod)
    order_file.prepare(tmp_path / "run17")
    assert order_file.read(tmp_path / "run17").word == "kill"


def test_jobs_report_side_by_side_and_hostile_reports_are_left_out(folder):
    for name, host in (("a:1", "node1"), ("a:1", "node2"), ("../x", "node1")):
        order_file.report(folder, JobReport(name, host, 8, 120, "runs", time.time()))
    for name, text in (
        ("nonsense", "[1, 2"), ("list", "[1, 2]"), ("more", '{"job": "x", "seen": "never"}'),
        ("huge", "9" * 10**6),
    ):  # fmt: skip
        (folder / "jobs" / f"{name}.json").write_text(text)
    os.mkfifo(folder / "jobs" / "fifo.json")
    assert sorted(one.job for one in order_file.reports(folder)) == ["../x", "a:1", "a:1"]


def test_what_is_over_for_a_week_is_removed_by_the_next_job(folder):
    order_file.report(folder, JobReport("slurm-1.0", "node1", 8, 120, "runs", time.time()))
    for name in ("jobs/notes.txt", ".17-4711.new", "notes.json", "jobs/.17-4711.new"):
        (folder / name).touch()
    files = {one for one in folder.rglob("*") if one.is_file()}
    order_file.prepare(folder)
    assert {one for one in folder.rglob("*") if one.is_file()} == files
    for file in files:
        os.utime(file, (0, 0))
    order_file.prepare(folder)
    gone = files - set(folder.rglob("*"))
    assert sorted(one.name.rpartition(".")[2] for one in gone) == ["json", "new", "new"]
    assert (folder / "notes.json").exists()


def test_a_file_system_that_hangs_ends_a_command_with_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(order_file, "ANSWERS_SECONDS", 0.05)
    answers = threading.Event()
    with pytest.raises(OddrankError, match="hangs"):
        order_file.in_time(tmp_path, answers.wait)
    answers.set()


def test_the_command_that_takes_an_order_back_is_quoted(tmp_path):
    folder = tmp_path / "Ann's run; ls"
    text = order_file.refusal(folder, order_file.Order("kill"))
    assert shlex.split(text.rpartition(": ")[2]) == ["oddrank", "switch", "off", str(folder)]
