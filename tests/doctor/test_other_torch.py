"""With a torch of another version all works that needs no `_torch`, and the rest says why it can't.

ODDRANK_TEST_OTHER_TORCH names a Python of this one's version that has such a torch.
"""

import json
import os
import sys
from importlib import import_module
from pathlib import Path

import pytest

import oddrank
from oddrank import _native
from processes import captured
from texts import texts

pytestmark = [pytest.mark.needs("other-torch", "torch-build"), pytest.mark.timeout(600)]
COMMAND = "import runpy; sys.argv[0] = 'oddrank'; runpy.run_module('oddrank', run_name='__main__')"


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory):
    """Runs code in the other Python, which finds oddrank and what it needs behind its own torch."""
    package = tmp_path_factory.mktemp("other") / "oddrank"
    package.mkdir()
    parts = [_native.core(), _native.torch(), import_module("oddrank._build")]
    here = Path(oddrank.__file__).parent.iterdir()
    for file in {*here, *(Path(str(part.__file__)) for part in parts)}:
        (package / file.name).symlink_to(file)
    places = [str(package.parent), *(path for path in sys.path if path.endswith("-packages"))]

    def run(code: str, *arguments: str) -> str:
        line = [os.environ["ODDRANK_TEST_OTHER_TORCH"], "-c", f"import sys; sys.path += {places}\n"]
        line[-1] += code
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = captured([*line, *arguments], env=environ)
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
    computed, said = other(texts(__file__)["trains"]).splitlines()
    assert computed == "[1.0, 1.0] incomplete", "one rank has no copy to compare with"
    assert (why in said, said == "[]") == (True, fits)
    for line in ("bench run --sizes 8 --budget 1 --precision 50%", "selftest --quick --only train"):
        assert "healthy" in other(COMMAND, *line.split())
