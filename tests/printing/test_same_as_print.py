"""printflock writes, raises and ignores what print() does."""

import contextlib
import inspect
import io
import pickle
import sys

import pytest
from hypothesis import given
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


@given(
    st.lists(st.one_of(st.text(st.characters()), st.integers(), st.none(), st.binary())),
    st.one_of(st.none(), st.text(st.characters(), max_size=5)),
    st.one_of(st.none(), st.text(st.characters(), max_size=5)),
)
def test_any_values_separator_and_end_come_out_as_from_print(values, sep, end):
    expected = output_of(print, *values, sep=sep, end=end)
    assert output_of(printflock, *values, sep=sep, end=end) == expected


def test_lone_surrogates_reach_a_file_that_can_take_them():
    assert output_of(printflock, "a\udc80b") == "a\udc80b\n"


def test_an_unknown_option_is_a_type_error_that_names_it():
    with pytest.raises(TypeError, match=r"'colour'.*printflock\(\)|printflock\(\).*'colour'"):
        printflock("x", colour="red")


@pytest.mark.parametrize("options", [{"sep": 1}, {"end": b""}, {"sep": [1]}], ids=str)
def test_wrong_options_are_the_same_type_errors(options):
    with pytest.raises(TypeError) as expected:
        print("x", **options)
    with pytest.raises(TypeError) as got:
        printflock("x", **options)
    assert str(got.value) == str(expected.value)


def test_an_error_of_str_comes_before_anything_is_written():
    file = io.StringIO()
    with pytest.raises(Loud, match="no text"):
        printflock("before", Unprintable(), file=file)
    assert file.getvalue() == ""


def test_an_object_without_write_is_an_attribute_error():
    with pytest.raises(AttributeError, match="write"):
        printflock("x", file=object())


def test_no_stdout_means_no_output(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    printflock("nowhere")


def test_a_deleted_stdout_is_a_runtime_error(monkeypatch):
    monkeypatch.delattr(sys, "stdout")
    with pytest.raises(RuntimeError, match=r"lost sys\.stdout"):
        printflock("x")


def test_a_closed_file_is_a_value_error(tmp_path):
    file = (tmp_path / "out").open("w")
    file.close()
    with pytest.raises(ValueError, match="closed"):
        printflock("x", file=file)


def test_flush_calls_flush_and_its_truth_may_raise():
    class File(io.StringIO):
        flushed = 0

        def flush(self):
            self.flushed += 1

    file = File()
    printflock("x", file=file)
    assert file.flushed == 0
    printflock("x", file=file, flush=True)
    assert file.flushed == 1


def test_captured_output_is_seen_by_capsys(capsys):
    printflock("seen", 1)
    printflock("error", file=sys.stderr)
    assert capsys.readouterr() == ("seen 1\n", "error\n")


def test_captured_descriptors_are_seen_by_capfd(capfd):
    printflock("seen")
    assert capfd.readouterr().out == "seen\n"


def test_redirected_stdout_is_obeyed():
    with contextlib.redirect_stdout(io.StringIO()) as file:
        printflock("here")
    assert file.getvalue() == "here\n"


def test_the_newline_and_encoding_of_a_file_are_kept(tmp_path):
    with (tmp_path / "out").open("w", newline="\r\n", encoding="utf-16-le") as file:
        printflock("ä", file=file)
    assert (tmp_path / "out").read_bytes() == "ä\r\n".encode("utf-16-le")


def test_a_file_inside_a_compressing_one_is_not_flushed_line_by_line(tmp_path):
    class Counts(io.BytesIO):
        flushed = 0

        def flush(self):
            self.flushed += 1

    raw = Counts()
    file = io.TextIOWrapper(raw, write_through=True)
    printflock("x", file=file)
    assert (raw.getvalue(), raw.flushed) == (b"x\n", 0)


def test_its_signature_is_that_of_print_and_it_can_be_sent_to_other_processes():
    assert (
        str(inspect.signature(printflock)) == "(*args, sep=' ', end='\\n', file=None, flush=False)"
    )
    assert pickle.loads(pickle.dumps(printflock)) is oddrank.printflock


def test_text_that_plain_print_left_in_the_buffer_comes_first():
    out, _ = people.run(
        "from oddrank import printflock\nfor i in range(3): print(i, end=' '); printflock(i, 'x')",
        PYTHONUNBUFFERED="",
    )
    assert out == b"0 0 x\n1 1 x\n2 2 x\n"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii:backslashreplace", "latin-1", "utf-16"])
def test_the_encoding_of_stdout_is_obeyed(encoding):
    code = "from {} import {} as say\nfor word in ('a', 'ä', 'ä\\n'): say(word)"
    expected, _ = people.run(code.format("builtins", "print"), PYTHONIOENCODING=encoding)
    got, _ = people.run(code.format("oddrank", "printflock"), PYTHONIOENCODING=encoding)
    assert got == expected


def test_what_stdout_cannot_encode_is_an_error_and_nothing_is_written():
    out, err = people.run(
        "import sys\nfrom oddrank import printflock\nprintflock('first')\n"
        "try: printflock('ä\\udc80')\nexcept UnicodeEncodeError: sys.stderr.write('refused')",
        PYTHONIOENCODING="utf-8:strict",
    )
    assert (out, err) == (b"first\n", b"refused")


def test_a_changed_stdout_is_noticed():
    out, _ = people.run(
        "import sys\nfrom oddrank import printflock\nprintflock('ä')\n"
        "sys.stdout.reconfigure(encoding='latin-1'); printflock('ä')\n"
        "sys.stdout.write = lambda text: sys.stderr.write('mine ' + text); printflock('b')",
        PYTHONIOENCODING="utf-8",
    )
    assert out == "ä\n".encode() + "ä\n".encode("latin-1")


@pytest.mark.parametrize("say", ["print", "printflock"])
def test_a_reader_that_went_away_is_a_broken_pipe(say):
    process = people.start(
        f"import sys, os\nfrom oddrank import printflock\nsys.stdin = None\n"
        f"r, w = os.pipe(); os.close(r); os.dup2(w, 1)\n"
        f"try: {say}('x', flush=True)\n"
        f"except BrokenPipeError: os._exit(0)\nos._exit(1)",
        None,
    )
    people.finish(process)


def test_a_full_device_is_an_os_error():
    with open("/dev/full", "w") as full:
        process = people.start(
            "import errno, os\nfrom oddrank import printflock\n"
            "try: printflock('x')\n"
            "except OSError as error: os._exit(error.errno != errno.ENOSPC)\n"
            "os._exit(1)",
            full.fileno(),
        )
        people.finish(process)
