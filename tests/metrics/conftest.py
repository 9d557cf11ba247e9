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
