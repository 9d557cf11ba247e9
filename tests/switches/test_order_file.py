"""The folder of a switch: what people write, what a reader makes of it, and what is refused."""

import errno
import os
import shlex
import stat
import threading
import time
from pathlib import Path

import pytest

from oddrank.errors import OddrankError
from oddrank.switches import job_reports, order_file
from oddrank.switches.job_reports import JobReport
from patience import until


@pytest.fixture
def folder(tmp_path):
    order_file.prepare(tmp_path / "run17")
    return tmp_path / "run17"


def read(folder):
    """Returns the last order that is not off; off if there is none."""
    orders, errors = order_file.read(folder)
    for error in errors.values():
        raise error
    said = [one for one in orders if one.word != "off"]
    return said[-1] if said else order_file.Order()


def test_a_new_folder_orders_nothing(folder):
    assert order_file.standing(order_file.read(folder)[0]) == []
    assert read(folder).word == "off"


def test_an_order_is_read_with_its_writer_and_time(folder):
    order_file.write(folder, "kill", "*", "alice@login1")
    order = read(folder)
    assert order.word == "kill"
    assert str(order).startswith("kill (alice@login1, 20")


def test_a_shorter_order_leaves_nothing_of_a_longer_one_and_the_file_stays_the_same(folder):
    file = folder / "order"
    inode = file.stat().st_ino
    order_file.write(folder, "pause", "*", "somebody-with-a-long-name@login1")
    order_file.write(folder, "off", "*", "al@x")
    assert len(file.read_text().splitlines()) == 1
    assert file.stat().st_ino == inode


@pytest.mark.parametrize("text", ["kill\n", "KILL", "  kill  \nrest", "kill x=y z"])
def test_a_shell_can_write_it(folder, text):
    (folder / "order").write_text(text)
    assert read(folder).word == "kill"


@pytest.mark.parametrize("text", ["", "\n", "\0" * 1000], ids=["empty", "line", "zeros"])
def test_a_file_without_a_word_orders_nothing(folder, text):
    (folder / "order").write_text(text)
    assert read(folder).word == "off"


def test_two_equal_orders_are_two_orders(folder):
    order_file.write(folder, "save", "*", "alice@login1")
    first = read(folder)
    order_file.write(folder, "save", "*", "alice@login1")
    assert read(folder).key != first.key


def test_two_equal_orders_of_a_shell_are_two_orders(folder):
    (folder / "order").write_text("save\n")
    first = read(folder)
    os.utime(folder / "order", ns=(first.at, first.at + 1))
    assert read(folder).key != first.key


def test_one_command_is_one_order_also_to_a_reader_between_its_two_changes(folder, monkeypatch):
    found = []

    def ftruncate(file, length):
        found.append(read(folder))
        os.truncate(folder / "order-save", length)
        os.utime(folder / "order-save", ns=(0, found[0].at + 10**7))

    monkeypatch.setattr(os, "ftruncate", ftruncate)
    order_file.write(folder, "save", "*", "alice@login1")
    assert found[0].word == "save"
    assert read(folder).key == found[0].key


def test_the_longest_pattern_is_read_whole(folder):
    jobs = "\N{GRINNING FACE}" * 200
    order_file.write(folder, "kill", jobs, "alice@login1")
    assert read(folder).jobs == jobs


@pytest.mark.parametrize(
    "content",
    [b"\x1b[2Jkill\n", b"\xff\xfe\x00kill", b"x" * 10**6, b"restart\n", b"\x01\n\x02kill", b"\n?"],
    ids=["escape", "no UTF-8", "long", "unknown", "control characters", "later lines"],
)
def test_a_file_that_says_something_else_is_named_without_its_control_characters(folder, content):
    (folder / "order").write_bytes(content)
    with pytest.raises(OddrankError, match=r"order says .*: it takes kill, save") as error:
        read(folder)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 300


def test_a_writer_s_name_can_t_move_a_cursor(folder):
    (folder / "order").write_bytes(b"kill by=\x1b[2Jmallory\n")
    assert str(read(folder)).isprintable()


