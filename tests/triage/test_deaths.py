"""Checks who ended first: lines of launchers and last words become deaths, and these a suspect."""

import pytest

from oddrank.triage import verdict
from oddrank.triage.evidence import Notes, files, launcher, tracebacks, watchdog
from oddrank.triage.evidence.log_lines import placed
from oddrank.triage.facts import Death, Frame, Identity, Process, Source, Stack, Thread, World
from oddrank.triage.findings import finding
from oddrank.triage.judges import deaths
from oddrank.triage.report import judged
from oddrank.triage.view import view
from triage.facts_of import Texts, item_of


def suspects(tmp_path, text, world=None):
    facts = [
        fact
        for kind in (watchdog, tracebacks, launcher)
        for fact in Texts(tmp_path, kind.KIND).facts(text)
    ]
    if world:
        facts.append(World(world, Source("settings")))
    return verdict.suspects(view(facts))


def traceback(rank, error, line=9, prefix="[rank{}]: "):
    before = prefix.format(rank)
    return (
        f"{before}Traceback (most recent call last):\n"
        f'{before}  File "train.py", line {line}, in main\n'
        f"{before}    step()\n{before}{error}\n"
    )


LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:4711"
WAITED = "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation"
AGENT = "E1123 12:58:19.798000 1000 torch/distributed/elastic/multiprocessing/api.py:1002] "


def failed(local, pid, code):
    return f"{AGENT}failed (exitcode: {code}) local_rank: {local} (pid: {pid}) of binary: python\n"


def closing(*pids):
    return "".join(f"{AGENT}Sending process {pid} closing signal SIGTERM\n" for pid in pids)


def entry(rank, pid, code, time="2026-11-23_12:58:19", local=None):
    return (
        f"[{rank}]:\n  time      : {time}\n  host      : node1\n"
        f"  rank      : {rank} (local_rank: {rank if local is None else local})\n"
        f"  exitcode  : {code} (pid: {pid})\n  error_file: <N/A>\n"
        "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors\n"
    )


def one(found, cause="dead"):
    (suspect,) = (s for s in found if s.certainty > 0)
    assert suspect.cause == cause
    return suspect, [p.rank for p in suspect.processes]


def test_the_rank_that_raised_is_named_and_not_those_that_lost_it(tmp_path):
    text = (
        traceback(2, "ValueError: boom")
        + traceback(0, LOST)
        + traceback(1, LOST)
        + closing(10, 12, 13)
        + failed(1, 11, 1)
    )
    suspect, named = one(suspects(tmp_path, text))
    assert named == [2]
    assert suspect.certainty == 2
    assert [p.rank for p in suspect.waiting] == [0, 1]
    assert suspect.leaf == Frame("main", "train.py", 9)


def test_the_launchers_root_cause_is_only_evidence(tmp_path):
    # As in real output: rank 1 timed out first, rank 2 stood still and had to be killed.
    text = (
        traceback(0, WAITED)
        + traceback(1, WAITED)
        + traceback(3, WAITED)
        + closing(10, 12, 13)
        + f"{AGENT}Unable to shutdown process 12 via 15, forcefully exiting via 9\n"
        + failed(1, 11, 1)
        + "Failures:\n"
        + entry(0, 10, -15)
        + entry(2, 12, -9)
        + entry(3, 13, -15)
        + "Root Cause (first observed failure):\n"
        + entry(1, 11, 1)
    )
    suspect, named = one(suspects(tmp_path, text), "not-entered-or-inside")
    assert named == [2]
    assert suspect.rule == "did-not-end"


def test_the_only_rank_that_did_not_time_out_is_the_one_waited_for(tmp_path):
    text = (
        traceback(0, LOST)
        + traceback(1, WAITED)
        + traceback(3, WAITED)
        + closing(10, 12)
        + failed(1, 11, 1)
        + "".join(entry(r, 10 + r, c) for r, c in ((0, -15), (2, -15), (3, 1), (1, 1)))
    )
    _, named = one(suspects(tmp_path, text), "not-entered-or-inside")
    assert named == [2]


