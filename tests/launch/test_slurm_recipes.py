"""The recipes of examples/slurm for daily work do what their first lines say, on a real SLURM."""

import json
import os
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from netns import PATH
from oddrank.errors import OddrankError
from oddrank.switches import order_file
from patience import until
from processes import shell_script
from texts import texts

# The first test that needs SLURM starts it, within its timeout.
pytestmark = [pytest.mark.needs("torch", "slurm", "netns"), pytest.mark.timeout(600)]
RECIPES = Path(__file__).parents[2] / "examples" / "slurm"
TRAINING = Path(__file__).with_name("chain_training.py")
SECONDS = 200.0


@pytest.fixture(autouse=True)
def _environ(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    own = {"PYTHON": sys.executable, "CRON_DIR": str(tmp_path)}
    for name, value in {**own, "OMP_NUM_THREADS": "1", "RANKS_PER_NODE": "1"}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def switch(monkeypatch, tmp_path):
    """Returns the folder of the switch that the jobs watch."""
    monkeypatch.setenv("SWITCH", str(tmp_path / "switch"))
    return tmp_path / "switch"


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """Makes a shell script stand in for the recipes' Python."""

    def make(text):
        monkeypatch.setenv("PYTHON", str(shell_script(tmp_path / "python", text)))

    return make


# cron.sh


@pytest.fixture
def cron(slurm, tmp_path):
    """Calls cron.sh with these words; ends what it started."""
    names = set()

    def call(order, name, *words):
        names.add(name)
        return slurm.call(str(RECIPES / "cron.sh"), order, name, *words)

    yield call
    for name in names:
        call("stop", name)


def lines(file):
    return file.read_text().splitlines() if file.exists() else []


def test_cron_runs_its_folder_again_and_again_though_a_command_fails_and_one_hangs(
    cron, slurm, tmp_path, monkeypatch
):
    monkeypatch.setenv("LIMIT", "5")
    folder = tmp_path / "cron.hourly"
    shell_script(folder / "a", f"env | grep -c ^SLURM_JOB >>{tmp_path}/a; exit 3")
    shell_script(folder / "b", "sleep 600")
    shell_script(folder / "c", f"echo ran >>{tmp_path}/c")
    shell_script(folder / "d", f"echo ran >>{tmp_path}/d")
    (folder / "d").chmod(0o644)
    logs = tmp_path / "cron.hourly.log"
    logs.mkdir()
    old = {"7.out": 9, "8.out": 1, "9.txt": 9}  # days
    for name, days in old.items():
        (logs / name).touch()
        os.utime(logs / name, (time.time() - days * 86400,) * 2)
    cron("start", "hourly", "now+1")
    until(lambda: len(lines(tmp_path / "c")) >= 2, SECONDS)
    assert set(lines(tmp_path / "a")) == {"0"}  # sbatch takes nothing of this job's size
    assert not (tmp_path / "d").exists()
    assert [name for name in old if (logs / name).exists()] == ["8.out", "9.txt"]
    failed = "3 run, failed: ./cron.hourly/a (3) ./cron.hourly/b (124)"
    shown = until(lambda: failed in (text := cron("status", "hourly")) and text, SECONDS)
    assert re.search(r"cron-hourly +(PENDING|RUNNING) ", shown), shown
    cron("stop", "hourly")
    assert queued(slurm, "cron-hourly") == []
    with pytest.raises(RuntimeError, match="cron-hourly is not queued"):
        cron("status", "hourly")


def test_cron_is_not_doubled_by_a_second_start_nor_by_two_at_once(cron, slurm, tmp_path):
    text = 'it\'s "5 $HOME"\n* é'
    command = ("sh", "-c", f'printf %s "$1" >{tmp_path}/said; echo ran >>{tmp_path}/ran', "", text)
    cron("start", "often", "now+1", *command)
    until(lambda: queued(slurm, "cron-often"))
    cron("start", "often", "now+1", *command)
    assert len(queued(slurm, "cron-often", "PENDING")) <= 1
    # Two starts at the same moment don't see each other: the runs do.
    words = ["--job-name=cron-often", "--dependency=singleton", "--output=/dev/null"]
    slurm.call("sbatch", *words, str(RECIPES / "cron.sh"), "run", "often", "now+1", *command)
    had = len(lines(tmp_path / "ran"))
    until(lambda: len(lines(tmp_path / "ran")) >= had + 3, SECONDS)
    had = len(lines(tmp_path / "ran"))

    def is_one_chain_for_three_runs():
        assert len(queued(slurm, "cron-often", "PENDING")) <= 1
        assert len(queued(slurm, "cron-often", "RUNNING")) <= 1
        return len(lines(tmp_path / "ran")) >= had + 3

    until(is_one_chain_for_three_runs, SECONDS)
    assert (tmp_path / "said").read_text() == text


def test_cron_that_starts_at_a_time_of_day_waits_for_it(cron, slurm, tmp_path):
    (tmp_path / "cron.daily").mkdir()
    cron("start", "daily", "03:30")
    (number,) = queued(slurm, "cron-daily")
    assert "T03:30:00" in slurm.call("squeue", "-h", "-j", number, "-o", "%S")
    with pytest.raises(RuntimeError, match=r"no folder .*/cron\.weekly"):
        cron("start", "weekly", "now+1week")
    with pytest.raises(RuntimeError, match=r"ended with 2: \./cron\.sh start hourly now\+1hour "):
        slurm.call(str(RECIPES / "cron.sh"))


def queued(slurm, name, states="PENDING,RUNNING"):
    return slurm.call("squeue", "-h", "-n", name, "-t", states, "-o", "%A").split()


# torchrun.sbatch, stacks.sh


@pytest.fixture
def submit(slurm, tmp_path):
    """Submits torchrun.sbatch; returns the job's number. Ends the jobs."""
    numbers = []

    def call(*words, options=()):
        where = ["--output", str(tmp_path / "out-%a"), f"--chdir={tmp_path}"]
        words = [*where, *options, str(RECIPES / "torchrun.sbatch"), *words]
        numbers.append(slurm.call("sbatch", "--parsable", *words).strip())
        return numbers[-1]

    yield call
    for number in numbers:
        with suppress(RuntimeError):  # it has ended
            slurm.call("scancel", number)
        end_of(slurm, number)


def state(slurm, number):
    """Returns the states of a job, or of an array's elements."""
    return set(slurm.call("squeue", "-h", "-j", number, "-t", "all", "-o", "%T").split())


def end_of(slurm, number):
    """Waits until a job, or an array's elements, have ended; returns their states."""
    ends = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}
    return until(lambda: (now := state(slurm, number)) <= ends and now, SECONDS)


