"""The stages of `bench run` on the ranks: connect, compare arrivals, then each pass."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from oddrank.bench import arrivals, native, split, verify
from oddrank.bench.backend import Backend, Operation
from oddrank.bench.c10d import C10d
from oddrank.bench.case import Case
from oddrank.bench.data import Connected, Devices, PassResult, Row, connected_of, devices_of
from oddrank.bench.plan import Budget, Pass, memory_of, reserve
from oddrank.bench.row import summarise
from oddrank.bench.sampling import Series, StoppingRule, measure
from oddrank.bench.split import Split
from oddrank.control.stages import AnyStage, Context, RunState, Skip, Stage
from oddrank.errors import OddrankError
from oddrank.finding import Finding
from oddrank.machine import device, nvml, settings
from oddrank.machine.device import usable_bytes
from oddrank.process_group import Group, connect

AUTO = "auto"
BACKENDS = ("nccl", "c10d")
TOO_LARGE = "not enough free memory"
NO_GPU = "the back end nccl needs a GPU for every rank"
# Reason why a case was not measured -> the option to change.
ADVICE = {TOO_LARGE: "give smaller --sizes", NO_GPU: "give --backend c10d"}
_BACKEND, _SERIES, _MEASURED, _RESERVED = "backend", "series", "measured", "reserved"
# A pass's own deadline: the whole budget, this many seconds more, and the time of its bytes at the
# speed below.
_PATIENCE = 60.0
_BYTES_PER_SECOND = 1e6
_MOST_IN_ALL = 20_000  # iterations of a case, in all passes


@dataclass(frozen=True)
class SweepOptions:
    """`target` relative error of the median, `budget` and `deadline` in seconds.

    backend: one of BACKENDS, or AUTO: the one that fits the device.
    register: how the back end nccl registers memory, "buffer", "window" or "".
    split: divides the ranks into groups that measure at once; None: one group of all.
    """

    target: float
    budget: float
    deadline: float
    backend: str = AUTO
    register: str = ""
    split: Split | None = None


def stages(passes: Sequence[Pass], options: SweepOptions) -> list[AnyStage]:
    """Returns the stages of a sweep: one for each pass, named as the pass."""
    cases = [one_pass.case for one_pass in passes if one_pass.number == 1]
    budget = Budget(options.budget, cases, passes[0].of)

    def plan_transport(run: RunState) -> str:
        _choose(options, run)  # refuses before the ranks connect
        return device.BACKENDS[device.choose(devices_of(run).values())]

    return [
        Stage("devices", options.deadline, measure=_see_devices),
        Stage("connect", options.deadline, _connect_as(options.split, cases), plan=plan_transport),
        *arrivals.stages(options.deadline, budget),
        *(_stage(one_pass, options, budget) for one_pass in passes),
    ]


def row_of(one_pass: Pass, run: RunState) -> Row:
    """Returns the row of a case from all its passes up to this one."""
    results: Mapping[int, PassResult] = run.of(one_pass.name)
    groups = split.groups_of(run)
    if len(groups) == 1:
        return summarise(one_pass.case, results, run.world)
    of_groups = [{rank: results[rank] for rank in ranks} for ranks in groups]
    rows = [summarise(one_pass.case, of, len(of)) for of in of_groups]
    return split.joined(rows, groups, [of[min(of)]["times"] for of in of_groups])


def _see_devices(context: Context[object]) -> Devices:
    context.step("import torch")
    return {**device.facts(context.launch), **settings.of_rank()}


def _connect_as(wanted: Split | None, cases: Sequence[Case]) -> Callable[[Context[str]], Connected]:
    def measure(context: Context[str]) -> Connected:
        world = connect(context, context.parameters)
        (limit,) = world.smallest([usable_bytes(world.computes_on, context.launch)])
        group, number = split.divide(world, wanted) if wanted else (world, 0)
        context.scratch[_MEASURED] = group
        context.scratch[_RESERVED] = reserve(cases, group.world, limit)
        return _connected(world, number)

    return measure


def _connected(group: Group, number: int) -> Connected:
    """Returns this rank's facts; `number` is its group's."""
    on_nccl, links = group.backend == "nccl", None
    nccl = group.torch.cuda.nccl.version() if on_nccl else None
    if on_nccl:
        uuid = group.torch.cuda.get_device_properties(group.device).uuid
        try:
            links = nvml.gpu_links(f"GPU-{uuid}")
        except OddrankError as error:
            links = {"unknown": str(error)}
    return {
        "transport": group.backend,
        "group": number,
        "gloo_interface": None if on_nccl else os.environ.get("GLOO_SOCKET_IFNAME", ""),
        "nccl": ".".join(map(str, nccl)) if nccl else None,
        "links": links,
    }


class _Plan(TypedDict):
    """seconds: as Budget.share."""

    transport: str
    backend: str
    seconds: tuple[float, float]


def _stage(one_pass: Pass, options: SweepOptions, budget: Budget) -> AnyStage:
    def make_plan(run: RunState) -> _Plan | Skip:
        if budget.is_over(one_pass.index):
            return Skip("its case needs no further pass, or there is no time for it")
        return {
            "transport": connected_of(run)[0]["transport"],
            "backend": _choose(options, run),
            "seconds": budget.share(one_pass.index),
        }

    def judge(run: RunState, results: Mapping[int, PassResult]) -> list[Finding]:
        if results[0]["over"]:
            budget.end(one_pass.index)
        seen = [r["mismatch"] for r in results.values() if r["mismatch"]]
        if not seen:
            return []
        views = {rank: result["wrong_ranks"] for rank, result in results.items()}
        return [verify.origin_of(run, one_pass.name, seen, views, split.groups_of(run))]

    seconds = _PATIENCE + options.budget + one_pass.case.bytes / _BYTES_PER_SECOND
    return Stage(
        one_pass.name, min(options.deadline, seconds),
        lambda context: _measure(context, one_pass, options), judge, make_plan,
        shown=False, keeps_results=False,
    )  # fmt: skip


def _choose(options: SweepOptions, run: RunState) -> str:
    """Returns the back end: of AUTO nccl if every rank can use it, else c10d.

    OddrankError if the ranks compute on GPUs and one lacks the part _cuda, which checks values
    there; if nccl or an option that needs it was given and a rank can't use it. A rank without a
    GPU of its own skips its nccl cases instead.
    """
    ranks = devices_of(run).values()
    on_gpus = device.choose(ranks) == device.GPU
    if on_gpus and (lacking := _first(facts["cuda_part"] for facts in ranks)):
        raise OddrankError(
            f"bench run checks every value on the GPU, over c10d too, and can't here: {lacking}"
        )
    obstacle = _first(facts["obstacle"] for facts in ranks)
    if options.backend == "nccl" and on_gpus and obstacle:
        raise OddrankError(f"the back end nccl can't be used: {obstacle}")
    if options.backend != AUTO:
        return options.backend
    if on_gpus and not obstacle:
        return "nccl"
    if options.register:
        why = obstacle if on_gpus else NO_GPU
        raise OddrankError(f"--register needs the back end nccl: {why}; leave the option out")
    return "c10d"


def _first(reasons: Iterable[str]) -> str:
    """Returns the first reason that is not empty; "" if there is none."""
    return next(filter(None, reasons), "")


def _measure(context: Context[_Plan], one_pass: Pass, options: SweepOptions) -> PassResult:
    """Measures one pass and returns this rank's result, which all ranks publish.

    times covers all passes so far: there may be no time for another. Checks the values in the first
    pass, and again after the last one.
    """
    parameters, case = context.parameters, one_pass.case
    result: PassResult = {
        "backend": parameters["backend"], "skipped": None, "mismatch": None, "wrong_ranks": [],
        "times": [], "mean": None, "iterations": 0, "over": True,
    }  # fmt: skip
    world = connect(context, parameters["transport"])
    group: Group = context.scratch[_MEASURED]
    if parameters["backend"] == "nccl" and group.backend != "nccl":
        return {**result, "skipped": NO_GPU}
    backend = _backend(context, group, options)
    result["backend"] = backend.name
    every: dict[int, Series] = context.scratch.setdefault(_SERIES, {})
    series = every.get(one_pass.index)
    if series is None:
        result["skipped"] = _why_not(world, group, backend, case)
        if result["skipped"] is not None:
            return result
        series = every[one_pass.index] = Series()
    operation = backend.prepare(case)
    is_wrong = one_pass.number == 1 and _verify(group, backend, case, operation, result)
    operation.ready()
    world.barrier()  # all groups measure at once
    rule = StoppingRule(options.target, *parameters["seconds"], most=_MOST_IN_ALL // one_pass.of)
    others = None if group is world else world
    measure(series, group, operation, case, rule, world=others)
    # All ranks agreed on the figures: they decide alike. Groups must agree on each group's own.
    is_known = series.is_known(options.target)
    if others is not None:
        is_known, is_wrong = others.smallest([is_known])[0] > 0, others.largest([is_wrong])[0] > 0
    is_last = one_pass.number == one_pass.of or rule.takes_all or is_known
    if is_last and one_pass.number > 1:
        _verify(group, backend, case, operation, result)
    result["over"] = is_wrong or is_last
    if group.rank == 0:
        result["times"] = series.samples
    result["mean"], result["iterations"] = series.mean, series.iterations
    if result["over"]:
        del every[one_pass.index]
    return result


def _verify(
    group: Group, backend: Backend, case: Case, operation: Operation, result: PassResult
) -> bool:
    """Checks the values, on all ranks together. Returns whether any rank saw a wrong one."""
    seen = verify.verify(group, backend, case, operation)
    wrong = verify.localise(group, backend, case, seen)
    result["mismatch"], result["wrong_ranks"] = seen, wrong or []
    return wrong is not None


def _why_not(world: Group, group: Group, backend: Backend, case: Case) -> str | None:
    """Returns None if every rank can run the case, else why this rank can't, "" if it could.
    All ranks call it together: another rank's GPU or NCCL may be older."""
    refused = backend.refuses(case)
    if refused is None and memory_of(case, group.world) > group.context.scratch[_RESERVED]:
        refused = TOO_LARGE
    (anywhere,) = world.largest([refused is not None])
    return refused or "" if anywhere else None


def _backend(context: Context[_Plan], group: Group, options: SweepOptions) -> Backend:
    """Returns the plan's back end with its memory, made on first use."""
    held: Backend | None = context.scratch.get(_BACKEND)
    if held is None:
        is_nccl = context.parameters["backend"] == "nccl"
        held = native.connect(group, register=options.register) if is_nccl else C10d(group)
        held.reserve(context.scratch[_RESERVED])
        context.scratch[_BACKEND] = held
    return held