def test_a_table_with_tracebacks_is_read_entry_by_entry(tmp_path):
    def raised(rank, pid):
        shown = (
            "  traceback : Traceback (most recent call last):\n"
            f'    File "train.py", line 9, in main\n      step()\n  {LOST}\n  \n'
        )
        before, _, _ = entry(rank, pid, 1).partition("  traceback")
        return before + shown

    rule, end = "-" * 60 + "\n", "=" * 60 + "\n"
    text = (
        f"{end}train.py FAILED\n{rule}Failures:\n{raised(0, 10)}{entry(2, 12, -9)}{raised(3, 13)}"
        f"{rule}Root Cause (first observed failure):\n{raised(1, 11)}{end}"
    )
    suspect, named = one(suspects(tmp_path, text))
    assert named == [2]
    assert suspect.death.signal == 9
    assert sorted(p.rank for p in suspect.waiting) == [0, 1, 3]


def test_a_killed_rank_explains_those_that_the_launcher_ended(tmp_path):
    text = closing(10, 11, 13) + failed(2, 12, -9) + entry(2, 12, -9)
    suspect, named = one(suspects(tmp_path, text))
    assert named == [2]
    assert (suspect.death.how, suspect.death.signal) == ("signal", 9)


def test_a_crash_after_another_end_is_its_consequence(tmp_path):
    text = traceback(3, "ValueError: boom") + entry(3, 13, 1) + entry(1, 11, -11) + entry(0, 10, -6)
    _, named = one(suspects(tmp_path, text))
    assert named == [3]


def test_crashes_alone_are_causes(tmp_path):
    _, named = one(suspects(tmp_path, entry(1, 11, -11) + entry(0, 10, -15)))
    assert named == [1]


def test_the_same_exception_on_all_ranks_blames_no_rank(tmp_path):
    text = "".join(traceback(r, f"KeyError: 'of rank {r}'") + entry(r, 10 + r, 1) for r in range(4))
    suspect, named = one(suspects(tmp_path, text))
    assert named == [0, 1, 2, 3]
    assert suspect.rule == "same-end-everywhere"


def test_tracebacks_without_ranks_belong_to_the_only_rank_that_exited_so(tmp_path):
    text = traceback(0, "ValueError: boom", prefix="") + closing(10, 12) + failed(1, 11, 1)
    suspect, named = one(suspects(tmp_path, text))
    assert named == [1]
    assert suspect.death.text == "ValueError: boom"


def test_of_several_tracebacks_without_ranks_nobody_is_named(tmp_path):
    text = (
        traceback(0, "ValueError: boom", prefix="")
        + traceback(0, LOST, prefix="")
        + entry(0, 10, 1)
        + entry(1, 11, 1)
    )
    found = suspects(tmp_path, text)
    assert not [s for s in found if s.certainty == 2]


def test_an_exit_without_a_reason_says_that_the_reason_is_missing(tmp_path):
    # torchrun keeps no output of the other ranks: error_file is <N/A>
    suspect, named = one(suspects(tmp_path, entry(1, 11, 1) + entry(0, 10, -15)))
    assert named == [1]
    assert suspect.certainty == 1
    assert suspect.against


def test_who_aborted_after_a_watchdogs_timeout_waited(tmp_path):
    caught = (
        "[rank{0}]:[E419 10:42:28.8 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective"
        " operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        "Timeout(ms)=600000) ran for 600013 milliseconds before timing out.\n"
        "[rank{0}]:[E419 10:42:28.8 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank "
        "{0}] failure detected by watchdog at work sequence id: 5 PG status: last enqueued work: 5,"
        " last completed work: 4\n"
    )
    text = (
        caught.format(0)
        + caught.format(1)
        + caught.format(3)
        + closing(12)
        + failed(0, 10, -6)
        + "".join(entry(r, 10 + r, -6) for r in (0, 1, 3))
        + entry(2, 12, -15)
    )
    found = suspects(tmp_path, text)
    assert {p.rank for s in found if s.certainty for p in s.processes} == {2}


def test_a_rank_that_left_the_others_without_a_word_is_named(tmp_path):
    text = "".join(traceback(r, LOST) for r in (0, 1, 3)) + failed(1, 11, 1)
    suspect, named = one(suspects(tmp_path, text, world=4))
    assert named == [2]
    assert suspect.certainty == 1
    # Of a job of unknown size, others may have left without a word, too.
    assert all(s.certainty == 0 for s in suspects(tmp_path, text))


