"""`oddrank plan`: the sums of a training run, each with the source of its formula."""

import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import click

from oddrank import plan, render
from oddrank.cli import Command, CommandGroup, Seconds, json_option
from oddrank.plan import answers
from oddrank.plan.answers import Answer
from oddrank.plan.flops import HANDBOOK, MEGATRON
from oddrank.plan.memory import check_shape
from oddrank.plan.peaks import DTYPES, matching
from oddrank.report import envelope, write_json


class Count(click.FloatRange):
    """A number above 0 such as 52B, 1.005K, 2048 or 1.5e9, read exactly.

    whole: no fraction. least, most: the smallest and the largest that are taken.
    """

    name = "number"

    def __init__(self, *, whole: bool = False, least: int = 0, most: float = 1e21) -> None:
        super().__init__(min=least, min_open=not least)
        self._whole, self._least, self._most = whole, least, Decimal(most)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value).strip()
        power = {"K": 3, "M": 6, "B": 9, "G": 9, "T": 12}.get(text[-1:].upper(), 0)
        try:
            number = Decimal(text[:-1] if power else text).scaleb(power)
        except ArithmeticError:
            number = Decimal(0)
        fits = number.is_finite() and float(number) > 0 and self._least <= number <= self._most
        if not fits or (self._whole and number != number.to_integral_value()):
            kind = "whole number" if self._whole else "number"
            bound = f"of at least {self._least}" if self._least else "above 0"
            self.fail(f"{text[:40]!r} is no {kind} {bound} like 2048, 145M or 52B", param, ctx)
        return int(number) if self._whole else float(number)


_WHOLE = Count(whole=True, most=10**15)
_AMOUNT = Count()
_PARAMETERS = Count(least=1)


def _count(name: str, text: str, **more: Any) -> Callable[[Command], Command]:
    """Makes an option for a whole number."""
    return click.option(name, type=_WHOLE, help=text, **more)


_BATCH = _count("--batch", "Global batch size, in samples.", required=True)
_SEQ = _count("--seq", "Sequence length, in tokens.", required=True)
_GPUS = _count("--gpus", "Number of GPUs.", required=True)
_TP = _count("--tp", "Tensor parallel size.", default=1, show_default=True)
_PP = _count("--pp", "Pipeline parallel size.", default=1, show_default=True)
_GPU = click.option("--gpu", metavar="NAME", help="GPU, for its peak: a100, 'H100 SXM', mi300x.")
_DTYPE = click.option(
    "--dtype", type=click.Choice(DTYPES), default="bf16", show_default=True, help="Type of matmuls."
)
_PEAK = click.option(
    "--peak", "given_peak", type=_AMOUNT, metavar="TFLOPS", help="Dense peak, instead of --gpu."
)
_RECOMPUTE = click.option(
    "--recompute", is_flag=True, help="Activations are recomputed (full activation checkpointing)."
)


@click.group(cls=CommandGroup)
def command() -> None:
    """Does the sums of a training run: speed, memory, batch sizes, checkpoints.

    \b
    Numbers may be written as 52B, 145M, 2048 or 9_765_625; times as 105, 105s, 5m, 168h or 7d.

    \b
      oddrank plan flops --params 52B --seq 2048 --batch 1024 --seconds 127 --gpus 64 --recompute
      oddrank plan memory --params 7.5B --dp 64
    """


@command.command()
@click.option("--params", type=_PARAMETERS, metavar="NUMBER", help="Parameters of the whole model.")
@_count("--layers", "Instead of --params: layers, for the exact formula.")
@_count("--hidden", "Hidden size, with --layers.")
@_count("--vocab", "Vocabulary, padded, with --layers.")
@_SEQ
@_BATCH
@click.option("--seconds", type=Seconds(min=1e-6), required=True, help="Time of an iteration.")
@_GPUS
@_RECOMPUTE
@_GPU
@_DTYPE
@_PEAK
@json_option
def flops(
    *,
    params: float | None,
    layers: int | None,
    hidden: int | None,
    vocab: int | None,
    seq: int,
    batch: int,
    seconds: float,
    gpus: int,
    recompute: bool,
    gpu: str | None,
    dtype: str,
    given_peak: float | None,
    json_path: str | None,
) -> None:
    """Shows TFLOPs per GPU from the time of an iteration, and MFU and HFU with --gpu."""
    if params is not None and not (layers or hidden or vocab):
        how = HANDBOOK
        model, hardware = (
            plan.flops_of_parameters(params, seq, batch, recompute=again)
            for again in (False, recompute)
        )
    elif params is None and layers and hidden and vocab:
        how = MEGATRON
        model, hardware = (
            plan.flops_of_layers(layers, hidden, seq, vocab, batch, recompute=again)
            for again in (False, recompute)
        )
    else:
        raise click.UsageError("give --params, or --layers, --hidden and --vocab")
    rows = answers.speeds(
        plan.tflops(model, seconds, gpus),
        plan.tflops(hardware, seconds, gpus),
        how,
        _peak(gpu, dtype, given_peak),
    )
    _show("flops", Answer([*rows, answers.tokens(seq, batch, seconds)]), json_path)