WORDS = [
    "it's",
    'a "quoted" one',
    "$HOME `id` $(id)",
    "two\nlines",
    "back\\slash",
    "*",
    "",
    "é=;&|",
]
SHOW = texts(__file__)["show"]


def test_torchruns_arguments_reach_all_nodes_unchanged(submit, slurm, tmp_path):
    (tmp_path / "show it.py").write_text(SHOW)
    number = submit("show it.py", *WORDS, options=["--ntasks-per-node=2", "--cpus-per-task=3"])
    ends = end_of(slurm, number)
    out = (tmp_path / "out-4294967294").read_text()
    assert ends == {"COMPLETED"}, out
    for rank in range(2):
        place, words = json.loads((tmp_path / f"rank{rank}").read_text())
        assert place == [str(rank), "2", f"node{rank}"]
        assert words == WORDS
        assert f"[node{rank}:0]:said by {rank}" in out


def stacks(slurm, number, *path):
    """Returns the lines of both nodes, without their prefixes."""
    out = slurm.call("env", *path, str(RECIPES / "stacks.sh"), number, seconds=SECONDS).splitlines()
    by_node = [[line[7:] for line in out if line.startswith(f"node{i}: ")] for i in (0, 1)]
    assert sum(map(len, by_node)) == len(out)
    return by_node


def running(slurm, number):
    """Returns the number of an array's element that runs.

    SLURM 22.05's scancel repeats a signal to an element N_1 while others wait.
    """
    return slurm.call("squeue", "-h", "-j", number, "-t", "RUNNING", "-o", "%A").strip()


def signal_the_script(slurm, number):
    """Sends SIGUSR1 to the batch script alone, as SLURM does before the limit; returns its pid."""
    listed = slurm.call("scontrol", "listpids", running(slurm, number))
    rows = [row.split() for row in listed.splitlines()]
    (script,) = [int(pid) for pid, _, step, local, _ in rows if (step, local) == ("batch", "0")]
    os.kill(script, signal.SIGUSR1)
    return script


WAIT = texts(__file__)["wait"]


@pytest.fixture
def waiting(submit, tmp_path):
    """Starts a job whose two ranks wait in functions of their own; returns its number."""

    def start(*words, options=()):
        (tmp_path / "wait.py").write_text(WAIT)
        number = submit(str(tmp_path / "wait.py"), *words, options=options)
        until(lambda: lines(tmp_path / "wait.py.waits") == ["xx"], SECONDS)
        return number

    return start


