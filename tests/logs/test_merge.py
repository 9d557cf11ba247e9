"""`oddrank logs merge`: order, who wrote a line, clocks, terminals, what is not known is said."""

import subprocess
import sys

from logs.logs_command import oddrank, report, stamp, typed, written


def merged(*arguments):
    return typed("merge", *arguments).stdout.splitlines()


def test_logs_are_merged_by_time_and_lines_say_who_wrote_them(tmp_path):
    a = written(tmp_path / "rank_0.log", f"{stamp(1)} one", "  a traceback", f"{stamp(4)} four")
    b = written(tmp_path / "b.log", f"[node7:rank3] {stamp(2)} two", "nobody's")
    assert merged(a, b) == [
        f"[rank0]: {stamp(1)} one", "[rank0]:   a traceback", f"[node7:rank3] {stamp(2)} two",
        "(b.log) nobody's", f"[rank0]: {stamp(4)} four",
    ]  # fmt: skip
    assert f"[node7:rank3] {stamp(2)} two" in merged(a, b, "--strip")


def test_a_line_that_mpirun_tagged_in_parts_is_merged_as_one(tmp_path):
    a = written(tmp_path / "a.log", f"[1,0]<stdout>:{stamp(1)}[1,1]<stdout>:{stamp(2)} b",
                "[1,0]<stdout>: a[1,0]<stdout>:", f"[1,1]<stdout>:{stamp(4)} d")  # fmt: skip
    b = written(tmp_path / "b.log", f"[node7:rank3] {stamp(3)} c")
    assert merged(a, b, "--strip") == [
        f"[rank1]: {stamp(2)} b", f"[rank0]: {stamp(1)} a", f"[node7:rank3] {stamp(3)} c",
        f"[rank1]: {stamp(4)} d",
    ]  # fmt: skip
    assert f"[rank0]: [1,0]<stdout>:{stamp(1)} a" in merged(a, b)


def test_parts_that_wait_until_the_logs_last_line_are_merged_as_they_are(tmp_path):
    """More writers than are kept apart: their parts come when the last line is read, not later."""
    parts = [f"[1,{rank}]<stdout>:x" for rank in range(65_600)]
    log = tmp_path / "a.log"
    log.write_text("".join(parts))
    assert [line.split(" ", 1)[1] for line in merged(log)] == parts


def test_a_row_of_dashes_keeps_the_time_of_its_line(tmp_path):
    a = written(tmp_path / "a.log", f"[1,0]<stdout>:{stamp(1)} a {74 * '-'}",
                f"[1,0]<stdout>:{stamp(3)} c")  # fmt: skip
    b = written(tmp_path / "b.log", f"[1,1]<stdout>:{stamp(2)} b")
    assert [line.split()[3] for line in merged(a, b, "--strip")] == ["a", "b", "c"]


def test_a_log_without_times_is_searched_for_one_only_once(tmp_path):
    """A search of the buffer for each of its lines would take hours."""
    log = written(tmp_path / "a.log", *(f"[rank{n % 64}]: no time {n}" for n in range(300_000)))
    made = report("merge", log, "-o", tmp_path / "out")["data"]
    assert (made["lines"], made["untimed"]) == (300_000, 300_000)
    assert (tmp_path / "out").read_bytes() == log.read_bytes()


def test_an_offset_corrects_a_hosts_clock(tmp_path):
    log_a = written(tmp_path / "a.log", f"[a-1:rank0] {stamp(10)} x", f"[a-1:rank0] {stamp(12)} z")
    log_b = written(tmp_path / "b.log", f"[b-1:rank1] {stamp(41)} y")
    texts = [line[-1] for line in merged(log_a, log_b, "--offset", "b-1=-30")]
    assert texts == ["x", "y", "z"]


