"""Starts a real SLURM of two nodes on this machine, apart from the machine's own SLURM.

with two_nodes() as slurm:
    verdict = job(4, nodes=2, launcher=slurm.srun("--kill-on-bad-exit=1"))

Each node is a network namespace with its own host name (netns.py). The controller and the commands
run on the first. Configuration, key, sockets, spool and logs are in one folder.
"""

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from launchers import Launcher, Order, Plan
from netns import PATH, Host, two_hosts
from patience import PATIENCE, until
from texts import texts

_START_SECONDS = 150.0
_STOP_SECONDS = 5.0
_FREEZER = Path("/sys/fs/cgroup/freezer")
# Job numbers per cluster: many more than tests submit.
_MOST_JOBS = 10_000

# Each cluster has its own job numbers: cgroups and files in /dev/shm are named after jobs.
# A job that is queued again waits until its credentials have expired.
# More CPUs than exist: jobs that a failed test leaves running do not block the next test.
_CONF = texts(__file__)["configuration"]


@dataclass(frozen=True)
class Ended:
    """A finished batch job: SLURM's state, the exit code, the output."""

    state: str
    code: int
    output: str


@dataclass(frozen=True)
class Cluster:
    """A running SLURM of two nodes."""

    folder: Path
    hosts: tuple[Host, Host]
    first_job: int

    def srun(self, *options: str) -> Launcher:
        """Returns a launcher for job(): srun without torchrun, equally many tasks per node."""

        def start(order: Order) -> Plan:
            tasks = ["-N", str(order.nodes), "--ntasks-per-node", str(order.ranks // order.nodes)]
            line = ["srun", *tasks, *options, sys.executable, *order.tool]
            return [(0, self.inside(0) + line, self.environ(order.environ))]

        return start

    def call(self, *command: str, seconds: float | None = None) -> str:
        """Runs a command on the first node; returns its output. It must succeed."""
        done = subprocess.run(
            self.inside(0) + list(command),
            env=self.environ(os.environ), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False,
            timeout=PATIENCE.limit if seconds is None else seconds,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def batch(self, *arguments: str, output: Path, seconds: float) -> Ended:
        """Submits a job with sbatch and waits for its end."""
        number = self.call("sbatch", "--parsable", "--output", str(output), *arguments).strip()
        going_on = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED", "REQUEUE_HOLD"}

        def state() -> dict[str, str]:
            time.sleep(0.2)
            words = self.call("scontrol", "show", "job", "-o", number).split()
            return dict(word.partition("=")[::2] for word in words)

        with suppress(AssertionError):  # a job that does not end has a state, too
            until(lambda: state()["JobState"] not in going_on, seconds / PATIENCE.slowness)
        text = output.read_text(errors="replace") if output.exists() else ""
        said = state()
        return Ended(said["JobState"], int(said["ExitCode"].partition(":")[0]), text)

    def inside(self, node: int) -> list[str]:
        """Returns the prefix that runs a command on this node, with both nodes' names known."""
        known = 'mount --bind "$0" /etc/hosts && exec "$@"'  # in the mount namespace of the node
        return [*self.hosts[node].prefix, "sh", "-c", known, str(self.folder / "hosts")]

    def environ(self, base: Mapping[str, str]) -> dict[str, str]:
        """Returns the environment for this cluster's commands, without others' variables."""
        own = {k: v for k, v in base.items() if not k.startswith(("SLURM_", "SBATCH_"))}
        return {**own, "PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf")}


@contextmanager
def two_nodes() -> Iterator[Cluster]:
    """Starts node0 and node1; at the end all their processes are gone. Needs root."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oddrank-slurm-")))
        first_job = secrets.randbelow(60_000_000)
        cluster = Cluster(folder, stack.enter_context(two_hosts()), first_job)
        _write_files(cluster)
        stack.callback(_remove_cgroups, cluster)
        stack.callback(_kill_inside, cluster)
        _start_munge(cluster, stack)
        conf = str(folder / "slurm.conf")
        _daemon(cluster, stack, [*cluster.inside(0), "slurmctld", "-D", "-f", conf], "slurmctld")
        for node, host in enumerate(cluster.hosts):
            slurmd = ["slurmd", "-D", "-f", conf, "-N", host.name]
            line = [*cluster.inside(node), *_with_freezer(folder), *slurmd]
            _daemon(cluster, stack, line, f"slurmd-{host.name}")
        _until(lambda: _idle(cluster), "both nodes are idle", cluster)
        stack.callback(_cancel_all, cluster)
        yield cluster


def _write_files(cluster: Cluster) -> None:
    folder = cluster.folder
    folder.chmod(0o711)  # munged requires that everybody can reach its socket
    for name in (
        "munge",
        "state",
        "cgroup",
        "cgroup/freezer",
        *(f"spool-{host.name}" for host in cluster.hosts),
    ):
        (folder / name).mkdir(mode=0o755)
    (folder / "munge" / "key").touch(mode=0o600)
    (folder / "munge" / "key").write_bytes(os.urandom(128))
    names = [f"{host.address} {host.name}\n" for host in cluster.hosts]
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(names))
    # Names version 1 even if cgroups are unused: to detect it, slurmd would need the machine's.
    (folder / "cgroup.conf").write_text(
        f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={folder}/cgroup\n"
    )
    tracking = "proctrack/cgroup" if _has_freezer() else "proctrack/linuxproc"
    (folder / "slurm.conf").write_text(
        _CONF.format(
            hosts=cluster.hosts,
            folder=folder,
            tracking=tracking,
            first=cluster.first_job,
        )
    )


def _has_freezer() -> bool:
    """Returns whether SLURM can kill a step by its cgroup (version 1), as on clusters."""
    return os.access(_FREEZER / "tasks", os.W_OK)


def _with_freezer(folder: Path) -> list[str]:
    """Returns the prefix of slurmd that mounts cgroups: a namespace's own /sys has none."""
    if not _has_freezer():
        return []
    mount = 'mount -t cgroup -o freezer freezer "$0" && exec "$@"'
    return ["sh", "-c", mount, str(folder / "cgroup" / "freezer")]


def _remove_cgroups(cluster: Cluster) -> None:
    """Removes the cgroups that SLURM leaves: other clusters have nodes with the same names."""
    end = time.monotonic() + _STOP_SECONDS
    tops = [_FREEZER / f"slurm_{host.name}" for host in cluster.hosts]
    own = range(cluster.first_job, cluster.first_job + _MOST_JOBS)
    found = [job for top in tops for job in top.glob("uid_*/job_*")]
    left = [job for job in found if int(job.name.removeprefix("job_")) in own]
    while left and time.monotonic() < end:  # killed processes take a moment to end
        for job in left:
            _remove(group for group, _, _ in os.walk(job, topdown=False))
        left = [job for job in left if job.exists()]
        time.sleep(0.05)
    for top in tops:
        _remove([*top.glob("uid_*"), top])


def _remove(groups: Iterable[str | Path]) -> None:
    """Removes the cgroups that are empty."""
    for group in groups:
        with suppress(OSError):
            os.rmdir(group)


def _start_munge(cluster: Cluster, stack: ExitStack) -> None:
    munge = cluster.folder / "munge"
    files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "seed-file": "seed"}
    options = [f"--{option}={munge / name}" for option, name in files.items()]
    line = ["munged", "--foreground", "--force", "--origin=127.0.0.1", *options]
    _daemon(cluster, stack, line, "munged")
    _until((munge / "socket").exists, "munged listens", cluster)


def _daemon(cluster: Cluster, stack: ExitStack, line: list[str], name: str) -> None:
    """Starts a daemon that ends with the stack, and with the tests if they are killed."""
    with (cluster.folder / f"{name}.out").open("wb") as out:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *line],
            env=cluster.environ(os.environ), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            cwd=cluster.folder,
        )  # fmt: skip
    stack.callback(_stop, process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(PATIENCE.limit)


def _idle(cluster: Cluster) -> bool:
    with suppress(RuntimeError, subprocess.TimeoutExpired):  # the controller does not listen yet
        return cluster.call("sinfo", "-h", "-N", "-o", "%T", seconds=20).split() == ["idle"] * 2
    return False


def _cancel_all(cluster: Cluster) -> None:
    with suppress(RuntimeError, subprocess.TimeoutExpired):
        cluster.call("scancel", "--user", "root", "--signal", "KILL", seconds=5)


def _kill_inside(cluster: Cluster) -> None:
    """Kills steps of unfinished jobs, which outlive the daemons."""
    for host in cluster.hosts:
        listed = subprocess.run(
            ["ip", "netns", "pids", host.namespace],
            env={**os.environ, "PATH": PATH}, capture_output=True, check=False,
            timeout=PATIENCE.limit,
        )  # fmt: skip
        for pid in listed.stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def _until(true: Callable[[], bool], what: str, cluster: Cluster) -> None:
    end = time.monotonic() + PATIENCE.seconds(_START_SECONDS)
    while not true():
        if time.monotonic() > end:
            said = [
                f"{file.name}: {file.read_text(errors='replace')[-1500:]}"
                for file in sorted(cluster.folder.glob("*.out"))
            ]
            raise TimeoutError(f"not within {_START_SECONDS} s: {what}\n" + "\n".join(said))
        time.sleep(0.1)
