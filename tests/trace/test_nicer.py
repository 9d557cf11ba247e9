"""oddrank.NicerTrace: its text, its counts, that nothing is lost, and that nothing is harmed."""

import re
import signal
import sys

import pytest

from nicer_scripts import Scripts, files_of, missing
from oddrank import NicerTrace
from oddrank.trace import Tee, tail
from patience import PATIENCE
from texts import cases, texts

TEXTS = texts(__file__)

EXAMPLE = TEXTS["example"]


@pytest.fixture
def scripts(tmp_path):
    return Scripts(tmp_path)


def test_the_handbooks_example_prints_its_text_to_stdout_and_into_the_file(scripts, golden):
    out = scripts.masked(scripts.run(EXAMPLE, LOCAL_RANK="3"))
    golden(out)
    assert scripts.masked((scripts.folder / "trace-3.txt").read_text()) == out


# Scripts; below them the numbers of patterns in their output, or texts of their errors.
CASES = cases(__file__)


@pytest.mark.parametrize("name", CASES)
def test_a_program_does_what_it_does_without_and_all_is_shown(scripts, name):
    source, _, said = CASES[name]
    out = scripts.run(source).replace(f"{scripts.folder}/", "")
    assert missing(out) == 0
    for number, shown in (line.split(" ", 1) for line in said.splitlines()):
        if number == "error":
            assert shown in scripts.errors
        else:
            assert len(re.findall(shown, out, re.M)) == int(number), shown
    assert scripts.errors == "" or "error " in said


def test_pids_come_before_calls_and_lines_and_times_only_if_wanted(scripts):
    out = scripts.run(TRACED + 'NicerTrace(log_pids=True, **UNINSTALLED).run("work()")\n')
    (pid,) = set(re.findall(r"^\d+", out, re.M))
    shown = scripts.masked(out).replace(pid, "PID").splitlines()
    assert shown[2:4] == ["PID  script.py:5 work", "PID script.py:     6:     own.mine()"]


# Runs lines of this module, of one beside it, of an installed package and of the library.
TRACED = TEXTS["traced"]
CHOICES = {
    "packages_to_include='uninstalled'": {"script.py", "own.py"},
    "packages_to_include=['pkg']": {"script.py", "own.py", "image.py"},
    "packages_to_include='pkg'": {"script.py", "own.py", "image.py"},
    "packages_to_include=['colorsys.py']": {"script.py", "own.py", "colorsys.py"},
    "packages_to_include=None": {"script.py", "own.py", "image.py", "colorsys.py"},
    "ignoremods=['pkg', 'own']": {"script.py", "colorsys.py"},
    "ignoredirs=['site-packages']": {"script.py", "own.py", "colorsys.py"},
    "ignoremods=['own'], packages_to_include='uninstalled'": {"script.py"},
}


def test_only_what_is_included_and_not_ignored_is_shown(scripts):
    runs = "".join(f'NicerTrace({each}).run("work()")\nprint("====")\n' for each in CHOICES)
    *shown, rest = scripts.run(TRACED + runs).split("====\n")
    assert rest == ""
    for (arguments, files), text in zip(CHOICES.items(), shown, strict=True):
        assert files_of(text) - {"<string>"} == files, arguments


def test_folders_and_packages_together_are_refused():
    with pytest.raises(ValueError, match="one of them"):
        NicerTrace(ignoredirs=["/usr"], packages_to_include=["pkg"])


def test_assignments_go_to_the_namespace_that_was_given():
    made, own = {}, {}
    NicerTrace(count=0, trace=0).runctx("a = 1", made)
    NicerTrace(count=0, trace=0).runctx("b = 2", made, own)
    assert (made.keys(), own) == ({"__builtins__"}, {"b": 2})


def test_counts_are_those_of_the_standard_library_and_written_by_it(scripts, source):
    out = scripts.run(source)
    assert out == ""
    cover = (scripts.folder / "cover" / "script.cover").read_text().splitlines()
    assert [int(line.split(":")[0]) for line in cover[3:6]] == [930, 466, 464]


def test_functions_and_who_calls_them(scripts, source):
    out = scripts.run(source)
    deep = "deep" if sys.version_info < (3, 11) else "Inner.deep"
    names = str(sorted([deep, "nested", "outer"]))
    calls = [("outer", "script", called) for called in (deep, "nested")]
    assert out.splitlines() == [names, "[]", names, str(calls)]


def test_a_tee_appends_to_its_file_at_once_and_is_stdout_otherwise(tmp_path, capsys, monkeypatch):
    file = tmp_path / "trace.txt"
    file.write_text("before\n")
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    sys.stdout = tee = Tee(file)
    print("text é")
    assert file.read_text(encoding="utf-8") == "before\ntext é\n"
    assert capsys.readouterr().out == "text é\n"
    assert tee.isatty() is False


LOOP = TEXTS["loop"]


def test_without_a_reader_the_program_goes_on_and_the_text_counts_missing_events(scripts):
    with scripts.started(LOOP.format(1_500_000)) as process:
        assert process.stderr.readline() == "ran\n"
        out = process.stdout.read()
        assert process.wait(PATIENCE.limit) == 0
    assert missing(out) > 0
    # Counts all events of the record; the text shows no returns.
    calls, returns = 1, 1
    shown = sum(not line.startswith("--- ") for line in out.splitlines())
    assert shown + missing(out) - (3_000_002 + calls) in (0, returns)


def test_a_reader_that_goes_away_is_nothing_to_complain_of_and_the_program_goes_on(scripts):
    with scripts.started(LOOP.format(20_000)) as process:
        assert process.stdout.readline()
        process.stdout.close()  # as `| head -n 1`
        errors = process.stderr.read()
        assert (process.wait(PATIENCE.limit), errors) == (0, "ran\n")


def test_a_program_that_hangs_has_printed_its_last_line(scripts):
    with scripts.started("\ndef hangs():\n    time.sleep(600)\nrun(hangs)\n") as process:
        lines = [process.stdout.readline(), process.stdout.readline()]
    assert lines[-1] == "script.py:     3:     time.sleep(600)\n"


@pytest.mark.parametrize("how", ["forks", "processes"])
def test_forked_children_print_their_own_lines_with_their_pid(scripts, how, source):
    out = scripts.run(source.replace("HOW", how))
    pids = re.findall(r'^(\d+) script.py: +4:     return "child"$', out, re.M)
    assert len(pids) == 1
    assert len(set(re.findall(r"^\d+", out, re.M)) - set(pids)) == 1  # the parent's
    begins = re.findall(r"^\d+  \S+ (?:forks|processes)$", out, re.M)
    assert len(begins) == 1  # text not yet printed at the fork is not printed twice


def test_the_record_has_the_lines_that_a_killed_program_did_not_print(scripts):
    scripts.run("\ndef dies():\n    os.kill(os.getpid(), 9)\nrun(dies)\n", code=-signal.SIGKILL)
    (record,) = scripts.folder.glob("records/*/*.trace")
    last = list(tail.text(record, 5, source=True))[-1]
    assert last.endswith("script.py:3: os.kill(os.getpid(), 9)")