def test_a_pid_that_two_ranks_have_on_their_hosts_names_neither():
    source = Source("kernel.log")
    killed = Death(Process(None, None, 57), "oom", source, signal=9, by="kernel")
    ranks = [Identity(Process(rank, f"n{rank}", 57), source) for rank in (0, 1)]
    assert [p.rank for s in verdict.suspects(view([*ranks, killed])) for p in s.processes] == [None]
    (found,) = verdict.suspects(view([*ranks[:1], killed]))
    assert [p.rank for p in found.processes] == [0]


SRUN = "srun: error: n1: task {}: Exited with exit code 1\n"


@pytest.mark.parametrize("line", ["", "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED ***\n"])
def test_who_failed_before_srun_killed_the_others_is_named(tmp_path, line):
    killed = "srun: error: n2: tasks 4-7: Killed\nsrun: error: n1: tasks 1-3: Killed\n"
    found = suspects(tmp_path, SRUN.format(0) + line + killed)
    assert [p.rank for p in found[0].processes] == [0]
    assert found[0].certainty > 0


def test_two_killed_ranks_of_many_are_not_all_ranks(tmp_path):
    found = suspects(tmp_path, "srun: error: n1: tasks 1,9: Killed\n")
    assert found[0].rule == "first-end"
    found = suspects(tmp_path, "srun: error: n1: tasks 0-3: Killed\n")
    assert found[0].rule == "ended-from-outside"


def test_a_rank_that_alone_lost_a_connection_is_shown_with_its_own_words(tmp_path):
    text = traceback(2, "ConnectionRefusedError: [Errno 111] Connection refused")
    found = suspects(tmp_path, text + failed(2, 12, 1) + closing(10, 11, 13))
    assert [(s.rule, s.certainty) for s in found] == [("lost-one-connection", 0)]
    assert "raised ConnectionRefusedError" in finding(found[0]).what


def test_ranks_that_lost_connections_are_not_said_to_wait(tmp_path):
    text = "".join(traceback(rank, LOST) for rank in (0, 1))
    (found,) = suspects(tmp_path, text, world=8)
    assert finding(found).what.startswith("ranks 0-1 lost connections, and what was read")


CUDA = """[default{0}]:terminate called after throwing an instance of 'c10::CUDAError'
[default{0}]:  what():  CUDA error: an illegal memory access was encountered
[default{0}]:Exception raised from query at ../aten/src/ATen/cuda/CUDAEvent.h:95 (most recent call first):
[default{0}]:frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x42 (0x15 in /lib/libc10.so)
[default{0}]:frame #1: c10d::ProcessGroupNCCL::workCleanupLoop() + 0x145 (0x16 in /lib/libtorch_cuda.so)
[default{0}]:frame #2: clone + 0x43 (0x17 in /lib64/libc.so.6)
"""  # noqa: E501


def test_a_crash_by_cuda_says_where_it_was_noticed_and_that_this_is_not_where_it_arose(tmp_path):
    text = "[default0]:step 7\n[default1]:step 7\n" + CUDA.format(1)
    (suspect,) = suspects(tmp_path, text)
    assert [p.rank for p in suspect.processes] == [1]
    assert suspect.leaf is not None
    assert (suspect.leaf.function, suspect.leaf.line) == ("query", 95)
    words = " ".join(point.text for point in suspect.support)
    assert "called by c10d::ProcessGroupNCCL::workCleanupLoop: CUDA reports" in words


def test_a_local_rank_of_an_unknown_node_is_no_rank(tmp_path):
    (suspect,) = suspects(tmp_path, CUDA.format(3))
    assert [(p.rank, p.label) for p in suspect.processes] == [(None, "local rank 3")]
    assert "local rank 3 aborted at query" in finding(suspect).what


@pytest.mark.needs("samples")
def test_blooms_crash_is_explained(samples, tmp_path):
    text = (samples / "bloom176b" / "tr11-176B-ml_chronicles.md").read_text()
    start = text.index("[default3]:terminate called")
    (suspect,) = suspects(tmp_path, text[start : text.index("```", start)])
    assert finding(suspect).what == (
        "local rank 3 aborted at query (CUDAEvent.h:95): CUDA error: unknown error"
    )


def test_other_sizes_than_expected_name_nobody(tmp_path):
    text = (
        "[rank2]: terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
        "[rank2]:   what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 500 vs "
        "252. Received data size doesn't match expected size.\n" + failed(2, 12, -6)
    )
    (suspect,) = suspects(tmp_path, text)
    assert (suspect.certainty, suspect.processes) == (0, ())
    # Who ended is not said to wait.
    assert suspect.waiting == ()
    said = "rank 2 was sent 500 bytes where it expected 252, and ended: its size or its peer's"
    assert finding(suspect).what.startswith(said)