def test_a_fifo_a_link_and_a_folder_are_no_orders(folder):
    file = folder / "order"
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)):
        file.unlink() if not file.is_dir() else file.rmdir()
        make(file)
        with pytest.raises(OddrankError, match="order is no regular file: remove it"):
            read(folder)
        with pytest.raises(OddrankError, match="order is no regular file: remove it"):
            order_file.write(folder, "kill", "*", "alice@login1")
    file.unlink()
    order_file.write(folder, "kill", "*", "alice@login1")
    assert read(folder).word == "kill"


def test_an_order_for_other_jobs_is_not_for_this_one(folder):
    order_file.write(folder, "kill", "slurm-47*", "alice@login1")
    order = read(folder)
    assert order.is_for("slurm-4711.0")
    assert not order.is_for("slurm-11.0")


def words(folder, name="slurm-4711.0"):
    """Returns what a job with this name has to obey."""
    orders, errors = order_file.read(folder)
    assert not errors
    return [one.word for one in order_file.standing(one for one in orders if one.is_for(name))]


def write(folder, word, jobs="*"):
    order_file.write(folder, word, jobs, "alice@login1")
    wait_for_a_tick(folder)


def wait_for_a_tick(folder):
    """Files of one tick of the clock have one time."""
    clock = folder.with_name(f"{folder.name}-clock")
    clock.touch()
    now = clock.stat().st_mtime_ns
    until(lambda: (clock.touch(), clock.stat().st_mtime_ns != now)[1])


@pytest.mark.parametrize(
    ("word", "jobs"),
    [("save", "*"), ("dump", "*"), ("pause", "*"), ("resume", "*"), ("kill", "slurm-1.*"),
     ("pause", "slurm-4711.*"), ("resume", "slurm-4711.*"), ("off", "slurm-4711.*")],
)  # fmt: skip
def test_no_order_but_off_takes_a_kill_back(folder, word, jobs):
    write(folder, "kill")
    write(folder, word, jobs)
    assert words(folder) == ["kill"]
    write(folder, "off")
    assert words(folder) == []


@pytest.mark.parametrize("jobs", ["*", "slurm-4711.*"])
@pytest.mark.parametrize("word", ["pause", "resume"])
def test_a_pause_for_the_same_jobs_leaves_a_kill_and_off_takes_both_back(folder, word, jobs):
    write(folder, "kill", jobs)
    write(folder, word, jobs)
    assert words(folder) == ["kill"]
    write(folder, "off", jobs)
    assert words(folder) == []


def test_a_shell_can_pause_what_a_command_resumes_and_the_other_way_round(folder):
    for by_shell, by_command, left in (
        ("pause", "resume", []), ("resume", "pause", ["pause"]), ("off", "pause", ["pause"]),
    ):  # fmt: skip
        (folder / "order").write_text(f"{by_shell}\n")
        wait_for_a_tick(folder)
        write(folder, by_command)
        assert words(folder) == left
    (folder / "order").write_text("resume\n")
    assert words(folder) == []


def test_an_empty_file_made_again_ends_no_pause(folder):
    write(folder, "pause")
    (folder / "order").unlink()
    order_file.prepare(folder)
    assert words(folder) == ["pause"]


def test_a_resume_of_some_jobs_leaves_a_file_only_where_another_pause_stands(folder):
    write(folder, "pause", "slurm-4711.*")
    write(folder, "resume", "slurm-4711.*")
    assert list((folder / "jobs").iterdir()) == []
    write(folder, "pause")
    write(folder, "resume", "slurm-4711.*")
    assert len(list((folder / "jobs").iterdir())) == 1
    assert (words(folder), words(folder, "slurm-1.0")) == ([], ["pause"])


def test_off_takes_back_all_orders_but_the_one_that_it_names(folder):
    for word, jobs in (("kill", "*"), ("kill", "slurm-1.*"), ("kill", "slurm-2.*")):
        write(folder, word, jobs)
    (folder / "order-save").unlink()
    (folder / "order-save").mkdir()
    with pytest.raises(OddrankError, match="order-save is no regular file: remove it"):
        write(folder, "off")
    assert [one.word for one in order_file.read(folder)[0] if one.word != "off"] == []


