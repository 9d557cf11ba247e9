"""What `bench run` does on the ranks: connect, compare arrivals, then a stage for each visit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oddrank.bench import arrivals, expect, findings, native, place, setup, topology, verify
from oddrank.bench.arrival import arrival
from oddrank.bench.budget import Budget
from oddrank.bench.c10d import C10d
from oddrank.bench.case import Case
from oddrank.bench.collectives import COLLECTIVES
from oddrank.bench.group import Group, connect
from oddrank.bench.memory import free_host_memory
from oddrank.bench.pace import Pace
from oddrank.bench.plan import AUTO, Task, memory_of, reserve
from oddrank.bench.published import Expected
from oddrank.bench.row import Row, summarise
from oddrank.bench.timing import measure
from oddrank.bench.visits import Series, Visit
from oddrank.control.stages import Context, Rounds, Skip, Stage
from oddrank.errors import OddrankError
from oddrank.finding import Finding

if TYPE_CHECKING:
    from oddrank.bench.backend import Backend
    from oddrank.launch import Launch

TOO_LARGE = "not enough free memory"
NO_GPU = "the back end nccl needs a GPU for every rank"
_BACKEND, _SERIES = "backend", "series"
# A visit's own deadline: far above what its budget allows, and this much for every byte.
_PATIENCE = 60.0
_BYTES_PER_SECOND = 1e6
# Iterations of a case, in all visits.
_MOST_IN_ALL = 20_000


@dataclass(frozen=True)
class Options:
    """How to measure: `target` relative error of the median, `budget` and `deadline` seconds.

    Of the back end nccl: `graph` operations in a CUDA graph (0: none), buffers registered.
    """

    target: float
    budget: float
    deadline: float
    graph: int = 0
    register: bool = False


def stages(visits: Sequence[Visit], options: Options) -> list[Stage]:
    """The table of a sweep; the stage of a visit has its name, and its results end with it."""
    tasks = list(dict.fromkeys(visit.task for visit in visits))
    times = max((visit.of for visit in visits), default=1)
    budget = Budget(options.budget, [task.case for task in tasks], times)
    reserved: dict[str, int] = {}
    return [
        Stage("devices", options.deadline, measure=_see_devices),
        Stage("connect", options.deadline, measure=_connect, plan=_plan_transport),
        *arrivals.stages(options.deadline, budget),
        *(_stage(visit, tasks, options, budget, reserved) for visit in visits),
    ]


def row_of(visit: Visit, rounds: Rounds) -> Row:
    """The row of a case by the visit that is just through and those before it, with what is
    expected of it."""
    row = summarise(visit.task.case, rounds.of(visit.name), rounds.world)
    return row.expecting(expectation(visit.task, rounds, row))


def is_over(visit: Visit, rounds: Rounds) -> bool:
    """Whether the visit that is just through was the last one to its case."""
    return bool(rounds.of(visit.name)[0]["over"])


def expectation(task: Task, rounds: Rounds, row: Row) -> Expected | None:
    """What this case should reach on this job's topology, where that is known."""
    facts = topology.facts(rounds, row.backend)
    return expect.expected(facts, task.case, row.footprint) if facts else None


def _see_devices(context: Context) -> dict[str, Any]:
    context.step("import torch")
    return {**place.facts(context.launch), **setup.of_rank()}


def _plan_transport(rounds: Rounds) -> str:
    return place.BACKENDS[place.choose(rounds.of("devices").values())]


def _connect(context: Context) -> dict[str, Any]:
    group = connect(context, context.parameters)
    (limit,) = group.smallest([_free_bytes(group, context.launch)])
    return {"transport": group.backend, "limit": limit, **topology.of_rank(group)}


def _stage(
    visit: Visit,
    tasks: Sequence[Task],
    options: Options,
    budget: Budget,
    reserved: dict[str, int],
) -> Stage:
    task = visit.task

    def plan(rounds: Rounds) -> dict[str, Any] | Skip:
        if budget.is_over(visit.place):
            return Skip("its case needs no further visit, or there is no time for it")
        connected = rounds.of("connect")[0]
        if task.backend not in reserved:
            same = [other.case for other in tasks if other.backend == task.backend]
            reserved[task.backend] = reserve(same, rounds.world, connected["limit"])
        return {
            "transport": connected["transport"],
            "backend": _choose(task.backend, rounds),
            "seconds": budget.share(visit.place),
            "reserve": reserved[task.backend],
        }

    def measure_case(context: Context) -> dict[str, Any]:
        return _measure(context, visit, options)

    def judge(rounds: Rounds) -> list[Finding]:
        results = rounds.of(visit.name)
        if is_over(visit, rounds):
            budget.end(visit.place)
        seen = [r["mismatch"] for r in results.values() if r["mismatch"]]
        if not seen:
            return []
        # Named is only who is wrong in the eyes of all: who receives badly sees everybody wrong.
        agreed = set.intersection(*(set(r["wrong_ranks"]) for r in results.values()))
        if agreed:
            return [findings.wrong_contribution(rounds, task.name, sorted(agreed), seen)]
        return [findings.not_localised(rounds, task.name, seen)]

    seconds = _PATIENCE + options.budget + task.case.bytes / _BYTES_PER_SECOND
    return Stage(
        visit.name, min(options.deadline, seconds), measure_case, judge, plan,
        shown=False, kept=False,
    )  # fmt: skip