@pytest.mark.parametrize(("host", "how"), [("", "oom"), ("n1: ", "oom"), ("n2: ", "signal")])
def test_a_kill_is_for_want_of_memory_where_slurm_says_so(tmp_path, host, how):
    text = "srun: error: n1: task 5: Killed\n" + (
        f"{host}slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks"
        " have been OOM Killed.\n"
    )
    suspect = next(s for s in suspects(tmp_path, text) if s.cause == "dead")
    assert ([p.rank for p in suspect.processes], suspect.death.how) == ([5], how)


def test_srun_and_mpirun_name_their_tasks(tmp_path):
    for text, rank, how in (
        ("srun: error: node7: task 3: Out Of Memory\n", 3, "oom"),
        ("srun: error: node7: task 3: Killed\n", 3, "signal"),
        ("srun: error: node7: task 3: Exited with exit code 2\n", 3, "exit"),
        (
            "mpirun noticed that process rank 3 with PID 1234 on node node7 exited on signal 9 "
            "(Killed).\n",
            3,
            "signal",
        ),
        (
            "prterun noticed that process rank 3 with PID 1234 on node node7 exited on\nsignal 11 "
            "(Segmentation fault).\n",
            3,
            "signal",
        ),
        ("MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\n", 3, "abort"),
        ("[rank: 3] Child process with PID 77 terminated with code -9.\n", 3, "signal"),
    ):
        suspect, named = one(suspects(tmp_path, text))
        assert (named, suspect.death.how) == ([rank], how)


def test_a_time_limit_blames_nobody(tmp_path):
    text = (
        "slurmstepd: error: *** STEP 12.0 ON node7 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME "
        "LIMIT ***\n"
    )
    (suspect,) = suspects(tmp_path, text)
    assert suspect.processes == ()
    assert suspect.death.by == "scheduler"


def test_an_error_file_of_torchelastic_names_rank_and_place(tmp_path):
    path = tmp_path / "attempt_0" / "3" / "error.json"
    path.parent.mkdir(parents=True)
    (tmp_path / "attempt_0" / "0").mkdir()
    (tmp_path / "attempt_0" / "0" / "stderr.log").write_text("step 9\n")
    path.write_text(
        '{"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": "Traceback (most'
        ' recent call last):\\n  File \\"train.py\\", line 9, in main\\n    step()\\nValueError: '
        'boom\\n", "timestamp": "1767225600"}}}'
    )
    found = placed([item_of(each, str(each)) for each in tmp_path.rglob("*.*")])
    items = [item for item in found if launcher.KIND.sniff(item)]
    (death,) = (f for f in launcher.KIND.read(items, None) if isinstance(f, Death))
    assert (death.process.rank, death.time, death.coarse) == (3, 1767225600.0, True)
    assert death.site == (Frame("main", "train.py", 9),)


def death(rank, time=None, *, how="exception", text="ValueError: boom", host=None, coarse=False):
    return Death(Process(rank, host), how, Source("job.log", rank), time, coarse=coarse, text=text)


def test_the_earlier_of_two_ends_is_the_first_cause():
    facts = [death(0, 10.0, text="KeyError: 1"), death(1, 12.0)]
    (suspect,) = deaths.judge(view(facts))
    assert [p.rank for p in suspect.processes] == [0]


def test_whole_seconds_and_other_hosts_clocks_order_nothing():
    for first, second in (
        (death(0, 10.0, text="KeyError: 1", coarse=True), death(1, 11.0, coarse=True)),
        (death(0, 10.0, text="KeyError: 1", host="a"), death(1, 99.0, host="b")),
    ):
        found = deaths.judge(view([first, second]))
        assert len(found) == 2
        assert all(suspect.certainty < 2 for suspect in found)


def test_a_time_without_a_zone_is_not_before_one_with_a_zone():
    def end(rank, hours, wall):
        return Death(Process(rank, "n1"), "exit", Source(f"{rank}"), hours * 3600.0, wall=wall,
                     code=rank)  # fmt: skip

    def first(*several):
        return [[p.rank for p in s.processes] for s in deaths.judge(view(several))]

    assert first(end(1, 0, True), end(2, 2, True)) == [[1]]
    assert first(end(1, 0, True), end(2, 2, False)) == [[1], [2]]
    assert first(end(1, 0, True), end(2, 15, False)) == [[1]]