def test_off_names_a_file_that_it_can_t_remove(folder, monkeypatch):
    write(folder, "kill")
    write(folder, "kill", "slurm-1.*")
    fails(monkeypatch, "unlink", errno.EACCES)
    with pytest.raises(OddrankError, match=r"jobs/slurm-1.*\.order can't be written: Permission"):
        write(folder, "off")
    assert words(folder) == []


def test_orders_of_one_second_are_all_kept(folder):
    for word in ("save", "save", "dump", "pause"):
        write(folder, word)
    assert words(folder) == ["save", "dump", "pause"]
    write(folder, "kill")
    assert words(folder) == ["kill"]


def test_jobs_that_end_in_the_same_second_don_t_erase_each_other_s_orders(folder):
    write(folder, "kill", "slurm-1.*")
    write(folder, "kill", "slurm-2.*")
    write(folder, "kill", "slurm?2.*")  # alike in what a file's name may have
    assert words(folder, "slurm-1.0") == words(folder, "slurm-2.0") == ["kill"]
    write(folder, "off", "slurm-1.*")
    assert (words(folder, "slurm-1.0"), words(folder, "slurm-2.0")) == ([], ["kill"])


def test_the_last_pause_or_resume_counts_for_a_job(folder):
    write(folder, "pause")
    write(folder, "resume", "slurm-4711.*")
    assert (words(folder, "slurm-4711.0"), words(folder, "slurm-1.0")) == ([], ["pause"])
    write(folder, "pause", "slurm-4711.*")
    write(folder, "resume")
    assert words(folder, "slurm-4711.0") == []


def test_an_order_that_can_t_be_read_hides_no_other_one(folder):
    write(folder, "kill", "slurm-1.*")
    (folder / "order").write_text("nonsense")
    orders, errors = order_file.read(folder)
    assert "kill" in [one.word for one in orders]
    assert list(errors) == ["order"]


@pytest.mark.parametrize("error", [errno.ESTALE, errno.EIO, errno.EACCES, errno.ENOTDIR])
def test_orders_for_some_jobs_that_can_t_be_listed_are_an_error(folder, monkeypatch, error):
    write(folder, "kill", "slurm-1.*")
    write(folder, "save")
    fails(monkeypatch, "listdir", error)
    orders, errors = order_file.read(folder)
    assert [one.word for one in orders if one.word != "off"] == ["save"]
    assert {name: one.errno for name, one in errors.items()} == {"jobs": error}


def fails(monkeypatch, name, error):
    """Makes a function of os fail for all that lies in or at `jobs`."""
    real = getattr(os, name)

    def function(path, *rest, **more):
        if "jobs" in Path(path).parts[-2:]:
            raise OSError(error, os.strerror(error), str(path))
        return real(path, *rest, **more)

    monkeypatch.setattr(os, name, function)


def test_a_folder_s_missing_parent_is_no_place_for_it(tmp_path):
    with pytest.raises(OddrankError, match=r"can't be made: .*/a does not exist\. Check"):
        order_file.prepare(tmp_path / "a" / "b")
    assert order_file.prepare(tmp_path / "b")
    assert not order_file.prepare(tmp_path / "b")


def test_those_who_may_write_to_the_folder_may_write_the_order(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2770)
    order_file.prepare(shared)
    assert stat.S_IMODE((shared / "order").stat().st_mode) == 0o660
    everybody = tmp_path / "everybody"
    everybody.mkdir()
    everybody.chmod(0o777)
    order_file.prepare(everybody)
    assert stat.S_IMODE((everybody / "order").stat().st_mode) & 0o002 == 0


def test_a_private_folder_s_owner_can_read_what_root_writes(folder, monkeypatch):
    given = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", lambda file, *ids: given.append(ids))
    order_file.write(folder, "kill", "slurm-4711.*", "root@login1")
    status = folder.stat()
    assert given == [(status.st_uid, status.st_gid)]


def test_a_writer_who_can_not_give_a_file_away_still_writes_it_for_the_folder_s_group(
    folder, monkeypatch
):
    given = []

    def fchown(file, *ids):
        given.append(ids)
        raise PermissionError

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "fchown", fchown)
    order_file.write(folder, "kill", "slurm-4711.*", "alice@login1")
    assert given == [(-1, folder.stat().st_gid)]
    assert words(folder) == ["kill"]


