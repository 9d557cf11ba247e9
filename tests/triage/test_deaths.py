"""Checks who ended first: lines of launchers and last words become deaths, and these a suspect."""

from dataclasses import replace

import pytest

from oddrank import launch
from oddrank.errors import OddrankError
from oddrank.triage.evidence import launcher, tracebacks, watchdog
from oddrank.triage.evidence.log_lines import placed
from oddrank.triage.facts import (
    Death,
    Frame,
    Group,
    Identity,
    Process,
    Source,
    Stack,
    State,
    Thread,
    Trouble,
    World,
    ranks,
)
from oddrank.triage.judges import deaths
from oddrank.triage.view import view
from progress import done
from triage.facts_of import Texts, item_of, judged
from triage.told import check, into

HOOK = Frame("_distributed_excepthook", "torch/distributed/distributed_c10d.py", 110)
C10D = Frame("all_reduce", "torch/distributed/distributed_c10d.py", 3252)
PIPE = "ConnectionResetError: [Errno 104] Connection reset by peer"
LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:4711"
WAITED = "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation"
AGENT = "E1123 12:58:19.798000 1000 torch/distributed/elastic/multiprocessing/api.py:1002] "
HERE = Source("a")


@pytest.fixture
def said(tmp_path):
    """Returns a function: the facts of a log, and of the size of its job."""

    def read(*parts, world=None):
        text = "".join(parts)
        kinds = (watchdog, tracebacks, launcher)
        facts = [fact for kind in kinds for fact in Texts(tmp_path, kind.KIND).facts(text)]
        return [*facts, *([World(world, Source("settings"))] if world else [])]

    return read


def traceback(*ranks, error="ValueError: boom", prefix="[rank{}]: "):
    lines = (
        "Traceback (most recent call last):", '  File "train.py", line 9, in main', "    step()",
        error,
    )  # fmt: skip
    return "".join(f"{prefix.format(rank)}{line}\n" for rank in ranks for line in lines)


def failed(local, pid, code):
    return f"{AGENT}failed (exitcode: {code}) local_rank: {local} (pid: {pid}) of binary: python\n"


def closing(*pids):
    return "".join(f"{AGENT}Sending process {pid} closing signal SIGTERM\n" for pid in pids)


def entry(rank, code, *, pid, local):
    """An entry of the table of failures."""
    return (
        f"[{rank}]:\n  time      : 2026-11-23_12:58:19\n  host      : node1\n"
        f"  rank      : {rank} (local_rank: {local})\n  exitcode  : {code} (pid: {pid})\n"
        "  error_file: <N/A>\n  traceback : To enable traceback see: https://pytorch.org/docs\n"
    )


def dead(*ranks, certainty=2):
    return "dead", ranks, certainty


@pytest.mark.needs("samples")
def test_blooms_crash_is_explained(samples, said, golden):
    text = (samples / "bloom176b" / "tr11-176B-ml_chronicles.md").read_text()
    start = text.index("[default3]:terminate called")
    crash = said(text[start : text.index("```", start)])
    check(golden, {"bloom": (crash, dead(None))})


def test_oddranks_own_words_in_an_error_file_are_no_exception_of_that_rank(tmp_path):
    said = "rank 1 (n1) is stuck in setup (init.py:11); ranks 0, 2 wait for it"
    (tmp_path / "rank0.error.json").write_text(launch.error_text(said, 1767225600.0))
    (suspect,) = judged(tmp_path).suspects
    assert (suspect.cause.name, ranks(suspect.processes)) == ("told", (1,))
    assert (suspect.death.how, suspect.death.text) == ("exit", said)
    said = "ranks 0-2 wait in all_reduce 5, and what was read does not tell for whom"
    (tmp_path / "rank0.error.json").write_text(launch.error_text(said, 1767225600.0))
    with pytest.raises(OddrankError, match="nothing in what was given tells what happened"):
        judged(tmp_path)