def test_a_log_says_that_its_times_have_no_zone(tmp_path):
    with_zone = "2026-11-23T10:00:00.5+01:00 "
    for before, wall in ((with_zone, False), (with_zone.replace("+01:00", ""), True)):
        text = f"{before}[rank3]: terminate called after throwing an instance of 'x'\n"
        found = Texts(tmp_path, tracebacks.KIND).facts(text)
        assert [fact.wall for fact in found if isinstance(fact, Death)] == [wall]


def test_a_worker_that_the_kernel_killed_is_told_as_its_ranks(tmp_path):
    error = "RuntimeError: DataLoader worker (pid(s) 4711, 4712) exited unexpectedly"
    kernel = Death(Process(None, "n1", 4712), "oom", Source("dmesg", 7), by="kernel")
    facts = Texts(tmp_path, tracebacks.KIND).facts(traceback(3, error) + traceback(0, LOST))
    (suspect,) = (s for s in deaths.judge(view([*facts, kernel])) if s.certainty)
    assert [p.rank for p in suspect.processes] == [3]
    assert finding(suspect).what.startswith(
        "rank 3's DataLoader worker pid 4712 ran out of memory and was killed by the kernel"
    )
    assert suspect.support[0].text == "rank 3's DataLoader worker pid 4712 ran out of memory"


def test_a_job_that_somebody_ended_hides_no_stall():
    killed = [Death(Process(r), "signal", Source("a"), signal=9, site=(Frame(f"f{r}"),))
              for r in range(3)]  # fmt: skip
    (ended,) = verdict.suspects(view(killed))
    assert (ended.rule, len(ended.processes)) == ("ended-from-outside", 3)
    frames = (Frame("all_reduce", "torch/distributed/distributed_c10d.py"), Frame("<module>"))
    waits = Stack(frames, tuple(Thread(Process(r), "MainThread", own=True) for r in range(4)))
    loads = Stack((Frame("recv_into", "ssl.py"), Frame("<module>", "train.py")),
                  (Thread(Process(4), "MainThread", own=True),))  # fmt: skip
    killed += [Death(Process(r), "signal", Source("a"), signal=9) for r in (3, 4)]
    (stuck,) = verdict.suspects(view([*killed, waits, loads]))
    assert (stuck.cause, [p.rank for p in stuck.processes]) == ("host-stuck", [4])


@pytest.mark.parametrize("with_log", [False, True])
def test_who_gave_up_in_a_collective_is_a_victim_of_who_stands_outside(tmp_path, with_log):
    c10d = Frame("all_reduce", "torch/distributed/distributed_c10d.py", 3252)
    gave_up = [
        Death(Process(r), "exception", Source("record"), 20.0, failed="all_reduce",
              text="RuntimeError after all_reduce failed", site=(c10d,))
        for r in (1, 3)
    ]  # fmt: skip
    naps = Stack((Frame("save", "train.py", 30), Frame("<module>", "train.py", 99)),
                 (Thread(Process(0), "MainThread"),))  # fmt: skip
    waits = Stack((c10d, Frame("<module>", "train.py", 98)), (Thread(Process(2), "MainThread"),))
    log = traceback(1, WAITED) + traceback(3, WAITED)
    more = Texts(tmp_path, tracebacks.KIND).facts(log) if with_log else []
    (first, *_) = verdict.suspects(view([*gave_up, naps, waits, *more]))
    assert [p.rank for p in first.processes] == [0]
    assert not [s for s in verdict.suspects(view([*gave_up, naps, waits, *more])) if s.death]


def test_nothing_is_said_without_deaths():
    assert deaths.judge(view([])) == []


def test_the_rank_whose_key_in_the_store_others_missed_is_named(tmp_path):
    error = "torch.distributed.DistStoreError: wait timeout after 15000ms, keys: "
    key = "/default_pg/0//cpu//0/3"
    suspect, named = one(
        suspects(tmp_path, traceback(0, error + key) + traceback(1, error + key)), "not-entered"
    )
    assert (named, suspect.certainty) == ([3], 1)
    what = finding(suspect).what
    assert what.startswith("rank 3 is stuck: it has not entered init_process_group; ranks 0-1 wait")
    alone = suspects(tmp_path, traceback(0, error + key))
    assert [s.certainty for s in alone] == [0]
    both = traceback(0, error + key) + traceback(1, error + key.replace("0/3", "0/2"))
    assert not [s for s in suspects(tmp_path, both) if s.rule == "absent-in-store"]


