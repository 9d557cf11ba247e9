"""Settings and commands to try next: of a suspect's cause, and where evidence points to more.

A row of causes.py has the steps that always fit it; a row here fits where its condition holds.
"""

import re
import shlex
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass

from oddrank.triage import causes
from oddrank.triage.facts import Activity, Advice, Process
from oddrank.triage.suspects import Suspect
from oddrank.triage.view import View
from oddrank.triage.words import own_place

_MOST = 4
# In SLURM's messages, names of its log files, and records' folders.
_SLURM_JOB = re.compile(r"\b(?:slurm-|stepid=|step (?=\d+\.\d)|job (?=\d+ (?:on|ex)))(\d+)")
_TIMING = "; changes timing, and may hide the fault"
# The job has ended: nothing of it can be looked at any more.
_OVER = frozenset({"told-to-end", "sizes-differ", "of-any-job"})
_OR_INSIDE = (causes.INSIDE_CALL, causes.NOT_ENTERED_OR_INSIDE)  # with a leaf, they still wait
_CRASH_SIGNALS = frozenset({4, 6, 7, 8, 11})
_GPU_KINDS = frozenset({"xid", "gpu", "nvlink", "ecc", "sxid", "thermal", "power"})
_LINK_KINDS = frozenset({"ib-flap", "link-flap", "network"})


class Case:
    """A suspect and what else is known: the predicates of the table ask it."""

    def __init__(self, suspect: Suspect, view: View) -> None:
        self.suspect, self.view = suspect, view
        cause, death, own = suspect.cause, suspect.death, set(suspect.processes)
        self.signal = death.signal if death else None
        self.words = death.text if death else ""
        sides = suspect.mismatch.variants if suspect.mismatch else ()
        self.places = [*dict.fromkeys(filter(None, (own_place(v.call.site) for v in sides)))]
        self.ended = death.how if death and cause is causes.DEAD else ""
        # If processes have ended, the stuck rank can most likely not be looked at any more.
        self.over = bool(view.deaths or view.stops)
        self.waits = (
            (cause.about in ("call", "nobody") or cause is causes.CYCLE)
            and (suspect.leaf is None or cause in _OR_INSIDE)
            and suspect.rule not in _OVER
        )
        # The kinds of the suspect's faults, if they are no errors of a program.
        troubles = suspect.trouble if cause is not causes.APPLICATION else ()
        self.kinds = {trouble.kind for trouble in troubles}
        self.advice = {fact.key for fact in view.facts if isinstance(fact, Advice)}
        saved = [a.partition(":")[2] for a in self.advice if a.startswith("saved:")]
        self.saved = max(saved, default="")  # names begin with their time: the newest
        self.has_stack = any(t.process in own for s in view.stacks for t in s.threads)
        # Whether its record shows the lines that it runs.
        self.loops = cause is causes.INFINITE_LOOP and not any(
            isinstance(fact, Activity) and fact.runs and fact.process in own for fact in view.facts
        )
        self.has_kernel_log = any(t.kind in _GPU_KINDS or t.kind == "oom" for t in view.troubles)
        # Whether oddrank's recorder was on.
        self.recorded = any(isinstance(fact, Activity) for fact in view.facts)

        files = (point.source.file for point in suspect.support if point.source)
        self.text = " ".join((self.words, *files)).lower()

    def says(self, *words: str) -> bool:
        """Returns whether the death's text, or a file that supports the suspicion, has a word."""
        return any(word in self.text for word in words)


@dataclass(frozen=True)
class Step:
    """One row. text: with {pid}, {rank}, {host} and {pod} of the suspect's first process."""

    key: str
    when: Callable[[Case], bool]
    text: str


_OF_PYTHON = "python -m profiling.sampling dump -a"
_STACKS = _OF_PYTHON if sys.version_info >= (3, 15) else "py-spy dump --native --pid"
_WHERE = "oddrank trace where {record} --all-threads  (on {host}, {when}: other threads)"
_RUN = "torchrun ... -m oddrank run train.py  (records where each rank is)"