def _choose(name: str, rounds: Rounds) -> str:
    """nccl itself where every rank can have it, else torch.distributed.

    OddrankError where it was asked for, and a rank lacks the part or something is in its way.
    """
    on_gpus = rounds.of("connect")[0]["transport"] == "nccl"
    ranks = rounds.of("devices").values()
    lacking = [why for facts in ranks if (why := facts["cuda_part"] or facts["obstacle"])]
    if name == "nccl" and on_gpus and lacking:
        raise OddrankError(f"the back end nccl can't be used: {lacking[0]}")
    if name != AUTO:
        return name
    return "nccl" if on_gpus and not lacking else "c10d"


def _measure(context: Context, visit: Visit, options: Options) -> dict[str, Any]:
    """What every rank publishes of a case after another visit.

    Of all visits so far, for there may be no time for another: times, in microseconds, agreed, a
    list a visit, only rank 0's; and arrival. over: no further visit is needed.
    """
    parameters, case = context.parameters, visit.task.case
    result: dict[str, Any] = {
        "backend": parameters["backend"], "skipped": None, "mismatch": None, "wrong_ranks": [],
        "times": [], "arrival": None, "over": True, "footprint": None,
    }  # fmt: skip
    group = connect(context, parameters["transport"])
    if parameters["backend"] == "nccl" and group.backend != "nccl":
        return {**result, "skipped": NO_GPU}
    backend = _backend(context, group, parameters, options)
    result["backend"] = backend.name
    result["skipped"] = _why_not(group, backend, case, parameters["reserve"])
    if result["skipped"] is not None:
        return result
    operation = backend.prepare(case)
    result["footprint"] = operation.footprint
    seen = verify.verify(group, backend, case, operation)
    result["wrong_ranks"] = verify.localise(group, backend, case, seen)
    result["mismatch"] = verify.as_payload(seen)
    operation.ready()
    group.barrier()
    pace = Pace(options.target, *parameters["seconds"], most=_MOST_IN_ALL // visit.of)
    every: dict[str, Series] = context.kept.setdefault(_SERIES, {})
    series = every.setdefault(visit.task.name, Series())
    series.add(measure(group, operation, case, pace), arrivals.clock(context))
    over = seen is not None or visit.number == visit.of
    if group.rank == 0:
        over = over or pace.takes_all or series.is_known(options.target)
        result["times"] = series.times
    (result["over"],) = map(bool, group.largest([over]))
    if COLLECTIVES[case.collective].together and group.world > 1:
        came = arrival(group, series.stamps, (0, series.clock_error))
        result["arrival"] = came.in_short() if came else None
    if result["over"]:
        del every[visit.task.name]
    return result


def _why_not(group: Group, backend: "Backend", case: Case, reserved: int) -> str | None:
    """None: every rank can run it. Else all skip it: why this one can't, "" if it could.

    All ranks call it together, for another's GPU or NCCL may be older than this one's.
    """
    refused = backend.refuses(case)
    if refused is None and memory_of(case, group.world) > reserved:
        refused = TOO_LARGE
    (anywhere,) = group.largest([refused is not None])
    return refused or "" if anywhere else None


def _backend(
    context: Context, group: Group, parameters: dict[str, Any], options: Options
) -> "Backend":
    """The back end of the plan with its memory; another's is given back before."""
    name: str = parameters["backend"]
    kept: tuple[str, Backend] | None = context.kept.get(_BACKEND)
    if kept is None or kept[0] != name:
        if kept is not None:
            kept[1].reserve(0)
        made: Backend = C10d(group)
        if name == "nccl":
            made = native.connect(group, graph=options.graph, register=options.register)
        made.reserve(parameters["reserve"])
        kept = context.kept[_BACKEND] = (name, made)
    return kept[1]


def share_of_host(free: float, launch: "Launch") -> float:
    """Bytes that a rank on the CPU may take of those; gloo takes as much again for itself."""
    return free * 0.25 / launch.local_world


def _free_bytes(group: Group, launch: "Launch") -> float:
    """Bytes that this rank may take: of its own GPU, or its part of what the host has left."""
    if group.backend == "nccl":
        return float(group.torch.cuda.mem_get_info(group.device)[0]) * 0.8
    return share_of_host(free_host_memory(), launch)