def ended(tmp_path, **logs):
    """Returns rank and label of each process that ended, by the logs of one folder."""
    for name, text in logs.items():
        path = tmp_path / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with files.opened([str(tmp_path)], Notes()) as items:
        found = judged(items, Notes()).view.deaths
    return {(d.process.rank, d.process.label) for d in found}


ALONE = (None, "local rank 3")


@pytest.mark.parametrize(
    ("logs", "named"),
    [
        ({"node1": failed(3, 4711, -9)}, {ALONE}),
        ({"node1": failed(1, 9, -9) + "using world size: 8\n" + closing(8)},
         {(None, "local rank 0"), (None, "local rank 1")}),
        ({"node1": failed(3, 4711, -9) + closing(4708, 4709, 4710)}, {(r, "") for r in range(4)}),
        ({"node1": failed(3, 4711, -9) + "[rank3]: hello\n"}, {(3, "")}),
        ({"node1": failed(3, 4711, -9) + "[rank11]: hello\n"}, {ALONE}),
        ({"node0": failed(0, 7, -9), "node1": failed(0, 8, -9)}, {(None, "local rank 0")}),
        ({"node1": failed(3, 4711, -9) + closing(4708) + entry(8, 4708, -15, local=0)},
         {(11, ""), (8, "")}),
    ],
)  # fmt: skip
def test_local_ranks_are_ranks_only_where_the_nodes_first_rank_is_known(tmp_path, logs, named):
    assert ended(tmp_path, **logs) == named


@pytest.mark.parametrize(
    ("before", "local", "named"),
    [
        ("worker-1: ", 3, (None, "local rank 3")),
        ("", 3, (None, "local rank 3")),
        ("[rank3]: hello\n", 3, (3, "")),
        ("[rank0]: ", 3, (0, "")),
    ],
)
def test_deepspeeds_local_rank_is_no_rank(tmp_path, before, local, named):
    line = f"['python', '-u', 'train.py', '--local_rank={local}'] exits with return code = -9\n"
    assert ended(tmp_path, log=f"{before}[ERROR] [launch.py:321:sigkill_handler] {line}") == {named}


@pytest.mark.parametrize("launcher_of", ["aaa.log", "zzz.log"])
def test_tasks_of_srun_are_no_ranks_where_a_launcher_wrote_another_file(tmp_path, launcher_of):
    logs = {
        launcher_of: entry(9, 4711, -9, local=1),
        "slurm.out": "srun: error: n2: task 1: Killed\n",
    }
    assert ended(tmp_path, **logs) == {(9, ""), (None, "")}
    assert ended(tmp_path, **{launcher_of: "", "slurm.out": logs["slurm.out"]}) == {(1, "")}


@pytest.mark.parametrize(
    ("logs", "named"),
    [
        ({"j__attempt_0__3__stderr.log": "KeyError"}, (None, "local rank 3")),
        ({"j__attempt_0__3__stderr.log": "KeyError", "j__attempt_0__0__stdout.log": "step 1\n"},
         (3, "")),
        ({"j__attempt_0__3__stderr.log": "KeyError", "j__attempt_0__0__stdout.log": "step 1\n",
          "main.log": "using world size: 16\n"}, (None, "local rank 3")),
        ({"a__attempt_0__3__stderr.log": "KeyError", "b__attempt_0__0__stdout.log": "step 1\n"},
         (None, "local rank 3 of a")),
        ({"node1__local_rank_2.log": "KeyError"}, (None, "local rank 2")),
        ({"local_rank_2.log": "KeyError", "local_rank_0.log": "step 1\n"}, (2, "")),
        ({"n0__local_rank_0.log": "step 1\n", "n1__local_rank_2.log": "KeyError"},
         (None, "local rank 2 of n1")),
        ({"node_rank_1.log": "KeyError"}, (None, "")),
        ({"rank_5_local_rank_1.log": "KeyError"}, (5, "")),
    ],
)  # fmt: skip
def test_a_local_rank_in_a_name_is_the_rank_only_on_the_only_node(tmp_path, logs, named):
    said = traceback(0, "KeyError: 'a'", prefix="")
    texts = {name: said if text == "KeyError" else text for name, text in logs.items()}
    assert ended(tmp_path, **texts) == {named}
