"""Frames of known libraries tell helper threads and launchers; the user's own folders never do."""

from pathlib import Path

import oddrank
from oddrank.triage.facts import Frame
from oddrank.triage.leaves import is_helper, kind_of, no_rank

SITE = "/opt/venv/lib/python3.11/site-packages/"
STDLIB = "/usr/lib/python3.12/"

DATA = Path(__file__).with_name("data")
# A file, and functions in which its threads wait for work beside the training.
HELPERS = (DATA / "helper_frames.txt").read_text()
NO_RANKS = (DATA / "frames_of_no_rank.txt").read_text()


def rows(table: str) -> list[tuple[str, str, str]]:
    lines = [line.partition(" = ") for line in table.strip().splitlines()]
    return [
        (file, name, what)
        for known, _, what in lines
        for file, *names in [known.split()]
        for name in names
    ]


def places(file: str) -> list[str]:
    """Returns how tools write the file's path: whole, cut off by py-spy, below an egg or wheel."""
    return [SITE + file, STDLIB + file, file, f"{SITE}x-1.0-py3.11.egg/{file}", f"/p/x.whl/{file}"]


def test_a_thread_in_the_loop_of_a_known_helper_is_no_evidence():
    user = Frame("step", "/home/me/train.py", 9)
    for file, name, _ in rows(HELPERS):
        for path in places(file):
            assert is_helper("", (Frame(name, path, 7),)), (name, path)
            assert is_helper("", (user, Frame(f"Thing.{name}", path, 7))) is (name != "_worker")
    assert not is_helper("", (user,))


def test_a_pool_s_thread_is_a_helper_only_while_it_waits_for_work():
    pool = Frame("_worker", STDLIB + "concurrent/futures/thread.py")
    assert is_helper("", (Frame("wait", STDLIB + "threading.py"), pool))
    assert not is_helper("", (Frame("wait", STDLIB + "threading.py"), Frame("f", "a.py"), pool))


def test_launchers_and_workers_of_dataloaders_are_no_ranks():
    for file, name, what in rows(NO_RANKS):
        for path in places(file):
            assert no_rank((Frame("f", "/home/me/a.py"), Frame(name, path))) == what, (name, path)
        assert not no_rank((Frame("unheard_of", SITE + file),))


HERE = Path(oddrank.__file__).parent
# The users' own files, in folders called as libraries, and beside those of helpers.
USERS = [
    *(f"{folder}/train.py"
      for name in ("oddrank", "wandb", "mlflow", "neptune", "comet_ml", "redis", "grain", "apex")
      for folder in (f"/home/me/{name}", f"/srv/{name}/jobs", f"/home/{name}/src",
                     f"/home/me/src/{name}", f"/home/me/python/{name}")),
    *(f"/home/me/training/{name}.py" for name in ("code", "signal", "queue", "glob", "socket")),
    "/w/tensorboard-runs/a.py", f"{HERE.parent}/train.py",
]  # fmt: skip
# A package in its own clone, and oddrank wherever it lies.
OF_HELPERS = (
    f"{HERE}/run/guard.py", "/src/oddrank/python/oddrank/run/guard.py",
    "/home/me/mlflow/src/mlflow/tracking.py",
)  # fmt: skip
# Frameworks that run from their source are known in any folder.
KINDS = (
    ("/workspace/Megatron-LM/megatron/core/pipeline_parallel/p2p_communication.py", "recv_forward",
     "peers"),
    ("/opt/pytorch/torch/distributed/distributed_c10d.py", "all_reduce", "peers"),
    ("/vllm-workspace/vllm/distributed/device_communicators/shm_broadcast.py", "dequeue", "peers"),
    ("/opt/pytorch/torch/cuda/__init__.py", "synchronize", "gpu"),
)  # fmt: skip


def test_whose_a_file_is_and_what_its_functions_wait_for():
    for path in USERS:
        frame = Frame("get", path)
        assert (is_helper("", (frame,)), kind_of(frame)) == (False, ""), path
    for path in OF_HELPERS:
        assert is_helper("", (Frame("watch", path),)), path
    for path, name, kind in KINDS:
        assert kind_of(Frame(name, path)) == kind, path
    for file in ("code.py", "signal.py", "queue.py", "glob.py", "socket.py"):
        assert kind_of(Frame("get", STDLIB + file)) == kind_of(Frame("get", file)) != ""
    # Other functions of the files of helpers are evidence.
    files = "tqdm/_monitor.py multiprocessing/queues.py multiprocessing/pool.py"
    files += " concurrent/futures/process.py torch/utils/data/_utils/pin_memory.py"
    for file in files.split():
        assert not is_helper("", (Frame("get", SITE + file),)), file
