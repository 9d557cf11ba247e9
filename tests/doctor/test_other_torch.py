"""With a torch of another version all works that needs no `_torch`, and the rest says why it can't.

ODDRANK_TEST_OTHER_TORCH names a Python of this one's version that has such a torch.
"""

import json
import tempfile
from pathlib import Path

import pytest

import other_torch
from oddrank import _native
from processes import captured
from texts import texts

pytestmark = [pytest.mark.needs("other-torch", "torch-build"), pytest.mark.timeout(600)]
COMMAND = "import runpy; sys.argv[0] = 'oddrank'; runpy.run_module('oddrank', run_name='__main__')"


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory):
    """Runs code in the other Python."""
    folder = tmp_path_factory.mktemp("other")

    def run(code: str, *arguments: str) -> str:
        line = other_torch.command(Path(tempfile.mkdtemp(dir=folder)), code)
        done = captured([*line, *arguments], env=other_torch.environ())
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
        return done.stdout

    return run


def test_doctor_and_the_recorder_say_what_does_not_fit_and_the_rest_works(other):
    report = json.loads(other(COMMAND, "doctor", "--json", "-"))["data"]
    version, part = report["torch"]["version"], report["parts"]["_torch"]
    built = _native.build_report()["_torch"]["torch"]
    fits = _native.minor_version(version) == _native.minor_version(built)
    why = "" if fits else f"it was built against torch {built}, but this is torch {version}"
    assert (part["present"], part.get("reason", "")) == (fits, why)
    has_hooks = tuple(map(int, _native.minor_version(version).split("."))) >= (2, 14)
    recorder = "_torch" if fits else "hooks" if has_hooks else ""
    assert report["torch"]["collectives"] == recorder
    computed, said = other(texts(__file__)["trains"]).splitlines()
    assert computed == "[1.0, 1.0] incomplete", "one rank has no copy to compare with"
    assert (said == "[]") == bool(recorder)
    assert recorder or why in said
    for line in ("bench run --sizes 8 --budget 1 --precision 50%", "selftest --quick --only train"):
        assert "healthy" in other(COMMAND, *line.split())
