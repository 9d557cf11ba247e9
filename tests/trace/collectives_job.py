"""A rank of a gloo job: runs the scenarios of its world, and compares its record with them.

collectives_job.py FOLDER [FAULT]; writes {scenario: what is wrong, "" if nothing} there. A scenario
is recorded up to its `yield`; what follows checks the record, once all Works have ended. FAULT: a
program whose record a test reads while it runs or after its death; prints the record's path.
"""

import gc
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

import oddrank
from oddrank import _native
from oddrank.trace import collectives, ranks
from oddrank.trace.arm import Armed
from oddrank.trace.collectives import Collective
from patience import until

Scenario = Callable[[int], Iterator[None]]
SCENARIOS: dict[int, dict[str, Scenario]] = {2: {}, 4: {}}
ARMED: Armed
RECORD = ""  # path of this process's file
SEEN = 0  # records in it when the scenario began
BEFORE: list[float] = []  # what training gives before the recorder was loaded
PAIR: dist.ProcessGroup  # of four ranks the first or the last two


def scenario(world: int) -> Callable[[Scenario], Scenario]:
    def add(run: Scenario) -> Scenario:
        SCENARIOS[world][run.__name__] = run
        return run

    return add


def records() -> list[Collective]:
    """Returns the collectives issued since the scenario began."""
    return collectives.read(RECORD)[SEEN:]


def stop() -> None:
    """Records no more collectives until collectives.start(); still records the end of open ones."""
    _native.torch().stop_collectives()


def states() -> list[str]:
    return [record.state for record in records()]


def issued(*names: str, of: list[Collective] | None = None) -> list[tuple[object, ...]]:
    """Returns these fields of each record, by default operation and bytes."""
    every = records() if of is None else of
    return [tuple(getattr(r, name) for name in names or ("op", "bytes")) for r in every]


def same(found: object, expected: object) -> None:
    assert found == expected, f"{found} is not {expected}"


def is_consecutive(found: list[Collective]) -> bool:
    first = found[0].seq
    assert first is not None
    return [r.seq for r in found] == list(range(first, first + len(found)))


def all_agree() -> None:
    """Checks that the ranks have the same numbers of the same collectives."""
    own, every = issued("group", "seq", "op", "bytes"), [[], []]
    dist.all_gather_object(every, own)
    same(every, [own, own])
    assert own
    assert None not in {seq for _, seq, _, _ in own}


def meet(received: "dist.Work | None") -> None:
    """Ends what rank 0 receives: rank 1 sends it once both have come here."""
    dist.barrier()
    if received is None:
        dist.send(torch.ones(2), 0)
    else:
        received.wait()


