"""Runs `oddrank metrics` for the tests of this folder."""

import pytest

from oddrank import cli


@pytest.fixture
def oddrank(capsys):
    """Runs the command in this process: (exit code, stdout, stderr)."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main(["metrics", *map(str, arguments)])
        return ended.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def refused(oddrank):
    """Runs the command on bad input. Returns its one line on stderr."""

    def run(*arguments):
        code, said, error = oddrank(*arguments)
        assert (code, said) == (2, "")
        (line,) = error.splitlines()
        return line

    return run