def test_a_kill_that_is_written_while_a_job_makes_the_file_stays(tmp_path, monkeypatch):
    chmod = os.fchmod

    def fchmod(file, mode):
        order = tmp_path / "run17" / "order"
        if order.exists() and not order.read_text():
            order.write_text("kill\n")
        chmod(file, mode)

    monkeypatch.setattr(os, "fchmod", fchmod)
    order_file.prepare(tmp_path / "run17")
    assert words(tmp_path / "run17") == ["kill"]


def test_two_writers_who_find_no_file_can_both_write(folder, monkeypatch):
    real = order_file._create

    def create(file, text, mode):
        real(file, b"", mode)  # the other one is faster
        real(file, text, mode)

    (folder / "order").unlink()
    monkeypatch.setattr(order_file, "_create", create)
    write(folder, "kill")
    assert words(folder) == ["kill"]


def test_a_folder_of_another_program_with_jobs_in_it_is_no_switch(tmp_path):
    (tmp_path / "jobs").mkdir()
    for jobs in ("*", "slurm-4711.*"):
        with pytest.raises(OddrankError, match="is no switch"):
            order_file.write(tmp_path, "kill", jobs, "alice@login1")
    assert [one.name for one in tmp_path.iterdir()] == ["jobs"]


def test_a_folder_that_no_job_watches_is_refused(tmp_path):
    with pytest.raises(OddrankError, match="is no switch: no job has called"):
        order_file.write(tmp_path, "kill", "*", "alice@login1")


def test_a_file_in_the_folder_s_place_is_refused(tmp_path):
    (tmp_path / "kill-switch").write_text("")
    with pytest.raises(OddrankError, match="can't be used"):
        order_file.prepare(tmp_path / "kill-switch")


def test_jobs_report_side_by_side_and_hostile_reports_are_left_out(folder):
    for name, host in (("a:1", "node1"), ("a:1", "node2"), ("../x", "node1")):
        job_reports.report(folder, JobReport(name, host, 8, 120, "runs", time.time()))
    (folder / "jobs" / "nonsense.json").write_text("[1, 2")
    (folder / "jobs" / "list.json").write_text("[1, 2]")
    (folder / "jobs" / "more.json").write_text('{"job": "x", "seen": "never"}')
    (folder / "jobs" / "huge.json").write_text("9" * 10**6)
    os.mkfifo(folder / "jobs" / "fifo.json")
    assert sorted(one.job for one in job_reports.reports(folder)) == ["../x", "a:1", "a:1"]


def test_reports_of_last_week_are_removed_by_the_next_job(folder):
    job_reports.report(folder, JobReport("slurm-1.0", "node1", 8, 120, "runs", time.time()))
    (file,) = (folder / "jobs").iterdir()
    os.utime(file, (0, 0))
    (folder / "jobs" / "notes.txt").write_text("mine")
    for word in ("save", "kill", "pause"):
        order_file.write(folder, word, "slurm-4711.*", "alice@login1")
    for order in (folder / "jobs").glob("*.order*"):
        os.utime(order, (0, 0))
    os.utime(folder / "jobs" / "notes.txt", (0, 0))
    order_file.prepare(folder)
    kept = sorted(one.name for one in (folder / "jobs").iterdir())
    assert kept[0] == "notes.txt"
    assert [one.rpartition(".")[2] for one in kept[1:]] == ["order", "order-pause"]


def test_a_file_system_that_hangs_ends_a_command_with_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(order_file, "ANSWERS_SECONDS", 0.05)
    answers = threading.Event()
    with pytest.raises(OddrankError, match=r"does not answer within 0\.05 s"):
        order_file.in_time(tmp_path, lambda: answers.wait(60))
    answers.set()


def test_the_command_that_takes_an_order_back_is_quoted(tmp_path):
    folder = tmp_path / "Ann's run; ls"
    text = order_file.refusal(folder, [order_file.Order("kill")], "slurm-4711.0")
    assert shlex.split(text.rpartition(": ")[2]) == ["oddrank", "switch", "off", str(folder)]