def test_an_error_file_of_torchelastic_names_local_rank_and_place(tmp_path):
    for rank, name in enumerate(("stderr.log", "", "", "error.json")):
        (tmp_path / "attempt_0" / str(rank)).mkdir(parents=True)
        (tmp_path / "attempt_0" / str(rank) / (name or "out.log")).write_text("step 9\n")
    (tmp_path / "attempt_0" / "3" / "error.json").write_text(
        '{"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": "Traceback (most'
        ' recent call last):\\n  File \\"train.py\\", line 9, in main\\n    step()\\nValueError: '
        'boom\\n", "timestamp": "1767225600"}}}'
    )
    found = placed([item_of(each, str(each)) for each in tmp_path.rglob("*.*")])
    items = [item for item in found if launcher.KIND.sniff(item)]
    (death,) = (f for f in launcher.KIND.read(items, None) if isinstance(f, Death))
    assert (death.process.rank, death.process.label) == (None, "local rank 3")
    assert (death.time, death.coarse) == (1767225600.0, True)
    assert death.site == (Frame("main", "train.py", 9),)


def death(rank, time=None, *, host=None, **more):
    made = {"text": "ValueError: boom", "how": "exception", **more}
    return Death(Process(rank, host), made.pop("how"), Source("job.log", rank), time, **made)


def exits(rank, hours, wall):
    return Death(Process(rank, "n1"), "exit", Source(f"{rank}"), hours * 3600, wall=wall, code=rank)


def test_times_order_ends_as_far_as_clocks_allow(golden):
    key, coarse = {"text": "KeyError: 1"}, {"coarse": True}
    check(golden, {
        "the earlier of two": ([death(0, 10.0, **key), death(1, 12.0)], dead(0, certainty=1)),
        "memory says more than the pod's end": (
            [death(0, 10.0, how="evicted"), death(0, 12.0, how="oom")], dead(0)),
        "whole seconds": ([death(0, 10.0, **key, **coarse), death(1, 11.0, **coarse)],
                          dead(0, certainty=1), dead(1, certainty=0)),
        "clocks of two hosts": ([death(0, 10.0, **key, host="a"), death(1, 99.0, host="b")],
                                dead(0, certainty=1), dead(1, certainty=0)),
        "both without a zone": ([exits(1, 0, True), exits(2, 2, True)], dead(1, certainty=1)),
        "one without a zone": ([exits(1, 0, True), exits(2, 2, False)],
                               dead(1, certainty=1), dead(2, certainty=0)),
        "one more than all zones earlier":
            ([exits(1, 0, True), exits(2, 15, False)], dead(1, certainty=1)),
        "no deaths": ([],),
    }, deaths.judge)  # fmt: skip