def test_stacks_of_a_running_job_come_from_all_of_its_full_nodes(
    waiting, slurm, tmp_path, stand_in
):
    # Both nodes have the same /dev/shm: each gets a folder of its own.
    stand_in(f'ODDRANK_DIR={tmp_path}/$(hostname) exec {sys.executable} "$@"')
    number = waiting("arm")
    first, second = map("\n".join, stacks(slurm, number))
    assert "\nrank 0 (node0, pid" in first
    assert "\nrank 1 (node1, pid" in second
    assert re.search(r"wait.py:\d+ +average_gradients$", first, re.M)
    assert re.search(r"wait.py:\d+ +load_batch$", second, re.M)
    assert "load_batch" not in first
    with pytest.raises(RuntimeError, match="Unable to create step"):  # the nodes are full
        slurm.call("srun", "--jobid", number, "--immediate=1", "true")
    assert state(slurm, number) == {"RUNNING"}
    slurm.call(str(RECIPES / "stacks.sh"), f"{number}.0", "collect", "-o", str(tmp_path / "saved"))
    assert sorted(path.name for path in tmp_path.glob("saved/slurm-*/node?")) == ["node0", "node1"]
    slurm.call("scancel", number)
    end_of(slurm, number)
    with pytest.raises(RuntimeError, match="does not run"):
        slurm.call(str(RECIPES / "stacks.sh"), number)


@pytest.mark.needs("py-spy")
def test_stacks_of_a_job_without_records_come_from_py_spy(waiting, slurm):
    number = waiting(options=["--array=3"])
    script = signal_the_script(slurm, number)  # without a switch it does nothing
    path = f"PATH={os.path.dirname(sys.executable)}:{PATH}"
    first, second = map(str, stacks(slurm, f"{number}_3", path))
    assert (first.count("average_gradients"), first.count("load_batch")) == (1, 0)
    assert (second.count("average_gradients"), second.count("load_batch")) == (0, 1)
    assert b"slurm_script" in Path(f"/proc/{script}/cmdline").read_bytes()


def said(tmp_path, rank):
    return [json.loads(line) for line in lines(tmp_path / f"rank{rank}")]


def test_a_chain_goes_on_after_its_time_limit_ends_by_the_switch_and_does_not_start_under_it(
    submit, slurm, tmp_path, switch
):
    def elements(count):
        return lambda: all(
            [word for word, *_ in said(tmp_path, rank)].count("begins") == count
            and len(said(tmp_path, rank)) == 2 * count - 1
            for rank in (0, 1)
        )

    number = submit(str(TRAINING), str(tmp_path), options=["--array=1-4%1"])
    until(elements(1), SECONDS)
    signal_the_script(slurm, number)
    until(lambda: "save" in [word for word, *_ in said(tmp_path, 1)], SECONDS)
    slurm.call("scancel", "--signal=KILL", f"{running(slurm, number)}.0")  # as at the time limit
    until(elements(2), SECONDS)
    slurm.call(sys.executable, "-m", "oddrank", "switch", "kill", str(switch))
    with pytest.raises(OddrankError, match="says kill"):
        order_file.write(switch, "save", "alice@login1")
    assert end_of(slurm, number) == {"FAILED", "COMPLETED", "CANCELLED"}
    first, second = said(tmp_path, 0), said(tmp_path, 1)
    assert [one[0] for one in first] == ["begins", "save", "begins", "kill"]
    assert first == second
    for one in (first[1], first[3]):
        assert one[2] == 2 * one[1]
    assert first[2] == ["begins", first[1][1]]  # from the checkpoint
    assert state(slurm, f"{number}_2") == {"COMPLETED"}
    assert not (tmp_path / "out-3").exists()

    number = submit(str(TRAINING), str(tmp_path), options=["--array=5-7%1"])
    end_of(slurm, number)
    out = (tmp_path / "out-5").read_text()
    assert f"the switch {switch} says kill (root@" in out
    assert f"no job may start. If it was for an earlier job: oddrank switch off {switch}" in out
    assert f"the rest of the array {number} is cancelled" in out
    assert "[node" not in out  # no rank has started
    assert said(tmp_path, 0) == first
    assert not (tmp_path / "out-6").exists()
    order_file.write(switch, "off", "alice@login1")


def test_a_switch_that_can_not_be_asked_ends_no_chain_and_one_that_can_not_be_read_starts_no_rank(
    submit, slurm, tmp_path, stand_in, switch
):
    (tmp_path / "show it.py").write_text(SHOW)
    broken = 'case "$*" in *"switch check"*) echo "no module named numpy" >&2; exit 1;; esac'
    stand_in(f'{broken}\nexec {sys.executable} "$@"')
    assert end_of(slurm, submit("show it.py", options=["--array=1-2%1"])) == {"COMPLETED"}

    stand_in(f'exec {sys.executable} "$@"')
    order_file.prepare(switch)
    (switch / "order").write_text("blub\n")
    assert end_of(slurm, submit("show it.py", options=["--array=3-4%1"])) == {"FAILED"}

    for element in (1, 2, 3, 4):
        out = (tmp_path / f"out-{element}").read_text()
        assert ("order says 'blub'" if element > 2 else "no module named numpy") in out
        assert ("said by 1" in out) == (element <= 2)
        assert "cancelled" not in out
