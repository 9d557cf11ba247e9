"""printflock writes, raises and ignores what print() does."""

import contextlib
import inspect
import io
import pickle
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import oddrank
from oddrank import printflock
from printing import people


class Loud(Exception):
    pass


class Unprintable:
    def __str__(self):
        raise Loud("no text")


def output_of(function, *args, **options):
    file = io.StringIO()
    function(*args, file=file, **options)
    return file.getvalue()


@example(["a\udc80b"], None, None)  # a file may take lone surrogates
@given(
    st.lists(st.one_of(st.text(st.characters()), st.integers(), st.none(), st.binary())),
    st.one_of(st.none(), st.text(st.characters(), max_size=5)),
    st.one_of(st.none(), st.text(st.characters(), max_size=5)),
)
def test_any_values_separator_and_end_come_out_as_from_print(values, sep, end):
    expected = output_of(print, *values, sep=sep, end=end)
    assert output_of(printflock, *values, sep=sep, end=end) == expected


def test_errors_are_those_of_print(tmp_path, monkeypatch):
    closed, file = (tmp_path / "out").open("w"), io.StringIO()
    closed.close()
    for values, options in (
        (["x"], {"sep": 1}), (["x"], {"end": b""}), (["x"], {"sep": [1]}),
        (["before", Unprintable()], {"file": file}), (["x"], {"file": object()}),
        (["x"], {"file": closed}),
    ):  # fmt: skip
        with pytest.raises(Exception) as expected:  # noqa: PT011
            print(*values, **options)
        file.truncate(0)
        with pytest.raises(type(expected.value)) as got:
            printflock(*values, **options)
        assert str(got.value) == str(expected.value)
    assert file.getvalue() == "", "an error of str() comes before anything is written"
    with pytest.raises(TypeError, match=r"'colour'.*printflock\(\)|printflock\(\).*'colour'"):
        printflock("x", colour="red")
    monkeypatch.setattr(sys, "stdout", None)
    printflock("nowhere")
    monkeypatch.delattr(sys, "stdout")
    with pytest.raises(RuntimeError, match=r"lost sys\.stdout"):
        printflock("x")


class Counts(io.BytesIO):
    flushed = 0

    def flush(self):
        self.flushed += 1


def test_a_file_and_one_inside_of_it_are_flushed_only_if_that_is_asked_for():
    raw = Counts()
    file = io.TextIOWrapper(raw, write_through=True)
    printflock("x", file=file)
    assert (raw.getvalue(), raw.flushed) == (b"x\n", 0)
    printflock("x", file=file, flush=True)
    assert raw.flushed == 1


def test_captured_and_redirected_output_is_obeyed(capfd):
    printflock("seen", 1)
    printflock("error", file=sys.stderr)
    assert capfd.readouterr() == ("seen 1\n", "error\n")
    with contextlib.redirect_stdout(io.StringIO()) as file:
        printflock("here")
    assert file.getvalue() == "here\n"


def test_the_newline_and_encoding_of_a_file_are_kept(tmp_path):
    with (tmp_path / "out").open("w", newline="\r\n", encoding="utf-16-le") as file:
        printflock("ä", file=file)
    assert (tmp_path / "out").read_bytes() == "ä\r\n".encode("utf-16-le")


def test_its_signature_is_that_of_print_and_it_can_be_sent_to_other_processes():
    shown = str(inspect.signature(printflock))
    assert shown == "(*args, sep=' ', end='\\n', file=None, flush=False)"
    assert pickle.loads(pickle.dumps(printflock)) is oddrank.printflock


def test_the_encoding_of_stdout_is_obeyed():
    code = "from {} import {} as say\nfor word in ('a', 'ä', 'ä\\n'): say(word)"
    for encoding in ("utf-8", "ascii:backslashreplace", "latin-1", "utf-16"):
        expected, _ = people.run(code.format("builtins", "print"), PYTHONIOENCODING=encoding)
        got, _ = people.run(code.format("oddrank", "printflock"), PYTHONIOENCODING=encoding)
        assert got == expected, encoding


def test_what_print_left_comes_first_and_a_changed_stdout_is_noticed():
    for environ, code, out, err in (
        ({"PYTHONUNBUFFERED": ""}, "for i in range(3): print(i, end=' '); printflock(i, 'x')",
         b"0 0 x\n1 1 x\n2 2 x\n", b""),
        # What stdout cannot encode is an error, and nothing of it is written.
        ({"PYTHONIOENCODING": "utf-8:strict"},
         "printflock('first')\ntry: printflock('ä\\udc80')\n"
         "except UnicodeEncodeError: sys.stderr.write('refused')", b"first\n", b"refused"),
        ({"PYTHONIOENCODING": "utf-8"},
         "printflock('ä')\nsys.stdout.reconfigure(encoding='latin-1'); printflock('ä')\n"
         "sys.stdout.write = lambda text: sys.stderr.write('mine ' + text); printflock('b')",
         "ä\n".encode() + "ä\n".encode("latin-1"), b"mine b\n"),
    ):  # fmt: skip
        begin = "import sys\nfrom oddrank import printflock\n"
        assert people.run(begin + code, **environ) == (out, err), code


def test_a_reader_that_went_away_is_a_broken_pipe_and_a_full_device_an_os_error():
    gone = (
        "import os\nfrom oddrank import printflock\n"
        "r, w = os.pipe(); os.close(r); os.dup2(w, 1)\n"
        "try: printflock('x', flush=True)\n"
        "except BrokenPipeError: os._exit(0)\nos._exit(1)"
    )
    people.finish(people.start(gone))
    full = (
        "import errno, os\nfrom oddrank import printflock\n"
        "try: printflock('x')\n"
        "except OSError as error: os._exit(error.errno != errno.ENOSPC)\nos._exit(1)"
    )
    with open("/dev/full", "w") as device:
        people.finish(people.start(full, device.fileno()))
