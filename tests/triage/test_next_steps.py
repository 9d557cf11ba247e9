"""What to type next: only where evidence points there, at most four lines, timing is said."""

from dataclasses import replace

from oddrank.triage import causes
from oddrank.triage.facts import (
    Activity,
    Advice,
    Call,
    Counts,
    Death,
    Frame,
    Group,
    Process,
    Progress,
    Source,
    Stack,
    Stop,
    Thread,
    Trouble,
)
from oddrank.triage.next_steps import FIRST, LAST, STEPS, next_steps
from oddrank.triage.suspects import Point, Suspect
from oddrank.triage.view import view
from progress import differ

HERE = Source("job.log")
RANK = Process(3, "n1", 4711)
SEEN = Stack((Frame("f", native=True),), (Thread(RANK),))
ELSEWHERE = Stack((Frame("f"),), (Thread(Process(1)),))
GONE, STOP = Death(Process(1), "exit", HERE, code=1), Stop("SLURM", HERE)
OFF, RECORD = Advice("flight-recorder", HERE), Activity(RANK, HERE, job="4711.0")
COMPARED = Advice("compared", HERE)
DUMP = Advice("flight-recorder-dump:/tmp/x_rank_3", HERE)
SAVED = Advice("saved:/shared/oddrank-collected/x", HERE)
OOM = Trouble("oom", "out of memory", HERE, "n1")
COUNTS = Counts("c", "", ((0, 1), (1, 2)), HERE)
NCCL, GLOO = (Progress(RANK, Group("0"), HERE, backend) for backend in ("nccl", "gloo"))
STUCK_KEYS = ["py-spy", "oddrank run"]


def suspect(cause, rule="rule", certainty=1, **more):
    return Suspect(causes.TABLE[cause], more.pop("processes", (RANK,)), rule, certainty, **more)


def died(how, text="", by="", rule="rule", **more):
    return suspect("dead", rule, death=Death(RANK, how, HERE, text=text, by=by, **more))


def fault(kind, device, cause="device"):
    return suspect(cause, trouble=(Trouble(kind, "it", HERE, "n1", device),))