def test_clocks_are_estimated_from_common_steps(tmp_path):
    for host, ahead in (("a-1", 0), ("b-1", 37.25)):
        written(tmp_path / f"{host}.log", *(
            f"[{host}:rank0] {stamp(second + ahead + second % 3 / 50)} step {second} loss 2.1"
            for second in range(1, 30)
        ))  # fmt: skip
    logs = sorted(tmp_path.glob("*.log"))
    text = oddrank("merge", *logs, "-o", tmp_path / "out", "--offset", "auto", check=0).stderr
    assert "37.250 s" in text
    assert ("a-1 is 37.250 s behind that of b-1; 37.250 s are added" in text
            or "b-1 is 37.250 s ahead of that of a-1; 37.250 s are subtracted" in text)  # fmt: skip
    made = report("merge", *logs, "-o", tmp_path / "out", "--offset", "auto")["data"]
    (found,) = (one for one in made["offsets"] if one["events"])
    assert abs(abs(found["seconds"]) - 37.25) < 0.1
    assert (found["events"], found["used"]) == (29, True)
    steps = [line.split("step ")[1] for line in (tmp_path / "out").read_text().splitlines()]
    assert steps == sorted(steps, key=lambda text: int(text.split()[0]))


def test_clocks_that_cannot_be_estimated_are_left_and_it_is_said(tmp_path):
    few = [written(tmp_path / f"{name}.log", f"{stamp(n)} step {n}") for n, name in enumerate("ab")]
    out = ("-o", tmp_path / "out", "--offset", "auto")
    done = oddrank("merge", *few, *out, check=0)
    assert "is taken as it is" in done.stderr
    wild = [
        written(tmp_path / f"{host}.txt", *(f"{stamp(n * n * f)} step {n}" for n in range(20)))
        for host, f in (("a", 0.5), ("b", 5.5))
    ]
    assert "is taken as it is" in oddrank("merge", *wild, *out, check=0).stderr


def test_a_log_without_times_is_not_silently_put_somewhere(tmp_path):
    a = written(tmp_path / "a.log", f"{stamp(1)} one")
    b = written(tmp_path / "b.log", "no time at all")
    done = oddrank("merge", a, b, "-o", tmp_path / "out", check=0)
    assert "b.log names a time" in done.stderr


def test_a_hostile_line_does_not_reach_stdout_and_a_file_keeps_it(tmp_path):
    line = f"{stamp(1)} \x1b[2J\x1b]0;owned\x07 \x9b31m \u202e ok"
    log = written(tmp_path / "a.log", line)
    text = typed("merge", log).stdout
    assert all(c.isprintable() or c == "\n" for c in text)
    assert text.endswith("ok\n")
    oddrank("merge", log, "-o", tmp_path / "out", check=0)
    assert line in (tmp_path / "out").read_text()


def test_a_reader_that_leaves_early_ends_the_merge(tmp_path):
    log = written(tmp_path / "a.log", *(f"{stamp(1)} {'x' * 100}" for _ in range(40_000)))

    command = f"{sys.executable} -m oddrank logs merge {log} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=100,
                          check=False)  # fmt: skip
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_wrong_offsets_are_refused(tmp_path):
    log = written(tmp_path / "a.log", f"{stamp(1)} one")
    for wrong in ("node7", "node7=x", "=3", "node7=nan", "node7=1e99"):
        assert "is not like node7=-1.5" in oddrank("merge", log, "--offset", wrong, check=2).stderr
    out = tmp_path / "out"
    done = oddrank("merge", log, "-o", out, "--offset", "node7=3", check=2)
    assert "no log is of this host or has this name; there are a.log" in done.stderr
    assert not out.exists()


def test_an_offset_may_name_a_file_without_its_suffix(tmp_path):
    a = written(tmp_path / "n1.log", f"{stamp(10)} x", f"{stamp(12)} z")
    b = written(tmp_path / "n2.log", f"{stamp(41)} y")
    assert [line[-1] for line in merged(a, b, "--offset", "n2=-30")] == ["x", "y", "z"]


def test_a_hostile_name_of_a_file_does_not_reach_stdout(tmp_path):
    log = written(tmp_path / "a\x1b[31m\n.log", f"{stamp(1)} ok")
    (line,) = typed("merge", log).stdout.splitlines()
    assert line == f"(a\\x1b[31m\\n.log) {stamp(1)} ok"