def test_what_other_evidence_says_of_those_who_ended(said, golden):
    def stands(rank, *frames, **more):
        return Stack((*frames, Frame("<module>")), (Thread(Process(rank), "MainThread", **more),))

    by_kernel = Death(Process(None, None, 57), "oom", Source("kernel.log"), signal=9, by="kernel")
    same_pid = [Identity(Process(rank, f"n{rank}", 57), HERE) for rank in (0, 1)]
    worker = "RuntimeError: DataLoader worker (pid(s) 4711, 4712) exited unexpectedly"
    placed = Death(same_pid[0].process, "signal", HERE, signal=9, site=(Frame("eat", "a.py", 3),))
    left = "RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly"
    of_worker = replace(by_kernel, process=Process(None, "n1", 4712), source=Source("dmesg", 7))
    killed = [Death(Process(r), "signal", HERE, signal=9, site=(Frame(f"f{r}"),)) for r in range(3)]
    more = [Death(Process(r), "signal", HERE, signal=9) for r in (3, 4)]
    waits = [stands(rank, C10D) for rank in range(4)]
    loads = stands(4, Frame("recv_into", "ssl.py"), Frame("main", "train.py"))
    gave_up = [death(r, 20.0, failed="all_reduce", text="RuntimeError after all_reduce failed",
                     site=(C10D,)) for r in (1, 3)]  # fmt: skip
    in_kernel = State(Process(1), "uninterruptible", HERE)
    naps = [stands(0, Frame("save", "train.py", 30)), stands(2, C10D)]
    outside = ("host-stuck", (0,), 0)
    told = said(traceback(1, 3, error=WAITED))
    three = {"group": Group("0", (0, 1, 2), "default_pg"), "backend": "gloo"}
    wait = [done(0, 20, **three), *into(21, 1, 2, **three), Death(Process(0), "exit", HERE, code=0)]
    gone = Death(Process(1), "signal", HERE, text="killed or crashed")
    lost_name = death(2, host="node1", how="signal", text="", signal=9, site=(Frame("?", ""),))
    kill = death(1, 100.0, host="n1", how="signal", text="", signal=9)
    node = Trouble("node", "SLURM: node failure on n1", HERE, "n1", fatal=True, time=130.0)

    store = (
        "torch.distributed.DistStoreError: wait timeout after 9ms, keys: /default_pg/0//cpu//0/4"
    )
    gone_before = [death(r, host="n1", text=store, gone=10.0) for r in range(4)]
    gave_up_later = [replace(one, gone=700.0) for one in gone_before]
    signalled = death(4, host="n2", how="signal", text="", signal=15, gone=10.0)
    late = replace(loads, threads=(Thread(Process(4, "n1"), "MainThread"),))
    gone_before.append(death(4, host="n1", how="signal", text="", signal=15, gone=10.3))

    later = [replace(one, time=11.0, process=Process(one.process.rank, "n1")) for one in gave_up]

    def of_two(signal):
        first = death(1, host="n1", how="signal", text="", signal=signal, gone=10.0)
        return [first, death(0, host="n1", text=LOST, gone=11.0), World(2, HERE)]

    def all_got(signal, world, dead=2):
        ends = (death(r, host="n1", how="signal", text="", signal=signal, gone=10.0 + r / 10)
                for r in range(dead))  # fmt: skip
        return [*ends, World(world, HERE)]

    lost_them = death(3, host="n1", text=LOST, gone=10.4)
    had_to_be = death(3, 40.0, host="n1", how="signal", text="", signal=9, gone=40.0)
    failed_before = replace(lost_them, text="ValueError: boom", gone=9.5)
    hung_up = replace(had_to_be, time=10.3, signal=1, gone=10.3)

    def of_three(last=12.0, gone=12.5):
        at = ((0, 11.0, "ValueError: bad label"), (1, 11.5, "KeyError: 'id'"),
              (2, last, "OSError: [Errno 28] No space left on device"))  # fmt: skip
        ends = [death(r, time, host="n1", text=text, gone=gone) for r, time, text in at]
        return [*ends, World(3, HERE)]

    check(golden, {
        "who waited in vain ended before the one that a launcher then killed":
            ([*gone_before, late], ("host-stuck", (4,), 1)),
        "who got a signal on another host before others gave up":
            ([*gave_up_later, signalled], dead(4)),
        "a node that failed as its rank was killed": ([kill, node], dead(1)),
        "a node that failed hours later": ([kill, replace(node, time=9e3)], dead(1)),
        "of two ranks one got SIGTERM before": (of_two(15), dead(1)),
        "both got SIGHUP, one a moment before": (all_got(1, 2), ("unknown", (), 0)),
        "both got SIGTERM": (all_got(15, 2), ("unknown", (), 0)),
        "of a larger job these two did": (all_got(15, 4), dead(0, 1)),
        "of a larger job two got SIGHUP": (all_got(1, 4), ("unknown", (), 0)),
        "or two of one host, and others of another lost them":
            ([*all_got(1, 4), *(replace(lost_them, process=Process(rank, "n2"), gone=10.6)
                                for rank in (2, 3))], dead(0)),
        "three of four did, the last has not ended": (all_got(1, 4, 3), ("unknown", (), 0)),
        "three of four did, the last lost them, and left later":
            ([*all_got(1, 4, 3), lost_them], ("unknown", (), 0)),
        "or had to be killed, later": ([*all_got(1, 4, 3), had_to_be], ("unknown", (), 0)),
        "or was gone before by an error": ([*all_got(1, 4, 3), failed_before], dead(3)),
        "how the others ended at once is not known":
            ([*all_got(None, 4, 3), hung_up], ("unknown", (), 0)),
        "one was gone before, nobody knows how":
            ([replace(hung_up, signal=None, gone=5.0), *all_got(1, 4, 3)], dead(3)),
        "both raised the same, and one still runs": (
            [death(r, text="ValueError: nan", code=code) for r, code in ((0, None), (1, 1))],
            dead(0, 1, certainty=1)),
        "each raised another error before any was gone": (of_three(), ("each-raised", (), 2)),
        "one of them ran into an error seconds after the first was gone":
            (of_three(19.0), ("dead", (0,), 1)),
        "and the first hung on its way out until then":
            (of_three(19.0, 20.0), ("dead", (0,), 1)),
        "no guard saw them end": (of_three(12.0, None), ("each-raised", (), 1)),
        "the error that one was raised after says nothing of whom it lost":
            ([death(0, 10.0, host="n1", text=f"FileNotFoundError: shard 17, after {WAITED}"),
              death(1, 11.0, host="n1", text=LOST), World(2, HERE)], dead(0)),
        "the worker of one died, and its pipe broke before others failed":
            ([death(2, 10.0, host="n1", text=PIPE), *later], dead(2)),
        "or while others still wait in a call":
            ([death(2, 10.0, host="n1", text=PIPE), *into(21, 0, 1)], dead(2, certainty=1)),
        "a pipe that broke after others had failed":
            ([death(2, 12.0, host="n1", text=PIPE), *later], dead(0, certainty=0)),
        "of two ranks one was interrupted, and the other lost it": (of_two(2), ("unknown", (), 0)),
        "nobody saw how a third one ended":
            ([replace(of_two(2)[0], time=10.0), of_two(2)[1], World(3, HERE),
              death(2, 12.0, host="n1", how="signal", text="", gone=12.0)], ("unknown", (), 0)),
        "and the other was killed later, as Ctrl-C had not ended it":
            ([death(rank, at, host="n1", how="signal", text="", signal=by, gone=at)
              for rank, at, by in ((1, 10.0, 2), (0, 40.0, 9))], ("unknown", (), 0)),
        "of four ranks one was interrupted, and seconds later the others":
            ([death(r, host="n1", how="signal", text="", signal=2, gone=10.0 + 1.5 * (r != 1))
              for r in range(4)], ("unknown", (), 0)),
        "the only rank was interrupted": ([of_two(2)[0], World(1, HERE)], ("unknown", (), 0)),
        "of four ranks one left the others without a word":
            (said(traceback(0, 1, 3, error=LOST), failed(1, 11, 1), world=4),
             dead(2, certainty=1)),
        "a pid of two ranks on their hosts": ([*same_pid, by_kernel], dead(None)),
        "a pid of one rank": ([*same_pid[:1], by_kernel], dead(0)),
        "a pid of one rank whose place is known": ([*same_pid[:1], by_kernel, placed], dead(0)),
        "a worker that the kernel killed":
            ([*said(traceback(3, error=worker), traceback(0, error=LOST)), of_worker], dead(3)),
        "a worker whose signal torch lost": (said(traceback(3, error=left)), dead(3, certainty=1)),
        "a job that somebody ended": (killed, dead(0, 1, 2)),
        "and which had stalled": ([*killed, *more, *waits, loads], ("host-stuck", (4,), 1)),
        "who gave up in a collective is a victim of who stands outside":
            ([*gave_up, *naps], outside),
        "and the log tells of it": ([*gave_up, *naps, *told], outside),
        "who prints its exception is no rank that stands":
            ([killed[2], *gave_up, stands(1, HOOK), stands(2, C10D), in_kernel], dead(2)),
        "a place whose name was lost": ([lost_name], dead(2)),
        "who is gone without a cause waited for a rank that had ended well":
            ([*wait, gone], ("finished", (0,), 2)),
        "and with one": ([*wait, replace(gone, signal=11)], dead(1), ("finished", (0,), 0)),
    })  # fmt: skip