def train(recorded: bool) -> list[float]:
    """Trains three DDP steps, one bucket per parameter, the last recorded; returns parameters."""
    if recorded:
        stop()
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    model = DistributedDataParallel(layers, bucket_cap_mb=1e-6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        if step == 2 and recorded:  # DDP has arranged its buckets after the first step
            collectives.start()
        optimizer.zero_grad()
        model(torch.full((5, 4), float(dist.get_rank() + step))).square().sum().backward()
        optimizer.step()
    return [value for p in model.parameters() for value in p.flatten().tolist()]


@scenario(2)
def the_buckets_of_ddp_which_no_python_line_issues(rank: int) -> Iterator[None]:
    trained = train(recorded=True)
    yield
    # One bucket per parameter, last layer first: 2 and 3 x 2, then 3 and 4 x 3 floats.
    same(
        issued("op", "bytes", "bytes_in", "bytes_out", "dtype", "group", "ranks"),
        [("allreduce_", n, n, n, "float32", "0", (0, 1)) for n in (8, 24, 12, 48)],
    )
    assert is_consecutive(records())
    all_agree()
    same(trained, BEFORE)
    same(len(set(trained)), 23)  # as many parameters as the two layers have


@scenario(2)
def functional_calls(rank: int) -> Iterator[None]:
    x = torch.ones(10)
    total = functional.all_reduce(x, "sum", dist.group.WORLD) + 0
    gathered = functional.all_gather_tensor(x, 0, dist.group.WORLD) + 0
    yield
    sizes = issued("op", "bytes", "bytes_in", "bytes_out", "dtype")
    gathers = ("allgather_into_tensor_coalesced_", 40, 40, 80, "float32")
    same(sizes, [("allreduce_", 40, 40, 40, "float32"), gathers])
    same([total.sum().item(), gathered.sum().item()], [20.0, 20.0])
    all_agree()


@scenario(2)
def a_compiled_all_reduce_each_time_it_runs_and_not_when_it_is_traced(rank: int) -> Iterator[None]:
    def f(x: torch.Tensor) -> torch.Tensor:
        return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    traced = compiled(torch.ones(7)).tolist()
    at_first = len(states())
    again = compiled(torch.ones(7)).tolist()
    yield
    same((traced, at_first, again), ([5.0] * 7, 1, traced))
    same(issued(), [("allreduce_", 28)] * 2)


@scenario(2)
def each_group_has_its_own_numbers_and_a_barrier_has_no_bytes(rank: int) -> Iterator[None]:
    stop()
    group = dist.new_group([0, 1])
    collectives.start()
    dist.all_reduce(torch.ones(3), group=group)
    dist.all_reduce(torch.ones(2))
    dist.all_reduce(torch.ones(4), group=group)
    dist.barrier(group=group)
    dist.barrier()
    dist.monitored_barrier()
    yield
    name = group.group_name
    floats, none = "float32", ""
    same(issued("group", "op", "bytes", "dtype"), [
        (name, "allreduce_", 12, floats), ("0", "allreduce_", 8, floats),
        (name, "allreduce_", 16, floats), (name, "barrier", 0, none), ("0", "barrier", 0, none),
        ("0", "monitored_barrier_", 0, none),
    ])  # fmt: skip
    assert is_consecutive([r for r in records() if r.group == name])
    assert is_consecutive([r for r in records() if r.group == "0"][:2])


@scenario(2)
def the_thread_is_the_one_that_issued(rank: int) -> Iterator[None]:
    def issue() -> None:
        dist.all_reduce(torch.ones(5))

    other = threading.Thread(target=issue)
    other.start()
    other.join()
    issue()
    yield
    same(issued("thread"), [(other.native_id,), (threading.get_native_id(),)])


@scenario(2)
def a_work_ends_by_itself_a_send_as_its_work_is_waited_for_or_dropped(rank: int) -> Iterator[None]:
    reduced = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(20)]
    until(lambda: all(work.is_completed() for work in reduced))
    after_completion = states()
    other, x = 1 - rank, torch.ones(2)
    sent, received = dist.isend(x, other), dist.irecv(torch.empty(2), other)
    received.wait()
    kept = states()[20:]
    stop()
    dist.barrier()  # gloo cancels a send whose Work is dropped too early
    del sent
    gc.collect()
    yield
    same((after_completion, kept), (["ended"] * 20, ["open", "ended"]))
    same(states(), ["ended"] * 22)


@scenario(2)
def what_is_open_as_recording_stops_still_ends(rank: int) -> Iterator[None]:
    received = dist.irecv(torch.empty(2), 1) if rank == 0 else None
    stop()
    before = states()
    meet(received)
    yield
    same((before, states()), ((["open"], ["ended"]), ([], []))[rank])


