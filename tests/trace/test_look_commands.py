"""`oddrank trace where, tail, export`, and copies: the choice of records, and the output."""

import json
import re
import subprocess
import sys

import jsonschema

from oddrank.report import SCHEMA_FILE
from oddrank.trace import jobs, tail
from run.collecting import collect
from trace_command import oddrank


def test_the_heading_counts_no_ranks_if_a_process_was_asked_for(waiting, script):
    process = waiting()
    records = script.folder / "records"
    done = oddrank("where", "--pid", process.pid, folder=records)
    process.communicate("\n", timeout=30)
    assert done.returncode == 0, done.stderr
    (job,) = records.iterdir()
    lines = done.stdout.splitlines()
    assert lines[0] == f"job {job.name}"
    assert f"pid {process.pid})" in lines[2]


def test_a_rank_is_named_by_its_number(dead_job, tmp_path):
    records = dead_job / "records"
    done = oddrank("where", "1", folder=records, cwd=dead_job)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "job 127.0.0.1:29500"
    assert [line.split(" (")[0] for line in lines if line.startswith("rank")] == ["rank 1"]
    both = oddrank("where", "1", "0", "1", folder=records, cwd=dead_job).stdout
    assert "\nranks 0-1 (" in both
    none = oddrank("where", "2", folder=records, cwd=dead_job)
    assert (none.returncode, none.stdout) == (2, "")
    assert "the newest job, 127.0.0.1:29500, has no record of rank 2 here" in none.stderr
    some = oddrank("where", "2", "1", tmp_path / "nope", folder=records, cwd=dead_job)
    assert some.returncode == 2
    assert "\nrank 1 (" in some.stdout
    assert [line.partition(" (")[0] for line in some.stderr.splitlines()] == [
        "oddrank: the newest job, 127.0.0.1:29500, has no record of rank 2 here: name a file or"
        " another job",
        f"oddrank: there is no record {tmp_path / 'nope'}",
    ]


def test_children_stand_for_a_rank_that_has_no_record_itself(script):
    script(
        """
        import os
        import oddrank
        oddrank.arm()
        if os.fork() == 0:
            def child():
                os._exit(0)
            child()
        os.wait()
        """
    )
    records = script.folder / "records"
    next(records.glob("*/rank0-*")).unlink()
    for command in ("where", "tail"):
        done = oddrank(command, "0", folder=records)
        assert done.returncode == 2
        assert "child" in done.stdout
        assert "has no record of rank 0 here, only 1 of its child processes" in done.stderr
    done = oddrank("where", folder=records)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 child process of rank 0 (" in done.stdout


def test_pictures_that_follow_each_other_in_a_pipe_are_told_apart(dead_job):
    process = subprocess.Popen(
        [sys.executable, "-m", "oddrank", "trace", "where", "--watch", dead_job / "records"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        lines = [process.stdout.readline() for _ in range(8)]
        while not lines[-1].startswith("===="):
            lines.append(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()
    assert re.fullmatch(r"==== \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\n", lines[0])
    assert lines[1].startswith("job 127.0.0.1:29500: ")


def test_tail_says_times_to_the_microsecond_when_asked_and_what_a_gap_is(dead_job):
    folder = dead_job / "records" / "127.0.0.1:29500"
    lines = oddrank(
        "tail", "-u", jobs.find([str(folder)]).files[0], folder=dead_job
    ).stdout.splitlines()
    times = [line.split(" ", 1)[0] for line in lines]
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d\.\d{6}", each) for each in times)
    assert len(set(times)) > 1
    assert times == sorted(times)
    assert lines[0].endswith(" --- earlier events were not recorded")


def test_tail_says_the_last_lines_with_their_source_while_the_file_is_the_same(dead_job, tmp_path):
    (file, _) = jobs.find([str(dead_job / "records" / "127.0.0.1:29500")]).files
    done = oddrank("tail", "-n", "3", "--source", file, folder=tmp_path, cwd=dead_job)
    assert [line.split(" ", 1)[1] for line in done.stdout.splitlines()] == [
        "--- call work (script.py)",
        "script.py:6: value = 1",
        "script.py:7: os.kill(os.getpid(), signal.SIGKILL)",
    ]
    script = dead_job / "script.py"
    before = script.read_text()
    script.write_text(before + "\n")
    tail._lines.cache_clear()
    try:
        assert next(iter(tail.text(file, 1, source=True))).endswith("(the file has changed)")
    finally:
        script.write_text(before)


def test_tail_shows_lines_of_code_whose_file_is_no_possible_path(script):
    script(
        """
        import oddrank
        names = ["x" * 300, "x/" * 300, "x" + chr(0) + "y", chr(0), "<string>", "", chr(0xd800)]
        oddrank.arm()
        for i, name in enumerate(names):
            exec(compile("value = 1", "x", "exec").replace(co_filename=name))
            oddrank.mark(f"that was {i}")
        """
    )
    (file,) = (script.folder / "records").glob("*/rank*")
    done = oddrank("tail", "--source", file, folder=script.folder)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    for i in range(7):
        at = [line.endswith(f"=== that was {i}") for line in lines].index(True)
        shown = [line for line in lines[at - 4 : at] if line.endswith(": (no such file here)")]
        assert shown, lines[at - 4 : at + 1]


def test_collected_records_are_read_as_the_job_was(dead_job, tmp_path):
    records = dead_job / "records"
    done = collect("127.0.0.1:29500", "-o", tmp_path, records=records)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 records of job 127.0.0.1:29500 ")
    shown = oddrank("where", tmp_path, folder=tmp_path / "none", cwd=dead_job).stdout
    assert shown.startswith("job 127.0.0.1:29500: 2 of 2 ranks")
    stats = oddrank("stats", tmp_path, folder=tmp_path / "none").stdout
    assert stats.startswith("job 127.0.0.1:29500\n")
    export = oddrank(
        "export", "-o", tmp_path / "out.json", tmp_path, folder=tmp_path / "none"
    ).stdout
    assert " of 2 processes of job 127.0.0.1:29500 to " in export
    assert shown.splitlines()[-1] == "    script.py:7  work"


def test_a_failed_copy_or_export_leaves_nothing(dead_job, tmp_path):
    done = collect(tmp_path / "nope", "-o", tmp_path / "out", records=tmp_path)
    assert done.returncode == 2
    assert "there is no record" in done.stderr
    assert not (tmp_path / "out").exists()
    done = oddrank("export", "-o", "-", folder=dead_job / "records", cwd=tmp_path)
    assert done.returncode == 2
    assert "name a file, such as train.json.gz" in done.stderr
    assert not (tmp_path / "-").exists()


def test_what_each_command_writes_with_json_fits_the_schema(dead_job):
    schema = json.loads(SCHEMA_FILE.read_text())
    for command in (["where"], ["stats"], ["diff", "0", "1"]):
        done = oddrank(*command, "--json", "-", folder=dead_job / "records", cwd=dead_job)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["tool"] == f"trace {command[0]}"
        jsonschema.validate(report, schema)
