"""The lock file lies in a private folder, shared by all our processes; traps are refused."""

import os
import stat
from pathlib import Path

from oddrank import job
from oddrank.printing import lock_path, timeout_s
from printing import people

TELL = "from oddrank.printing import lock_path, printflock\nprintflock(lock_path)"


def test_the_lock_is_in_a_private_folder_that_processes_of_any_job_of_one_user_share():
    folder = Path(lock_path).parent
    assert stat.S_IMODE(folder.stat().st_mode) & 0o022 == 0
    assert stat.S_IMODE(Path(lock_path).stat().st_mode) == 0o600
    assert folder.stat().st_uid == os.geteuid()
    # Two jobs in one terminal, a parent and its children: locks are per output, not per job.
    one, two = (people.run(TELL, TORCHELASTIC_RUN_ID=job)[0] for job in ("one", "two"))
    assert one == two == f"{lock_path}\n".encode()


def test_the_folders_are_tried_in_the_order_of_the_documentation(tmp_path):
    environ = {"ODDRANK_DIR": "/a", "TMPDIR": "/b", "XDG_RUNTIME_DIR": "/c"}
    user = f"oddrank-{os.geteuid()}"
    assert [str(folder) for folder in job.base_folders(environ)] == [
        "/a", f"/dev/shm/{user}", f"/b/{user}", f"/c/{user}", f"/tmp/{user}",
    ]  # fmt: skip
    out, err = people.run(TELL, ODDRANK_DIR=str(tmp_path / "mine"))
    assert out.startswith(f"{tmp_path}/mine/printflock-".encode())
    assert err == b""


def test_traps_and_no_place_at_all_are_told_once_and_printing_goes_on(tmp_path, golden):
    open_to_all = tmp_path / "tmp"
    open_to_all.mkdir()
    open_to_all.chmod(0o1777)
    (tmp_path / "target").mkdir()
    (open_to_all / "trap").symlink_to(tmp_path / "target")
    out, trap = people.run(TELL, ODDRANK_DIR=str(open_to_all / "trap"))
    assert out.startswith(str(Path(lock_path).parent).encode())
    assert list((tmp_path / "target").iterdir()) == []
    code = (
        "from pathlib import Path\nfrom oddrank import job\n"
        "job.base_folders = lambda: (Path('/proc/nowhere'),)\n"
        "from oddrank import printflock\nprintflock('still')\nprintflock('here')"
    )
    out, nowhere = people.run(code)
    assert out == b"still\nhere\n"
    golden((trap + nowhere).decode().replace(str(tmp_path), "FOLDER"))


def test_the_deadline_is_read_from_the_environment_and_a_bad_one_is_told(capsys, golden):
    for text, seconds in ((None, 1.0), ("", 1.0), ("2.5", 2.5), ("0", 0.0)):
        assert timeout_s(text) == seconds
    assert capsys.readouterr().err == ""
    assert [timeout_s(text) for text in ("soon", "-1", "nan", "1e9")] == [1.0] * 4
    golden(capsys.readouterr().err)