# Steps before the cause's own.
FIRST: tuple[Step, ...] = (
    Step("saved", lambda c: bool(c.saved) and not c.recorded, "oddrank triage {saved}"),
    Step("second look", lambda c: c.suspect.rule.startswith("stacks-") and c.suspect.certainty < 2
         and c.suspect.rule != "stacks-awaited-still" and not (c.over or c.recorded),
         "take the stacks again after a minute, into other files, and give both to oddrank triage"),
    Step("places", lambda c: bool(c.places),
         "look at {places}: what differs between the ranks: a branch, a loop's end, a shape?"),
    Step("oddrank trace where",
         lambda c: c.recorded and c.suspect.cause.about == "stack" and not c.loops, _WHERE),
)  # fmt: skip
STEPS: tuple[Step, ...] = (
    Step("/dev/shm", lambda c: c.says("bus error", "shared memory") or c.signal == signal.SIGBUS,
         "df -h /dev/shm  (on {host}; a container needs more: docker run --shm-size, or"
         " --ipc=host)"),
    Step("/proc/PID/stack",
         lambda c: c.suspect.cause is causes.HOST_STUCK
         and (c.suspect.leaf_class == "disk" or c.suspect.rule == "held"),
         "cat /proc/{pid}/stack  (on {host}, as root); dmesg -T | grep -e nfs -e Lustre"),
    Step("the job's files", lambda c: c.suspect.rule == "of-any-job",
         "add the job's own evidence: its launcher's log, or what oddrank collect saved"),
    Step("lock files", lambda c: c.suspect.leaf_class == "file-lock",
         "find ~/.cache/torch_extensions /tmp/torchinductor_* -name '*lock*' -mmin +10  (on {host};"
         " a killed compiler leaves one: remove it if nobody compiles)"),
    Step("flight-recorder-dump",
         lambda c: any(key.startswith("flight-recorder-dump:") for key in c.advice),
         "add the dumps that the log names: {dumps}"),
    Step("launcher", lambda c: c.suspect.rule == "launcher-ended-it",
         "how it ended: the launcher's last lines on {host}; dmesg -T | grep -i 'killed process'"),
    Step("loopback", lambda c: c.suspect.rule == "others-joined" and bool(c.suspect.raised),
         "export MASTER_ADDR={home}  (on every host, instead of {address})"),
    Step("nc", lambda c: c.suspect.rule == "others-joined" and not c.suspect.raised,
         "did the launcher start {who}? nc -zv {address} {port}  (there: is rank 0's port"
         " reached?)"),
    Step("--deadline", lambda c: c.suspect.rule in {"behind", "others-joined"}
         and not c.suspect.raised,
         "again with --deadline 300, if it only takes long"),
    Step("MASTER_PORT", lambda c: c.ended == "exception"
         and (c.suspect.stage == "join" or c.says("eaddrinuse", "already in use")),
         "ss -ltnp | grep $MASTER_PORT: does another process have the port?  (on {host})"),
    Step("py-spy", lambda c: (c.waits and not c.has_stack) or c.suspect.rule == "behind",
         f"{_STACKS} {{pid}} > rank.txt  (on {{host}}, {{when}})"),
    Step("ncclras", lambda c: c.waits and bool(c.view.counts),
         "ncclras -v > ras1; sleep 30; ncclras -v > ras2  (on any node of the job)  [NCCL 2.24+]"),
    Step("dmesg", lambda c: not c.has_kernel_log
         and (c.suspect.cause in (causes.GPU_STOPPED, causes.UNREACHABLE)
              or c.signal in (7, 9, 11)),
         "dmesg -T | grep -i -e xid -e 'killed process' -e segfault | tail  (on {host})"),
    Step("nvidia-smi",
         lambda c: c.suspect.cause is causes.GPU_STOPPED or bool(c.kinds & _GPU_KINDS),
         "nvidia-smi -q > smi.txt  (on {host})"),
    Step("dcgmi", lambda c: bool(c.kinds & {"xid", "gpu", "nvlink", "ecc", "sxid"}),
         "dcgmi diag -r 3  (on {host}, with nothing else running; 15 minutes)"),
    Step("ibstat", lambda c: bool(c.kinds & _LINK_KINDS),
         "ibstat; ip -s link show  (on {host}, and the port's counters on its switch)"),
    Step("NCCL_DEBUG", lambda c: bool(c.kinds & {"network", "nccl", "ib-flap"}) or c.says("nccl"),
         "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET NCCL_DEBUG_FILE=nccl.%h.%p"),
    Step("oddrank selftest", lambda c: c.suspect.cause in (causes.DEVICE, causes.GPU_STOPPED),
         "torchrun ... -m oddrank selftest  (on the nodes of the job, with nothing else running)"),
    Step("CUDA_LAUNCH_BLOCKING", lambda c: c.suspect.cause is causes.APPLICATION
         or (c.suspect.cause is not causes.DEVICE
             and c.says("cuda error", "illegal memory access", "device-side assert", "cublas")),
         f"CUDA_LAUNCH_BLOCKING=1  (the traceback then shows the call that failed){_TIMING}"),
    Step("before its end", lambda c: c.suspect.rule == "told-to-end"
         or (bool(c.view.stops) and c.suspect.certainty < 2 and not (c.suspect.death or c.waits)),
         "if it hung: py-spy dump --pid PID > rankN.txt for each rank, before it is ended next"
         " time"),
    Step("memory", lambda c: c.suspect.death is not None and c.suspect.death.how == "oom",
         "cat memory.max memory.peak memory.events  (of the job's cgroup, on {host})"),
    Step("core", lambda c: c.signal in _CRASH_SIGNALS and not c.has_stack
         and c.suspect.rule != "sizes-differ" and c.suspect.cause is not causes.DEVICE,
         "ulimit -c unlimited, then pystack core CORE --native  (or gdb's thread apply all bt)"),
    Step("tail", lambda c: c.recorded
         and (c.ended in ("exception", "exit") or c.loops),
         "oddrank trace tail {record}  (on {host}: the lines that it ran last)"),
    Step("again", lambda c: c.ended == "evicted" and c.says("preempt"),
         "start the job again from its last checkpoint: its program is not at fault"),
    Step("kubectl", lambda c: c.words.startswith("pod "),
         "kubectl describe pod {pod}; kubectl logs {pod} --previous"),
    Step("sacct", lambda c: (death := c.suspect.death) is not None
         and ((death.by == "scheduler" and death.process.label in ("", "SLURM")
               and not c.words.startswith("pod ")) or c.says("slurm", "srun", "stepid")),
         "sacct -j {job} --format=JobID,NodeList,State,ExitCode,MaxRSS,End"),
    Step("named_parameters", lambda c: c.suspect.at is not None and c.suspect.at.op == "DDP()",
         "print(*dict(model.named_parameters())) before DDP(): which one do other ranks not have?"),
    Step("TORCH_DISTRIBUTED_DEBUG",
         lambda c: "compared" not in c.advice and not c.places  # else it was on
         and (c.suspect.cause is causes.MISMATCH or c.suspect.rule == "sizes-differ")
         and (c.suspect.at is None or c.suspect.at.op != "DDP()"),
         "TORCH_DISTRIBUTED_DEBUG=DETAIL  (compares each call before it runs)  [torch 1.9+]"
         + _TIMING),
    Step("TORCH_FR_BUFFER_SIZE", lambda c: "flight-recorder" in c.advice,
         "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1"
         "  (before torch 2.9: TORCH_NCCL_TRACE_BUFFER_SIZE=2000)  [torch 2.2+]"),
    Step("TORCH_FR_DUMP_TEMP_FILE",
         lambda c: c.suspect.rule == "awaited-and-silent" and bool(c.view.progress),
         "TORCH_FR_DUMP_TEMP_FILE=/shared/folder/dump_  (one folder for all nodes)"
         "  [torch 2.9+; before: TORCH_NCCL_DEBUG_INFO_TEMP_FILE]"),
    Step("oddrank run", lambda c: not (c.recorded or c.saved)
         and (c.waits or c.suspect.cause in (causes.INFINITE_LOOP, causes.MOVING)
              or c.suspect.rule == "told-to-end" or "compared" in c.advice),
         _RUN),
)  # fmt: skip

