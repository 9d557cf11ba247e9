"""oddrank.NicerTrace: its text, its counts, that nothing is lost, and that nothing is harmed."""

import re
import signal
import sys
import time

import pytest

from nicer_scripts import Scripts, files_of, missing
from oddrank import NicerTrace
from oddrank.trace import Tee, tail
from patience import PATIENCE

EXAMPLE = """
    from pkg import image

    def main():
        img = image.new(4)
        for pixel in img:
            pass

    if __name__ == "__main__":
        sys.stdout = Tee(f"{os.path.realpath('.')}/trace-{os.environ['LOCAL_RANK']}.txt")
        tracer = NicerTrace(trace=1, count=1, timing=True, packages_to_include=["pkg"])
        tracer.run("main()")
"""


@pytest.fixture
def scripts(tmp_path):
    return Scripts(tmp_path)


def test_the_handbooks_example_prints_its_text_to_stdout_and_into_the_file(scripts, golden):
    out = scripts.masked(scripts.run(EXAMPLE, LOCAL_RANK="3"))
    golden(out)
    assert scripts.masked((scripts.folder / "trace-3.txt").read_text()) == out


# Script -> patterns of its output with their numbers, texts of its errors.
CASES = {
    "what a function returns and raises, and what is run, is as without": ("""
        def adds(a, *, b):
            return a + b
        def fails():
            raise KeyError("of the user")
        print("got", run(adds, 1, b=2))
        try:
            run(fails)
        except KeyError as error:
            print("got", error, traceback.extract_tb(error.__traceback__)[-1].name)
        try:
            NicerTrace().run("exit(3)")
        except SystemExit as error:
            print("got", error.code)
        NicerTrace().runctx("print('got', x)", {"x": 5})
    """, {"^got 3$": 2, "^got 'of the user' fails$": 1, "^got 5$": 1, "^got": 4,
         "^script.py:     5:     raise KeyError": 1}),
    "times are since the tracer was made": ("""
        def work():
            return 1
        tracer = NicerTrace(timing=True, packages_to_include="uninstalled")
        tracer.runfunc(work)
        tracer.start_ns -= 3600 * 10**9  # an hour later
        tracer.runfunc(work)
    """, {r"^0:\d\d:\d\d script": 1, r"^1:\d\d:\d\d script": 1, r"^\d+:\d\d:\d\d script": 2}),
    "text that is run has its script's name, and other code without a file has none": ("""
        import collections
        Pair = collections.namedtuple("Pair", "a b")
        NicerTrace().run("Pair(1, 2)")
    """, {"^ script.py:1 <module>$": 1, "^ <string>:1 <lambda>$": 1, r"^ \S+:\d+ \S+$": 2}),
    "inline caches make no function too long to show its lines": ("""
        open("long.py", "w").write("def long(a):\\n" + "    a = a + a\\n" * 950)
        sys.path.insert(0, ".")
        import long
        NicerTrace().runfunc(long.long, 0)
    """, {r"a = a \+ a": 950}),
    "many more lines than the ring holds": ("""
        def work():
            for i in range(500_000):
                i + 1
        run(work)
    """, {r"^script.py:     4:         i \+ 1$": 500_000, "\n": 1_000_002}),
    "threads, also more in a row than a record has slots for": ("""
        def work():
            for i in range(20_000):
                i + 1
        def short():
            return "short"
        def main():
            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for _ in range(100):
                one = threading.Thread(target=short)
                one.start()
                one.join()
        run(main)
    """, {r"^script.py:     4:         i \+ 1$": 80_000,
         '^script.py:     6:     return "short"$': 100}),
    "a signal is raised where the program is, and a stdout that fails raises nothing": ("""
        class Broken:
            def write(self, text):
                raise OSError("the disk is full")
            def flush(self):
                pass
        def work():
            try:
                signal.raise_signal(signal.SIGINT)
                for i in range(100_000):
                    pass
            except KeyboardInterrupt:
                return "interrupted"
        real, sys.stdout = sys.stdout, Broken()
        print(run(work), file=real)
    """, {"^interrupted$": 1, "\n": 1}, ("the disk is full",)),
    "a second one inside the first, and one after arm(), say what they do": ("""
        import oddrank
        def inner():
            return 7
        def outer():
            return run(inner)
        print(run(outer))
        oddrank.arm()
        print(run(inner))
    """, {"^script.py:     4:     return 7$": 2, "^7$": 2},
     ("another NicerTrace is running", "oddrank.arm() has been called before")),
    "a signal that the program waits for is not taken by the printing thread": ("""
        def begin_late(*_):
            sys.setprofile(None)
            time.sleep(0.5)
        def work():
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
            os.kill(os.getpid(), signal.SIGUSR1)
            return signal.sigwait({signal.SIGUSR1}) == signal.SIGUSR1
        threading.setprofile(begin_late)  # each thread before its run()
        print(run(work))
    """, {"^True$": 1}),
    "a program that closes all files it does not know": ("""
        def work():
            os.closerange(3, 256)
            files = [os.open("own", os.O_CREAT | os.O_WRONLY) for _ in range(20)]
            for i in range(100_000):
                i + 1
            return os.path.getsize("own")
        print(run(work))
    """, {r'    return os.path.getsize\("own"\)\n0\n\Z': 1, r"        i \+ 1$": 100_000}),
    "a record that somebody has removed": ("""
        import shutil
        def work():
            return 7
        tracer = NicerTrace(packages_to_include="uninstalled")
        tracer.runfunc(work)
        shutil.rmtree(os.environ["ODDRANK_DIR"])
        tracer.runfunc(work)
    """, {"return 7$": 2}),
    "a thread that nobody waits for has printed its lines when Python ends": ("""
        begun = threading.Event()
        def work():
            begun.set()
            time.sleep(60)
        threading.Thread(target=run, args=(work,), daemon=True).start()
        begun.wait(60)
    """, {r"^script.py:     4:     begun.set\(\)$": 1}),
    "a thread that waits to be printed does not abort Python as it ends": ("""
        class Held:
            def write(self, text):
                held.set()
                threading.Event().wait(60)
            def flush(self):
                pass
        def spin():
            while True:
                pass
        def interrupt():
            main = threading.main_thread().ident
            while True:
                time.sleep(0.05)
                stack = traceback.walk_stack(sys._current_frames()[main])
                if any(frame.f_code.co_name == "_end_thread" for frame, _ in stack):
                    os.kill(os.getpid(), signal.SIGINT)
        def work():
            threading.Thread(target=spin, daemon=True).start()
            held.wait(60)
            sys.setswitchinterval(100)  # who has the GIL keeps it: spin() until it waits, then main
            time.sleep(0.5)
            threading.Thread(target=interrupt, daemon=True).start()
        class GivesTheGil:
            def __del__(self, sleep=time.sleep):
                sleep(0.1)
        held, as_python_ends = threading.Event(), GivesTheGil()
        real, sys.stdout = sys.stdout, Held()
        try:
            run(work)
        except KeyboardInterrupt:
            sys.stdout = real
    """, {}),
    "Ctrl-C while the rest is written ends the run and lets another begin": ("""
        held = threading.Event()
        class Held:
            def write(self, text):
                held.wait(60)
            def flush(self):
                pass
        def interrupt():
            main, names = threading.main_thread().ident, set()
            while not {"_end_thread", "join"} <= names:
                time.sleep(0.05)
                stack = traceback.walk_stack(sys._current_frames()[main])
                names = {frame.f_code.co_name for frame, _ in stack}
            os.kill(os.getpid(), signal.SIGINT)
        def work():
            return 7
        threading.Thread(target=interrupt, daemon=True).start()
        real, sys.stdout = sys.stdout, Held()
        try:
            run(work)
        except KeyboardInterrupt:
            print("interrupted", file=real)
        sys.stdout = real
        held.set()
        run(work)
    """, {r"\Ainterrupted\n.*\nscript.py:    16:     return 7\n\Z": 1}),
    "Ctrl-C as a run begins leaves no thread and lets another begin": ("""
        def work():
            return 7
        start = threading.Thread.start
        def start_and_interrupt(thread):
            start(thread)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread.start = start_and_interrupt
        try:
            run(work)
        except KeyboardInterrupt:
            print("interrupted")
        threading.Thread.start = start
        while threading.active_count() > 1:
            time.sleep(0.01)
        print("alone", flush=True)
        run(work)
    """, {r"\Ainterrupted\nalone\n.*\nscript.py:     3:     return 7\n\Z": 1}),
    "a Tee whose file is closed loses the file only": ("""
        def work():
            tee.file.close()
            return 7
        sys.stdout = tee = Tee("trace.txt")
        result = run(work)
        sys.stdout = tee.stdout
        print(result)
    """, {r"^script.py:     4:     return 7\n7\n\Z": 1},
     ("could not be written: ValueError('I/O operation on closed file",)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_program_does_what_it_does_without_and_all_is_shown(scripts, name):
    source, shows, *errors = CASES[name]
    out = scripts.run(source).replace(f"{scripts.folder}/", "")
    assert missing(out) == 0
    for pattern, count in shows.items():
        assert len(re.findall(pattern, out, re.M)) == count, pattern
    assert all(text in scripts.errors for texts in errors for text in texts), scripts.errors
    assert scripts.errors == "" or errors


def test_pids_come_before_calls_and_lines_and_times_only_if_wanted(scripts):
    out = scripts.run(TRACED + 'NicerTrace(log_pids=True, **UNINSTALLED).run("work()")\n')
    (pid,) = set(re.findall(r"^\d+", out, re.M))
    shown = scripts.masked(out).replace(pid, "PID").splitlines()
    assert shown[2:4] == ["PID  script.py:5 work", "PID script.py:     6:     own.mine()"]


# Runs lines of this module, of one beside it, of an installed package and of the library.
TRACED = """
import colorsys
import own
from pkg import image
def work():
    own.mine()
    image.new(1)
    colorsys.rgb_to_yiq(1, 1, 1)
"""
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


def test_counts_are_those_of_the_standard_library_and_written_by_it(scripts):
    out = scripts.run(
        """
        import trace
        def fib(n):
            if n < 2:
                return n
            return fib(n - 1) + fib(n - 2)
        ours, theirs = NicerTrace(count=1, trace=0), trace.Trace(count=1, trace=0)
        for tracer in (ours, theirs, ours, theirs):
            tracer.runfunc(fib, 12)
        mine = {key: n for key, n in theirs.counts.items() if key[0] == __file__}
        assert mine and {k: n for k, n in ours.counts.items() if k[0] == __file__} == mine
        ours.results().write_results(coverdir="cover")
        """
    )
    assert out == ""
    cover = (scripts.folder / "cover" / "script.cover").read_text().splitlines()
    assert [int(line.split(":")[0]) for line in cover[3:6]] == [930, 466, 464]


def test_functions_and_who_calls_them(scripts):
    out = scripts.run(
        """
        class Inner:
            def deep(self):
                pass
        def outer():
            def nested():
                pass
            Inner().deep()
            Inner().deep()
            nested()
        for how in ("countfuncs", "countcallers"):
            tracer = NicerTrace(**UNINSTALLED, **{how: 1})
            tracer.runfunc(outer)
            results = tracer.results()
            print(sorted(name for _, _, name in results.calledfuncs))
            print(sorted((a[2], b[1], b[2]) for a, b in results.callers))
        """
    )
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


LOOP = """
def work():
    for i in range({}):
        i + 1
    print("ran", file=sys.stderr, flush=True)
run(work)
"""


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


def test_a_slow_reader_gets_every_line(scripts):
    slowly = b""
    with scripts.started(LOOP.format(400_000)) as process:
        for _ in range(50):
            slowly += process.stdout.buffer.read1(1 << 16)
            time.sleep(0.1)
        out = slowly.decode() + process.communicate(timeout=PATIENCE.limit)[0]
    assert missing(out) == 0
    assert out.count("script.py:     4:         i + 1\n") == 400_000


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
def test_forked_children_print_their_own_lines_with_their_pid(scripts, how):
    out = scripts.run(
        f"""
        import multiprocessing
        def child():
            return "child"
        def forks():
            if os.fork() == 0:
                child()
                return "in both"
            os.wait()
            return "in both"
        def processes():
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            process.join()
        NicerTrace(log_pids=True, **UNINSTALLED).runfunc({how})
        """
    )
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