@command.command()
@click.option("--tflops", type=_AMOUNT, metavar="TFLOPS", help="Measured speed of one GPU.")
@_RECOMPUTE
@_GPU
@_DTYPE
@_PEAK
@json_option
def mfu(
    *,
    tflops: float | None,
    recompute: bool,
    gpu: str | None,
    dtype: str,
    given_peak: float | None,
    json_path: str | None,
) -> None:
    """Shows which share of its peak a GPU reaches; without --tflops: the table of peaks, or with
    --gpu a GPU's rows of it.

    --recompute: the speed counts recomputation, as Megatron-LM logged it for BLOOM. The model's
    share is then 3/4 of it.
    """
    if tflops is None:
        if given_peak is not None:
            raise click.UsageError("--peak needs --tflops, the measured speed")
        _show("mfu", answers.peaks(matching(gpu) if gpu is not None else plan.PEAKS), json_path)
        return
    peak = _peak(gpu, dtype, given_peak)
    if peak is None:
        raise click.UsageError("give --gpu or --peak")
    model = tflops * 3 / 4 if recompute else tflops
    _show("mfu", Answer(answers.speeds(model, tflops, "given", peak)), json_path)


@command.command()
@_count("--world", "Ranks of the job.", required=True)
@_TP
@_PP
@_count("--cp", "Context parallel size.", default=1, show_default=True)
@_count("--mbs", "Micro-batch size.", default=1, show_default=True)
@_count("--gbs", "Global batch size: checks that it divides.")
@_count("--gpus-per-node", "GPUs of a node.")
@json_option
def dp(
    *,
    world: int,
    tp: int,
    pp: int,
    cp: int,
    mbs: int,
    gbs: int | None,
    gpus_per_node: int | None,
    json_path: str | None,
) -> None:
    """Shows the replicas of a job, and which global batch sizes are possible."""
    found = answers.parallel(
        world, tp=tp, pp=pp, cp=cp, mbs=mbs, gbs=gbs, gpus_per_node=gpus_per_node
    )
    _show("dp", found, json_path)
    if gpus_per_node is not None and tp > gpus_per_node:
        said = f"TP {tp} spans nodes of {gpus_per_node} GPUs: keep TP inside a node"
        render.line(f"oddrank: {said}", sys.stderr)


@command.command()
@click.option("--params", type=_PARAMETERS, required=True, metavar="NUMBER", help="Parameters.")
@_TP
@_PP
@_count("--dp", "Replicas.", default=1, show_default=True)
@click.option("--adam", type=click.Choice(list(plan.ADAM)), default="mixed", show_default=True,
              help="Precision of training.")  # fmt: skip
@_count("--layers", "For activations: layers.")
@_count("--hidden", "For activations: hidden size.")
@_count("--heads", "For activations: attention heads.")
@_count("--seq", "For activations: sequence length.")
@_count("--mbs", "For activations: micro-batch size.", default=1, show_default=True)
@click.option("--sequence-parallel", is_flag=True, help="For activations: sequence parallelism.")
@json_option
def memory(
    *,
    params: float,
    tp: int,
    pp: int,
    dp: int,
    adam: str,
    layers: int | None,
    hidden: int | None,
    heads: int | None,
    seq: int | None,
    mbs: int,
    sequence_parallel: bool,
    json_path: str | None,
) -> None:
    """Shows the memory of a GPU for parameters, gradients, optimizer by ZeRO stage; activations."""
    found = answers.state_by_stage(params, tp=tp, pp=pp, dp=dp, adam=adam)
    if layers and hidden and heads and seq:
        check_shape(layers, heads, tp=tp, pp=pp)
        # The fullest stage, as if all were like it.
        more = answers.activations(
            -(-layers // pp) * pp,
            hidden,
            heads,
            seq,
            mbs,
            tp=tp,
            sequence_parallel=sequence_parallel,
        )
        found = replace(found, rows=[*found.rows, *more])
    elif layers or hidden or heads or seq:
        raise click.UsageError("activations need --layers, --hidden, --heads and --seq")
    _show("memory", found, json_path)


@command.command()
@click.option("--save", type=Seconds(min=1e-3), required=True, help="Time that a save stops it.")
@click.option("--mtbf", type=Seconds(min=1), required=True,
              help="Mean time between failures, of the job or with --nodes of a node.")  # fmt: skip
@_count("--nodes", "Nodes: the job fails as often as they do together.", default=1)
@click.option("--restart", type=Seconds(min=0), default=0, help="Time from a failure to training.")
@click.option("--seconds", type=Seconds(min=1e-6), help="Time of an iteration.")
@click.option("--every", type=_AMOUNT, metavar="ITERATIONS", help="Your interval, to compare.")
@json_option
def ckpt(
    *,
    save: float,
    mtbf: float,
    nodes: int,
    restart: float,
    seconds: float | None,
    every: float | None,
    json_path: str | None,
) -> None:
    """Shows how often to save a checkpoint, and which share of time failures and saves cost."""
    if every is not None and seconds is None:
        raise click.UsageError("--every needs --seconds, the time of an iteration")
    found = answers.checkpoints(save, mtbf / nodes, restart=restart, seconds=seconds, every=every)
    _show("ckpt", found, json_path)


def _peak(gpu: str | None, dtype: str, given: float | None) -> plan.Peak | None:
    if gpu is not None and given is not None:
        raise click.UsageError("give --gpu or --peak, not both")
    if given is not None:
        return plan.Peak("your GPU", dtype, given, "given")
    return plan.peak(gpu, dtype) if gpu is not None else None


def _show(tool: str, answer: Answer, json_path: str | None) -> None:
    """Prints the table and the results, and writes both to the JSON."""
    if json_path != "-":
        if answer.columns:
            render.table(answer.columns, answer.shown_table(), sys.stdout)
        if answer.columns and answer.rows:
            render.line("", sys.stdout)
        if answer.rows:
            render.table(answers.COLUMNS, answer.shown_rows(), sys.stdout)
    if json_path is not None:
        write_json(envelope(f"plan {tool}", {}, answer.data()), json_path)
