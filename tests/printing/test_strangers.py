"""The lock file lies in a private folder, shared by all our processes; traps are refused."""

import os
import stat
from pathlib import Path

import pytest

from oddrank import job
from oddrank.printing import lock_path, timeout_s
from printing import people

TELL = "from oddrank.printing import lock_path, printflock\nprintflock(lock_path)"


def test_the_lock_is_in_a_private_folder():
    folder = Path(lock_path).parent
    assert stat.S_IMODE(folder.stat().st_mode) & 0o022 == 0
    assert stat.S_IMODE(Path(lock_path).stat().st_mode) == 0o600
    assert folder.stat().st_uid == os.geteuid()


def test_processes_of_any_job_of_one_user_share_it():
    # Two jobs in one terminal, a parent and its children: locks are per output, not per job.
    one, _ = people.run(TELL, TORCHELASTIC_RUN_ID="one")
    two, _ = people.run(TELL, TORCHELASTIC_RUN_ID="two")
    assert one == two == f"{lock_path}\n".encode()


def test_a_chosen_folder_is_used(tmp_path):
    out, err = people.run(TELL, ODDRANK_DIR=str(tmp_path / "mine"))
    assert out.startswith(f"{tmp_path}/mine/printflock-".encode())
    assert err == b""


def test_a_trap_in_place_of_the_folder_is_refused_and_told_and_printing_goes_on(tmp_path):
    open_to_all = tmp_path / "tmp"
    open_to_all.mkdir()
    open_to_all.chmod(0o1777)
    (tmp_path / "target").mkdir()
    (open_to_all / "trap").symlink_to(tmp_path / "target")
    out, err = people.run(TELL, ODDRANK_DIR=str(open_to_all / "trap"))
    assert out.startswith(str(Path(lock_path).parent).encode())
    assert err.count(b"\n") == 1
    assert b"ODDRANK_DIR is not used" in err
    assert b"symbolic link" in err
    assert list((tmp_path / "target").iterdir()) == []


def test_no_place_at_all_is_told_once_and_printing_goes_on():
    code = (
        "from pathlib import Path\nfrom oddrank import job\n"
        "job.base_folders = lambda: (Path('/proc/nowhere'),)\n"
        "from oddrank import printflock\nprintflock('still')\nprintflock('here')"
    )
    out, err = people.run(code)
    assert out == b"still\nhere\n"
    assert err.count(b"\n") == 1
    assert b"no folder for a lock file" in err


def test_the_folders_are_tried_in_the_order_of_the_documentation():
    environ = {"ODDRANK_DIR": "/a", "TMPDIR": "/b", "XDG_RUNTIME_DIR": "/c"}
    user = f"oddrank-{os.geteuid()}"
    assert [str(folder) for folder in job.base_folders(environ)] == [
        "/a",
        f"/dev/shm/{user}",
        f"/b/{user}",
        f"/c/{user}",
        f"/tmp/{user}",
    ]


@pytest.mark.parametrize(
    ("text", "seconds"), [(None, 1.0), ("", 1.0), ("2.5", 2.5), ("0", 0.0)], ids=str
)
def test_the_deadline_is_read_from_the_environment(text, seconds):
    assert timeout_s(text) == seconds


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "1e9"])
def test_a_bad_deadline_is_told_and_the_usual_one_taken(text, capsys):
    assert timeout_s(text) == 1.0
    assert capsys.readouterr().err.count("\n") == 1
