"""Every frame has its name, however many functions a framework brings along."""

import pytest

from oddrank.trace import stats

MODULES, CLASSES = 50, 80
# About as long as a method of a framework: its line table has hundreds of bytes.
METHOD = """
class Class{number}:
    def method(self, config, *arguments):
        for index, argument in enumerate(arguments):
            if argument is not None and config.get("enabled", True):
                self.values[index] = max(argument.size(0), config["least"], self.least)
                self.names.append(f"{{index}} of {{len(arguments)}}: {{argument!r}}")
        return self
"""


@pytest.fixture
def framework(script):
    """Makes a package of 4,000 classes with a method each; a framework by its name."""
    package = script.folder / "transformers"
    package.mkdir()
    source = "".join(METHOD.format(number=number) for number in range(CLASSES))
    for number in range(MODULES):
        (package / f"module{number}.py").write_text(source)
    return script


USE = f"""
        import importlib
        def use():
            for number in range({MODULES}):
                module = importlib.import_module(f"transformers.module{{number}}")
                for name in range({CLASSES}):
                    getattr(module, f"Class{{name}}")().method({{}})
        def train():
            os.kill(os.getpid(), signal.SIGKILL)
        use()
        train()
"""


def test_a_record_of_the_default_size_holds_all_code_of_a_large_framework(framework):
    rank = framework.rank(USE)
    ((counted,), _) = stats.read([rank.file])
    assert counted.lost["codes"] == 0
    assert [frame.function for frame in rank.main.stack] == ["<module>", "train"]


def test_a_framework_too_large_for_the_record_leaves_room_for_own_code(framework):
    rank = framework.rank(USE, ODDRANK_TRACE_MB="1")
    ((counted,), _) = stats.read([rank.file])
    assert counted.lost["codes"] > 1000
    assert [frame.function for frame in rank.main.stack] == ["<module>", "train"]
    assert rank.main.stack[-1].line