def test_a_kernels_line_about_an_earlier_process_with_the_same_pid_is_no_death():
    process = Process(2, "node1", 4711)
    seen = State(process, "running", Source("states.json"), 100.0)
    for time, kept in ((None, False), (50.0, False), (150.0, True)):
        line = Death(process, "signal", Source("kernel.log"), time, signal=11, by="kernel")
        assert bool(view([seen, line]).deaths) is kept, time
    for went_on in (False, True):  # the script was over, and its process not yet
        over = Death(process, "exit", Source("rank2.trace"), code=0, went_on=went_on)
        assert bool(view([over, line]).deaths) is went_on


def local(rank, node=""):
    return None, f"local rank {rank}{f' of {node}' * bool(node)}"


FAILED, STEP = failed(3, 4711, -9), "step 1\n"
KEY = traceback(0, error="KeyError: 'a'", prefix="")
NOTICED = {"slurm.out": "srun: error: n2: task 1: Killed\n"}
DEEPSPEED = (  # the command is that of the last process, whichever it was that ended
    "[ERROR] [launch.py:321:sigkill_handler] ['python', '-u', 'train.py', '--local_rank=3'] exits"
    " with return code = -9\n"
)
ONE_OF_4 = None, "one of local ranks 0-3"
OF_9 = entry(9, -9, pid=4711, local=1)