LOST = suspect("unknown", processes=(), waiting=(RANK,), at=Call(7, "all_reduce"))
DIFFER = differ(7, "op", (Call(7, "barrier", site=(Frame("f"),)), (0,)), (Call(7, "reduce"), (1,)))
UNSURE = suspect("host-stuck", "stacks-awaited")
ROWS = {
    "stuck": (suspect("not-entered"), [], STUCK_KEYS),
    "stuck, with its stack": (suspect("not-entered"), [SEEN], ["oddrank run"]),
    "stuck, with another's stack": (suspect("not-entered"), [ELSEWHERE], STUCK_KEYS),
    "stuck, with its place": (suspect("not-entered", leaf=Frame("f")), [], ["oddrank run"]),
    "stuck, with its place, recorded":
        (suspect("not-entered", leaf=Frame("f")), [RECORD], ["oddrank trace where"]),
    "inside a call, with its place":
        (suspect("inside-call", leaf=Frame("f")), [SEEN, COUNTS], ["ncclras", "oddrank run"]),
    "finished": (suspect("finished"), [RECORD], ["finished"]),
    "stuck and counted": (suspect("not-entered"), [COUNTS], ["py-spy", "ncclras", "oddrank run"]),
    "stuck and over": (suspect("not-entered"), [GONE], STUCK_KEYS),
    "stuck and told to end": (suspect("not-entered"), [STOP], STUCK_KEYS),
    "stuck and the recorder was off":
        (suspect("not-entered"), [OFF], ["py-spy", "TORCH_FR_BUFFER_SIZE", "oddrank run"]),
    "silent":
        (suspect("not-entered-or-inside", "awaited-and-silent"), [NCCL],
         ["py-spy", "TORCH_FR_DUMP_TEMP_FILE", "oddrank run"]),
    "one look": (UNSURE, [], ["second look"]),
    "one look that is sure": (replace(UNSURE, certainty=2), [], ["oddrank run"]),
    "one look at what is over": (UNSURE, [GONE], ["oddrank run"]),
    "two looks": (suspect("host-stuck", "stacks-awaited-still"), [], ["oddrank run"]),
    "two looks before it was ended":
        (suspect("host-stuck", "stacks-awaited-still"), [STOP], ["before its end"]),
    "behind": (suspect("host-stuck", "behind"), [], ["--deadline", "py-spy"]),
    "in the kernel": (suspect("host-stuck", "held"), [], ["/proc/PID/stack"]),
    "not come": (suspect("never-joined", "others-joined"), [], ["nc", "--deadline"]),
    "not come to localhost":
        (suspect("never-joined", "others-joined", raised="only here"), [], ["loopback"]),
    "preempted": (died("evicted", "its node was preempted"), [], ["again"]),
    "of any job": (suspect("unknown", "of-any-job", processes=()), [], ["the job's files"]),
    "ended before it came": (suspect("never-joined", "launcher-ended-it"), [], ["launcher"]),
    "opened no store": (replace(died("exception", "E: no"), stage="join"), [], ["MASTER_PORT"]),
    "stopped": (suspect("host-stopped"), [], ["host-stopped"]),
    "stopped, of no known pid": (suspect("host-stopped", processes=(Process(3),)), [],
                                 ["host-stopped"]),
    "it answers nobody": (suspect("unreachable"), [], ["unreachable", "dmesg"]),
    "in a file": (suspect("host-stuck", leaf_class="disk"), [], ["/proc/PID/stack"]),
    "at a file's lock": (suspect("host-stuck", leaf_class="file-lock"), [], ["lock files"]),
    "keeps the gil": (suspect("gil-held"), [], ["gil-held"]),
    "keeps the gil, recorded": (suspect("gil-held"), [RECORD], ["oddrank trace where", "gil-held"]),
    "a loop": (suspect("infinite-loop"), [], ["oddrank run"]),
    "a loop, recorded": (suspect("infinite-loop"), [RECORD], ["tail"]),
    "slow": (suspect("moving"), [], ["oddrank run"]),
    "raised": (died("exception", "ValueError: 3"), [], ["alone"]),
    "locks in two orders": (suspect("deadlock"), [], ["deadlock"]),
    "a group of two threads": (suspect("shared-group"), [], ["shared-group"]),
    "a circle": (suspect("cycle", leaf=Frame("f")), [], ["cycle"]),
    "other settings": (fault("setting", "GPU 0", "settings"), [], ["settings"]),
    "oddrank run named it": (suspect("told"), [], ["told"]),
    "raised by cuda": (died("exception", "CUDA error: an illegal memory access"), [],
                       ["CUDA_LAUNCH_BLOCKING"]),
    "raised and recorded": (died("exception", "RuntimeError: distances"), [RECORD], ["tail"]),
    "raised by nccl": (died("exception", "NCCL error: unhandled system error"), [], ["NCCL_DEBUG"]),
    "a bus error": (died("exception", "DataLoader worker (pid 8) is killed by signal: Bus error."),
                    [], ["/dev/shm"]),
    "crashed": (died("signal", signal=11), [], ["dmesg", "core"]),
    "crashed, with its stack": (died("signal", signal=11), [SEEN], ["dmesg"]),
    "killed": (died("signal", signal=9), [], ["dmesg"]),
    "killed, and the kernel's log is there": (died("signal", signal=9), [OOM], ["last words"]),
    "out of memory": (died("oom", "Detected 1 oom_kill event in StepId=12.0"), [],
                      ["memory", "sacct"]),
    "a pod": (died("oom", "pod w-3, container c: OOMKilled"), [], ["memory", "kubectl"]),
    "by SLURM": (died("signal", "slurmstepd: error: killed", signal=15), [], ["sacct"]),
    "by a scheduler": (died("evicted", by="scheduler"), [], ["sacct"]),
    "as its file says": (replace(died("exit"), support=(Point("x", Source("slurm-47.out")),)), [],
                         ["sacct"]),
    "told to end": (suspect("unknown", "told-to-end", 0, processes=()), [STOP],
                    ["before its end", "oddrank run"]),
    "sizes differ": (died("abort", "c10 500 vs 252", rule="sizes-differ", signal=6), [],
                     ["TORCH_DISTRIBUTED_DEBUG"]),
    "xid": (fault("xid", "GPU 0000:9b:00"), [], ["nvidia-smi", "dcgmi", "oddrank selftest"]),
    "a flap": (fault("ib-flap", "ib6"), [], ["ibstat", "NCCL_DEBUG", "oddrank selftest"]),
    "a gpu that stands": (suspect("gpu-stopped"), [], ["dmesg", "nvidia-smi", "oddrank selftest"]),
    "a program's fault": (fault("xid", "GPU 0", "application"), [], ["CUDA_LAUNCH_BLOCKING"]),
    "models differ": (replace(suspect("mismatch"), at=Call(None, "DDP()")), [],
                      ["named_parameters"]),
    "calls differ": (suspect("mismatch", waiting=(RANK,)), [], ["TORCH_DISTRIBUTED_DEBUG"]),
    "calls differ at a known place": (suspect("mismatch", mismatch=DIFFER), [], ["places"]),
    "calls differ, as torch compared them": (suspect("mismatch"), [COMPARED], ["oddrank run"]),
    "lost": (LOST, [NCCL], STUCK_KEYS),
    "lost on gloo": (LOST, [GLOO], STUCK_KEYS),
    "lost, and oddrank run saved it": (LOST, [GLOO, SAVED], ["saved", "py-spy"]),
    "lost, and a log names dumps": (LOST, [DUMP, GLOO], ["flight-recorder-dump", *STUCK_KEYS]),
    "never more than four":
        (replace(LOST, trouble=(Trouble("xid", "", HERE), Trouble("network", "", HERE)),
                 death=Death(RANK, "exception", HERE, signal=11, text="CUDA NCCL slurm")),
         [OFF], ["py-spy", "dmesg", "nvidia-smi", "dcgmi"]),
}  # fmt: skip