@scenario(2)
def four_threads_and_a_reader_lose_nothing(rank: int) -> Iterator[None]:
    """Gives each thread its own group of one rank, so ranks need no common order."""
    stop()
    groups = [dist.new_group([r]) for r in range(2) for _ in range(4)][4 * rank : 4 * rank + 4]
    collectives.start()

    def issue(group: dist.ProcessGroup) -> None:
        for _ in range(100):
            dist.all_reduce(torch.ones(1), group=group)

    threads = [threading.Thread(target=issue, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    most_open = 0
    while any(thread.is_alive() for thread in threads):
        most_open = max(most_open, states().count("open"))
    yield
    assert most_open <= 4, most_open
    by_group = [[r for r in records() if r.group == group.group_name] for group in groups]
    same([len(found) for found in by_group], [100] * 4)
    assert all(map(is_consecutive, by_group))


@scenario(2)
def while_it_is_not_armed_a_process_records_none(rank: int) -> Iterator[None]:
    for size in (1, 2, 3):
        if size == 2:
            ARMED.remove()
        if size == 3:
            same(oddrank.arm({"*": "off"}).path, RECORD)
        dist.all_reduce(torch.ones(size))
    yield
    same(issued(), [("allreduce_", 4), ("allreduce_", 12)])


@scenario(4)
def roots_are_global_and_each_side_has_its_bytes(rank: int) -> Iterator[None]:
    x, first = torch.ones(3), rank // 2 * 2
    is_first, is_second = rank == first, rank == first + 1
    parts = [torch.ones(3), torch.ones(3)]
    dist.broadcast(x, first, group=PAIR)
    dist.reduce(x, first + 1, group=PAIR)
    dist.gather(x, parts if is_first else None, first, group=PAIR)
    dist.scatter(x, parts if is_second else None, first + 1, group=PAIR)
    dist.all_gather(parts, x, group=PAIR)
    dist.all_gather_into_tensor(torch.ones(6), x, group=PAIR)
    dist.reduce_scatter_tensor(x, torch.ones(6), group=PAIR)
    # The first rank sends 1 and 2 elements, the second 3 and 4.
    sent, received = ([1, 2], [1, 3]) if is_first else ([3, 4], [2, 4])
    dist.all_to_all_single(
        torch.empty(sum(received)), torch.ones(sum(sent)), received, sent, group=PAIR
    )
    with dist._coalescing_manager(PAIR):
        dist.all_reduce(x, group=PAIR)
        dist.all_reduce(x, group=PAIR)
    yield
    same(issued("op", "root", "bytes", "bytes_in", "bytes_out"), [
        ("broadcast_", first, 12, 12, 12),
        ("reduce_", first + 1, 12, 12, 12),
        ("gather_", first, 12, 12, 24 if is_first else 0),
        ("scatter_", first + 1, 12, 24 if is_second else 0, 12),
        ("allgather_", None, 12, 12, 24),
        ("_allgather_base_", None, 12, 12, 24),
        ("_reduce_scatter_base_", None, 24, 24, 12),
        ("alltoall_base_", None, 4 * sum(sent), 4 * sum(sent), 4 * sum(received)),
        ("allreduce_coalesced_", None, 24, 24, 24),
    ])  # fmt: skip
    group = (PAIR.group_name, (first, first + 1), "gloo", False)
    same(issued("group", "ranks", "backend", "failed"), [group] * 9)


@scenario(4)
def messages_have_a_global_peer_a_tag_and_a_number(rank: int) -> Iterator[None]:
    x, peer = torch.ones(5, dtype=torch.float64), rank ^ 1
    for tag in (7, 8):
        if rank < peer:
            dist.send(x, peer, group=PAIR, tag=tag)
        else:
            dist.recv(x, peer, group=PAIR, tag=tag)
    if rank < peer:
        dist.recv(x, None, group=PAIR)
        dist.recv(x, peer, group=PAIR)
    else:
        dist.send(x, peer, group=PAIR)
        dist.send(x, peer, group=PAIR)
    got = torch.empty(1)
    both = [
        dist.P2POp(dist.isend, torch.full((1,), float(rank)), peer, PAIR),
        dist.P2POp(dist.irecv, got, peer, PAIR),
    ]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    yield
    same(got.item(), peer)
    same(issued("op", "bytes"), [*issued("op", "bytes")[:4], ("send", 4), ("recv_", 4)])
    there, back = (("send", "recv_"), ("recv_", "send"))[rank > peer]
    same(issued("op", "peer", "tag", "seq")[:4], [
        (there, peer, 7, 1),
        (there, peer, 8, 2),
        ("recv_any_source_", None, 0, None) if rank < peer else (back, peer, 0, 1),
        (back, peer, 0, None if rank < peer else 2),
    ])  # fmt: skip
    for record in records()[:4]:
        sides = (40, 0) if record.op == "send" else (0, 40)
        same(
            (record.bytes_in, record.bytes_out, record.dtype, record.bytes), (*sides, "float64", 40)
        )


@scenario(4)
def every_type_has_torch_s_name(rank: int) -> Iterator[None]:
    sent = set()
    for name in sorted(dir(torch)):
        dtype = getattr(torch, name)
        if isinstance(dtype, torch.dtype) and str(dtype) == f"torch.{name}":
            with suppress(RuntimeError, NotImplementedError, TypeError):
                dist.broadcast(torch.empty(1, dtype=dtype), 0)
                sent.add(name)
    yield
    assert {"float32", "bfloat16", "int64", "bool", "uint8", "float16"} <= sent
    # torch sends a complex number as two real ones.
    real = {name for name in sent if "complex" not in name}
    same({record.dtype for record in records() if not record.failed}, real)
    same({record.ranks for record in records()}, {(0, 1, 2, 3)})


@scenario(4)
def one_that_raises_does_so_as_without_has_failed_and_has_not_ended(rank: int) -> Iterator[None]:
    messages = []
    for _ in ("recorded", "not recorded"):
        try:
            PAIR.broadcast(torch.ones(1).to_sparse(), root=0).wait()
        except NotImplementedError as error:
            messages.append(str(error).splitlines()[0])
        stop()
    yield
    recorded, unrecorded = messages
    same(recorded, unrecorded)
    # Recorded, but the call raised before it had a number.
    same(issued("op", "seq", "state", "failed"), [("broadcast_", None, "ended", True)])
    (own,), _ = ranks.read([Path(RECORD)])
    groups = {group.name: group for group in own.groups}
    group = groups[PAIR.group_name]
    same((group.begun, group.issued, group.ended), (10, 9, 9))
    first = rank // 2 * 2
    same((group.ranks, group.own, group.size), ((first, first + 1), rank % 2, 2))
    same((group.text == "tensor parallel", groups["0"].text), (rank < 2, "default_pg"))


# Nothing is recorded of it in rank 1.
SILENT = (what_is_open_as_recording_stops_still_ends.__name__, 1)


def wrong_in(name: str, run: Scenario, rank: int) -> str:
    """Runs a scenario; returns what is wrong, "" if nothing."""
    dist.barrier()
    collectives.start()
    checks = run(rank)
    next(checks)
    stop()
    # DDP returns before a Work's end is recorded.
    until(lambda: "open" not in states())
    try:
        same(next(checks, None), None)
        assert bool(records()) == ((name, rank) != SILENT), records()
        for record in records():
            if record.seq is not None and not record.failed:
                assert record.begin_ns < record.end_ns < record.begin_ns + 600e9, record
    except Exception:
        return traceback.format_exc()
    return ""


def join(rank: int, world: int) -> None:
    file = f"{sys.argv[1]}/rendezvous"
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=world)


def one_stays_away(rank: int, world: int) -> None:
    """Both ranks join two all_reduces; rank 1 never joins the third."""
    join(rank, world)
    group = dist.new_group(list(range(world)))
    for _ in range(2):
        dist.all_reduce(torch.ones(5), group=group)
    if rank == 0:
        dist.all_reduce(torch.ones(1000, dtype=torch.float64), group=group)
    time.sleep(600)


def hundred_thousand(rank: int, world: int) -> None:
    """Issues 100,000 small collectives and waits for every second one."""
    join(rank, world)
    x, in_flight = torch.zeros(4), []
    for i in range(100_000):
        work = dist.all_reduce(x, async_op=True)
        if i % 2:
            work.wait()
        in_flight = [*in_flight[-7:], work]
    for work in in_flight:
        work.wait()


def fork(rank: int, world: int) -> None:
    """Forks before the group is made: the child trains alone, then the parent."""
    child = os.fork()
    if child == 0:
        join(0, 1)
        dist.all_reduce(torch.ones(3))
        dist.barrier()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    Path(sys.argv[1], "rendezvous").unlink()
    join(rank, world)
    dist.all_reduce(torch.ones(7))


def issued_at_exit(rank: int, world: int) -> None:
    """Ends the process while Works are open and threads issue collectives."""
    join(rank, world)

    def issue() -> None:
        while True:
            dist.all_reduce(torch.ones(1), async_op=True)

    for _ in range(2):
        threading.Thread(target=issue, daemon=True).start()
    until(lambda: len(records()) > 10)


def main() -> None:
    global ARMED, RECORD, SEEN, BEFORE, PAIR
    rank, world, folder = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), sys.argv[1]
    torch.set_num_threads(1)
    if len(sys.argv) > 2:
        ARMED = oddrank.arm({"__main__": "lines", "*": "off"})
        RECORD = ARMED.path
        print(RECORD, flush=True)
        globals()[sys.argv[2]](rank, world)
        if sys.argv[2] == "issued_at_exit":
            return  # otherwise gloo sometimes ends the process with SIGABRT
    else:
        join(rank, world)
        if world == 2:
            BEFORE = train(recorded=False)
        ARMED = oddrank.arm({"*": "off"})
        RECORD = ARMED.path
        stop()
        if world == 4:
            pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
            if rank < 2:  # the name of the other pair's group, again
                pairs[0]._set_group_desc("tensor parallel")
            PAIR = pairs[rank // 2]
        wrong = {}
        for name, run in SCENARIOS[world].items():
            SEEN = len(collectives.read(RECORD))
            wrong[name] = wrong_in(name, run, rank)
        Path(folder, f"rank{rank}.json").write_text(json.dumps(wrong))
    dist.destroy_process_group()


main()