@pytest.mark.parametrize(
    ("logs", "named"),
    [
        ({"node1": FAILED}, [local(3)]),
        ({"node1": failed(1, 9, -9) + "using world size: 8\n" + closing(8)}, [local(0), local(1)]),
        ({"node1": FAILED + closing(4708, 4709, 4710)}, [local(r) for r in range(4)]),
        ({"node1": f"using world size: 4\n{FAILED}" + closing(4708, 4709, 4710)},
         [(r, "") for r in range(4)]),
        ({"node1": FAILED + "[rank3]: hello\n"}, [local(3)]),
        ({"node1": FAILED + closing(4708, 4709, 4710)
          + "".join(f"[rank{r}]: hello\n" for r in range(4))}, [(r, "") for r in range(4)]),
        ({"node1": FAILED + "[rank11]: hello\n"}, [local(3)]),
        ({"node0": failed(0, 7, -9), "node1": failed(0, 8, -9)}, [local(0)]),
        ({"node1": FAILED + closing(4708) + entry(8, -15, pid=4708, local=0)}, [(8, ""), (11, "")]),
        ({"log": f"worker-1: {DEEPSPEED}"}, [ONE_OF_4]),
        ({"log": f"[rank3]: hello\n{DEEPSPEED}"}, [ONE_OF_4]),
        ({"log": f"[rank0]: {DEEPSPEED}"}, [ONE_OF_4]),
        ({"log": DEEPSPEED.replace("rank=3", "rank=0")}, [local(0)]),
        ({"log": traceback(2) + DEEPSPEED}, [(2, ""), ONE_OF_4]),
        ({"aaa.log": OF_9, **NOTICED}, [(9, ""), (None, "")]),  # tasks are no ranks then
        ({"zzz.log": OF_9, **NOTICED}, [(9, ""), (None, "")]),
        ({"aaa.log": "", **NOTICED}, [(1, "")]),
        ({"j/attempt_0/3/stderr.log": KEY}, [local(3)]),
        ({"j/attempt_0/1/stderr.log": KEY, "j/attempt_0/0/stdout.log": STEP}, [local(1)]),
        ({"j/attempt_0/1/stderr.log": KEY, "j/attempt_0/0/stdout.log": STEP,
          "main.log": "using world size: 2\n"}, [(1, "")]),
        ({"j/attempt_0/3/stderr.log": KEY, "j/attempt_0/0/stdout.log": STEP,
          "main.log": "using world size: 16\n"}, [local(3)]),
        ({"j/attempt_0/1/stderr.log": KEY, "j/attempt_0/0/stdout.log": STEP,
          "rank1.txt": STEP}, [(1, "")]),
        ({"j/attempt_0/1/stderr.log": KEY, "j/attempt_0/0/stdout.log": STEP,
          "rank2.txt": STEP}, [local(1)]),
        ({"a/attempt_0/3/stderr.log": KEY, "b/attempt_0/0/stdout.log": STEP}, [local(3, "a")]),
        ({"node1/local_rank_2.log": KEY}, [local(2)]),
        ({"local_rank_2.log": KEY, "local_rank_0.log": STEP}, [local(2)]),
        ({"n0/local_rank_0.log": STEP, "n1/local_rank_2.log": KEY}, [local(2, "n1")]),
        ({"node_rank_1.log": KEY}, [(None, "")]),
        ({"rank_5_local_rank_1.log": KEY}, [(5, "")]),
    ],
)  # fmt: skip
def test_local_ranks_are_ranks_only_where_the_nodes_first_rank_is_known(tmp_path, logs, named):
    for name, text in logs.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = judged(tmp_path).view.deaths
    assert {(d.process.rank, d.process.label) for d in found} == set(named)