def test_each_step_is_shown_where_evidence_points_there(golden):
    keys = {step.text.partition("{")[0][:40]: step.key for step in (*LAST, *FIRST, *STEPS)}
    # The last ones are some of the others, too.
    assert len({*keys.values()}) == len(FIRST) + len(STEPS) + 2
    rows = [cause for cause in causes.TABLE.values() if cause.next and cause.about != "hub"]
    keys |= {text.partition("{")[0][:40]: cause.name for cause in rows for text in cause.next}
    shown, wrong = [], []
    for name, (found, facts, expected) in ROWS.items():
        lines = next_steps(found, view(facts), who="rank 3", home="n0", address="n0", port=2)
        made = [key for line in lines for begin, key in keys.items() if line.startswith(begin)]
        if made != expected or len(set(lines)) != len(expected):
            wrong.append(f"{name}: {made}, not {expected}")
        shown.append("\n  ".join([name, *lines]))
    assert not wrong, "\n".join(wrong)
    assert {key for *_, expected in ROWS.values() for key in expected} == {*keys.values()}
    golden("\n".join(shown))


def test_each_finding_of_a_named_rank_has_something_to_type():
    for cause in causes.TABLE.values():
        for death in (None, *(Death(RANK, how, HERE) for how in ("exception", "signal", "exit"))):
            for facts in ([], [RECORD], [SEEN], [STOP], [GLOO]):
                if cause.says and cause.about != "hub":
                    assert next_steps(suspect(cause.name, death=death), view(facts)), cause.name
