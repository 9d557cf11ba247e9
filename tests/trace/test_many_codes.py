"""Every frame has its name, however many functions a framework brings; losses are told."""

import re

import pytest

from texts import texts

MODULES, CLASSES = 50, 80
# About as long as a method of a framework: its line table has hundreds of bytes.
METHOD = texts(__file__)["method"]


USE = texts(__file__)["use"].replace("MODULES", f"{MODULES}").replace("CLASSES", f"{CLASSES}")


@pytest.fixture
def used(script):
    """Runs a program that uses 4,000 classes; returns the lost codes, and where it was killed."""

    def run(package, **environ):
        (script.folder / package).mkdir()
        (script.folder / package / "__init__.py").touch()  # it comes before an installed one
        source = "".join(METHOD.format(number=number) for number in range(CLASSES))
        for number in range(MODULES):
            (script.folder / package / f"module{number}.py").write_text(source)
        rank = script.rank(USE, "overhead=None", PACKAGE=package, **environ)
        lost = [int(n) for n in re.findall(r"no room for (\d+) codes", "\n".join(rank.notes))]
        return sum(lost), [(frame.function, frame.line) for frame in rank.main.stack]

    return run


# Code of transformers is recorded by calls, that of a clone by lines.
@pytest.mark.parametrize("package", ["transformers", "my_clone"])
def test_a_record_of_the_default_size_holds_all_code_of_a_large_program(used, package):
    assert used(package) == (0, [("<module>", 11), ("train", 9)])


def test_a_framework_too_large_for_the_record_leaves_room_for_own_code(used):
    lost, stack = used("transformers", ODDRANK_TRACE_MB="1")
    assert lost > 1000
    assert stack == [("<module>", 11), ("train", 9)]


def test_losses_are_told(script):
    rank = script.rank(
        """
        gate = threading.Barrier(200)
        threads = [threading.Thread(target=gate.wait) for _ in range(199)]
        for thread in threads:
            thread.start()
        gate.wait()
        """,
        ODDRANK_TRACE_MB="0.125",
    )
    assert any(re.fullmatch(r"no room for \d+ threads: raise ODDRANK_TRACE_MB", note)
               for note in rank.notes)  # fmt: skip