# If no other step fits: the first of these that does.
LAST: tuple[Step, ...] = (
    Step("alone", lambda c: c.ended == "exception",
         "start the same command with one process: does it raise again?  (on {host})"),
    Step("last words", lambda c: bool(c.ended),
         "torchrun --redirects 3 --log-dir DIR, or srun --output %t.log  (each rank's output)"),
    Step("oddrank trace where, too", lambda c: c.recorded, _WHERE),
    Step("oddrank run, too", lambda c: True, _RUN),
)  # fmt: skip


def next_steps(suspect: Suspect, view: View, **words: object) -> tuple[str, ...]:
    """Returns what to set or type next: the most telling first, at most four lines.

    words: further words that the texts may have in braces.
    """
    case = Case(suspect, view)
    words = _words(case, view) | words
    first, others, last = (
        [step.text.format(**words) for step in steps if step.when(case)]
        for steps in (FIRST, STEPS, LAST)
    )
    row = (text.format(**words) for text in suspect.cause.next)
    found = [*first, *row, *others][:_MOST]
    found = found or (last[:1] if suspect.processes or case.ended else [])
    return tuple(f"{step}  [for {suspect.job}]" if suspect.job else step for step in found)


def _words(case: Case, view: View) -> dict[str, object]:
    first = case.suspect.processes[0] if case.suspect.processes else Process()
    host = first.host or (case.suspect.trouble[0].host if case.suspect.trouble else None)
    of_rank = "its host" if first.rank is None else f"the host of rank {first.rank}"
    jobs = [view.activities[p].job for p in case.suspect.processes if p in view.activities]
    record = [shlex.quote(jobs[0])] if jobs and jobs[0] else []
    record += [str(first.rank)] if first.rank is not None else []
    dumps = sorted(
        key.partition(":")[2] for key in case.advice if key.startswith("flight-recorder-d")
    )
    slurm = _SLURM_JOB.search(" ".join((case.text, *filter(None, jobs))))
    return {
        "pid": "PID" if first.pid is None else first.pid, "host": host or of_rank,
        "record": " ".join(record), "pod": first.host or "POD", "job": slurm[1] if slurm else "JOB",
        "when": "the next time it is stuck" if case.over else "while it is stuck",
        "dumps": ", ".join(dumps)[:200], "saved": case.saved, "places": " and ".join(case.places),
    }  # fmt: skip
