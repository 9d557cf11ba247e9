"""arm() must never end a script, slow it down, fill its memory, or change what it does."""

import os
import subprocess
import sys

import pytest

from oddrank.trace import ranks
from patience import PATIENCE

# Scripts that print this if they run as without, and the environment.
SAYS = {
    "a child that has no room for a record runs with threads": ("""
        import multiprocessing, pathlib, shutil
        folder = pathlib.Path(os.environ["ODDRANK_DIR"])
        shutil.rmtree(folder)
        folder.write_text("nothing can be made here")
        def work(n):
            return n if n == 0 else work(n - 1)
        def child():
            threads = [threading.Thread(target=work, args=(20,)) for _ in range(3)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join()
        print(process.exitcode)
    """, "0\n", {"TMPDIR": "/proc/none"}),
    "arming again and again leaves nothing in the import system": ("""
        before = len(sys.meta_path)
        armed.disarm()
        for _ in range(20):
            with oddrank.arm():
                pass
        print(len(sys.meta_path) - before)
    """, "0\n", {}),
    "deep recursion costs no walk of the stack at every call": ("""
        sys.setrecursionlimit(10**6)
        def deep(n):
            return 0 if n == 0 else deep(n - 1)
        def ratio():
            times = []
            for n in (20_000, 120_000):
                begin = time.thread_time()
                deep(n)
                times.append((time.thread_time() - begin) / n)
            print(times[1] / times[0] < 20)
        threading.stack_size(512 << 20)
        thread = threading.Thread(target=ratio)
        thread.start()
        thread.join()
    """, "True\n", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", SAYS)
def test_a_script_runs_as_without(script, name):
    source, says, environ = SAYS[name]
    assert script.armed(source, **environ).stdout == says


def test_python_behaves_as_without(script):
    source = """
        import traceback
        def fails(n):
            if n == 0:
                raise ValueError("deep")
            fails(n - 1)
        def generator():
            try:
                yield 1
            finally:
                print("closed")
        try:
            fails(3)
        except ValueError:
            print(traceback.format_exc())
        for _ in generator():
            break
        def deep(n):
            return 0 if n == 0 else 1 + deep(n - 1)
        try:
            deep(10**6)
        except RecursionError as error:
            print(type(error))
        exec("x = [i for i in range(3)]\\nprint(x)")
    """
    armed, plain = script.armed(source), script(source)
    assert "closed" in armed.stdout
    assert armed.stdout == plain.stdout
    assert armed.stderr == plain.stderr == ""


def test_of_workers_that_come_and_go_the_last_few_records_stay(script):
    script.armed("""
        import multiprocessing
        def child():
            pass
        for _ in range(8):
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            process.join()
    """)
    children = [rank for rank in script.records() if rank.is_child]
    assert 3 <= len(children) <= 5


def test_files_of_the_user_beside_the_records_are_left_alone(script):
    names = ["profiles/step.trace", "profiles/rank0-1-2.trace", "script/rank0-stdout.log"]
    names += [f"job{i}/rank0-{i}-1.trace" for i in range(6)]
    for name in names:
        file = script.folder / "records" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
        file.parent.chmod(0o700)
    (script.folder / "records").chmod(0o700)
    launched = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    for _ in range(6):
        script.armed("\n", **launched, MASTER_PORT="29500", TORCHELASTIC_RUN_ID="script")
    assert all((script.folder / "records" / name).read_text() == "mine" for name in names)
    # The job started six times; only the newest few records are left, and of six jobs, three.
    assert 3 <= len(list((script.folder / "records" / "script").glob("*.trace"))) <= 4
    for i in range(6):
        script.armed("\n", ODDRANK_JOB=f"dead{i}")
    left = {folder.name for folder in (script.folder / "records").glob("dead*")}
    assert {"dead3", "dead4", "dead5"} <= left
    assert not {"dead0", "dead1"} & left


IN_64_MIB = 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"'
# The children live at once: records of dead ones make room for others.
FORKS = """
import os, pathlib
import oddrank
oddrank.arm()
reads, writes = os.pipe()
def child():
    os.close(writes)
    os.read(reads, 1)
    os._exit(len([*pathlib.Path("/dev/shm").rglob("*.trace")]))
children = [os.fork() or child() for _ in range(8)]
os.close(writes)
print([os.waitpid(pid, 0)[1] for pid in children])
"""


@pytest.mark.needs("netns")
def test_a_dev_shm_of_64_mib_as_in_containers_is_left_to_data_loaders(tmp_path):
    environ = {name: value for name, value in os.environ.items() if name != "ODDRANK_DIR"}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", IN_64_MIB, "sh", sys.executable, "-c", FORKS],
        env={**environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True,
        timeout=PATIENCE.limit, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (f"{[0] * 8}\n", "")
    found, refused = ranks.read([*tmp_path.glob(f"oddrank-{os.geteuid()}/*/*.trace")])
    assert not refused
    assert sorted(rank.is_child for rank in found) == [False, *[True] * 8]
