"""`oddrank plan`: the sums of a training run, each with the source of its formula."""

import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import click

from oddrank import gpus as table
from oddrank import render
from oddrank.cli import Command, CommandGroup, Seconds, json_option, renamed, some_of
from oddrank.finding import duration, number_text
from oddrank.plan import formulas
from oddrank.report import envelope, write_json

_HOUR, _GIB = 3600, 1 << 30


class Row(NamedTuple):
    """A result. key: its name in the JSON. how: the formula, or its source."""

    key: str
    what: str
    value: float
    unit: str
    how: str


class Peak(NamedTuple):
    """A dense peak in TFLOP/s, and the GPU's name."""

    tflops: float
    of: str


class Count(click.FloatRange):
    """A number above 0 such as 52B, 1.005K, 2048 or 1.5e9, read exactly.

    whole: no fraction. least, most: the smallest and the largest accepted.
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
            bounds = f"{'from' if self._least else 'above'} {self._least} up to {self._most:.0e}"
            self.fail(f"{text[:40]!r} is no {kind} {bounds} like 2048, 145M or 52B", param, ctx)
        return int(number) if self._whole else float(number)


_WHOLE = Count(whole=True, most=10**15)
_AMOUNT = Count()
_PARAMETERS = Count(least=1)


def _count(name: str, text: str, **more: Any) -> Callable[[Command], Command]:
    return click.option(name, type=_WHOLE, help=text, **more)


_SEQ = _count("--seq", "Sequence length, in tokens.", required=True)
_TP = _count("--tp", "Tensor parallel size.", default=1, show_default=True)
_PP = _count("--pp", "Pipeline parallel size.", default=1, show_default=True)
_CP = _count("--cp", "Context parallel size.", default=1, show_default=True)
_GPUS = _count("--gpus", "GPUs of the job, one for each rank.", required=True)
_GPU = click.option("--gpu", metavar="NAME", shell_complete=some_of(*(g.name for g in table.GPUS)),
                    help="GPU, for its peak: a100, 'H100 SXM', mi300x.")  # fmt: skip
_DTYPE = click.option(
    "--dtype", type=click.Choice(table.DTYPES), help="Type of matmuls.  [default: bf16]"
)
_PEAK = click.option(
    "--peak", "given_peak", type=_AMOUNT, metavar="TFLOPS", help="Dense peak, instead of --gpu."
)
_RECOMPUTE = click.option(
    "--recompute", is_flag=True, help="Count recomputation (full activation checkpointing)."
)


@click.group(cls=CommandGroup, context_settings=renamed(world="gpus", batch="gbs"))
def command() -> None:
    """Calculate speed, memory, batch sizes and checkpoint intervals of a training run.

    \b
    Numbers may be written as 52B, 145M, 2048 or 9_765_625; times as 105, 105s, 5m, 168h or 7d.

    \b
    Examples:
      oddrank plan flops --params 52B --seq 2048 --gbs 1024 --seconds 127 --gpus 64 --recompute
      oddrank plan memory --params 7.5B --dp 64

    Exit codes: 0; 2 for impossible values. These commands do not judge.
    """


@command.command()
@click.option("--params", type=_PARAMETERS, metavar="NUMBER",
              help="Parameters; of a mixture of experts those that a token passes. Or give the"
              " shape: --layers, --hidden, --vocab.")  # fmt: skip
@_count("--layers", "Number of layers. With --hidden, attention is counted.")
@_count("--hidden", "Hidden size; heads x their size, if that differs.")
@_count("--vocab", "Size of the padded vocabulary.")
@_count("--heads", "Attention heads of the shape, with --kv-heads.")
@_count("--kv-heads", "Key and value heads of the shape (GQA).")
@_count("--ffn", "Width of a gated feed-forward layer of the shape.  [default: GPT's]")
@_count("--experts", "Experts of the shape that a token passes.", default=1, show_default=True)
@click.option("--causal", is_flag=True, help="Count half of attention, as flash attention does.")
@_SEQ
@_count("--gbs", "Global batch size, in samples.", required=True)
@click.option("--seconds", type=Seconds(min=1e-6), required=True, help="Time of an iteration.")
@_GPUS
@_RECOMPUTE
@_GPU
@_DTYPE
@_PEAK
@json_option
def flops(
    *, params: float | None, layers: int | None, hidden: int | None, vocab: int | None,
    heads: int | None, kv_heads: int | None, ffn: int | None, experts: int, causal: bool, seq: int,
    gbs: int, seconds: float, gpus: int, recompute: bool, gpu: str | None, dtype: str | None,
    given_peak: float | None, json_path: str | None,
) -> None:  # fmt: skip
    """Show TFLOPs per GPU from the time of an iteration, and MFU and HFU with --gpu."""
    if bool(layers) != bool(hidden):
        raise click.UsageError("give --layers and --hidden together, for attention")
    if params is None:
        if not (layers and hidden and vocab):
            raise click.UsageError("give --params, or --layers, --hidden and --vocab")
        if kv_heads and not heads:
            raise click.UsageError("--kv-heads needs --heads")
        params = formulas.parameters(
            layers, hidden, vocab, heads=heads or 1, kv_heads=kv_heads, ffn=ffn, experts=experts
        )
    elif heads or kv_heads or ffn or experts > 1:
        raise click.UsageError("--params has counted --heads, --kv-heads, --ffn and --experts")
    model, hardware = (
        formulas.flops(
            params, seq, gbs, layers=layers or 0, width=hidden or 0, vocabulary=vocab or 0,
            causal=causal, recompute=again,
        ) / (seconds * gpus * 1e12)
        for again in (False, recompute)
    )  # fmt: skip
    how = formulas.PALM if layers else f"{formulas.WITHOUT_ATTENTION}: give --layers and --hidden"
    rate = Row("tokens_per_second", "tokens", seq * gbs / seconds, "1/s", "GBS x seq / seconds")
    speeds = _speeds(model, hardware, how, _peak(gpu, dtype, given_peak))
    _show("flops", [*speeds, rate], json_path)


@command.command()
@click.option("--tflops", type=_AMOUNT, metavar="TFLOPS", help="Measured speed of one GPU.")
@_RECOMPUTE
@_GPU
@_DTYPE
@_PEAK
@json_option
def mfu(
    *, tflops: float | None, recompute: bool, gpu: str | None, dtype: str | None,
    given_peak: float | None, json_path: str | None,
) -> None:  # fmt: skip
    """Show the share of its peak that a GPU reaches.

    Without --tflops, shows the table of peaks; with --gpu, only that GPU's rows. With --recompute,
    the speed counts recomputation, as Megatron-LM logged it for BLOOM; the model's share is 3/4.
    """
    if tflops is None:
        if given_peak is not None or dtype is not None:
            raise click.UsageError("--peak and --dtype need --tflops, the measured speed")
        rows = [
            (row.name, *(getattr(row, kind) or None for kind in table.DTYPES), row.source, row.note)
            for row in (table.matching(gpu) if gpu is not None else table.GPUS)
        ]
        _show("mfu", (), json_path, ("GPU", *table.DTYPES, "source", "note"), rows)
        return
    peak = _peak(gpu, dtype, given_peak)
    if peak is None:
        raise click.UsageError("give --gpu or --peak")
    model = tflops * 3 / 4 if recompute else tflops
    _show("mfu", _speeds(model, tflops, "given", peak), json_path)


@command.command()
@_GPUS
@_TP
@_PP
@_CP
@_count("--mbs", "Micro-batch size.", default=1, show_default=True)
@_count("--gbs", "Global batch size, in samples. Checks that it divides.")
@_count("--gpus-per-node", "GPUs of a node.")
@json_option
def dp(
    *, gpus: int, tp: int, pp: int, cp: int, mbs: int, gbs: int | None,
    gpus_per_node: int | None, json_path: str | None,
) -> None:  # fmt: skip
    """Show the replicas of a job, and which global batch sizes are possible."""
    count = formulas.data_parallel(gpus, tp, pp, cp)
    rows = [
        Row("dp", "replicas (DP)", count, "", "GPUs / (TP x PP x CP)"),
        Row("gbs_multiple", "GBS is a multiple of", mbs * count, "samples", "MBS x DP"),
    ]
    if gbs is not None:
        micro = formulas.microbatches(gbs, mbs, count)
        rows.append(Row("microbatches", "micro-batches", micro, "a replica", "GBS / (MBS x DP)"))
        idle = 100 * formulas.bubble(pp, micro)
        rows.append(Row("bubble", "pipeline bubble", idle, "%", "(p - 1) / (m + p - 1), 1F1B"))
    if gpus_per_node is not None:
        nodes = tp * pp * cp / gpus_per_node
        rows.append(Row("nodes", "nodes of a replica", nodes, "", "TP x PP x CP / GPUs per node"))
    _show("dp", rows, json_path)
    if gpus_per_node is not None and gpus_per_node % tp:
        said = f"some groups of TP {tp} span nodes of {gpus_per_node} GPUs: keep TP inside a node"
        render.line(f"oddrank: {said}", sys.stderr)


@command.command()
@click.option("--params", type=_PARAMETERS, required=True, metavar="NUMBER", help="Parameters.")
@_TP
@_PP
@_CP
@_count("--dp", "Data parallel size.", default=1, show_default=True)
@click.option("--adam", type=click.Choice(list(formulas.ADAM)), default="mixed", show_default=True,
              help="Precision of training.")  # fmt: skip
@_count("--layers", "For activations: layers.")
@_count("--hidden", "For activations: hidden size.")
@_count("--heads", "For activations: attention heads.")
@_count("--seq", "For activations: sequence length.")
@_count("--mbs", "For activations: micro-batch size.", default=1, show_default=True)
@click.option("--sequence-parallel", is_flag=True, help="For activations: sequence parallelism.")
@json_option
def memory(
    *, params: float, tp: int, pp: int, cp: int, dp: int, adam: str, layers: int | None,
    hidden: int | None, heads: int | None, seq: int | None, mbs: int, sequence_parallel: bool,
    json_path: str | None,
) -> None:  # fmt: skip
    """Show a GPU's memory: parameters, gradients, optimizer by ZeRO stage; activations."""
    columns = ("ZeRO", "parameters GiB", "gradients GiB", "optimizer GiB", "together GiB")
    stages = []
    for zero in range(4):
        # FSDP and ZeRO split over the ranks of context parallelism, too.
        parts = formulas.state_memory(params, tp=tp, pp=pp, dp=dp * cp, zero=zero, adam=adam)
        stages.append((zero, *(part / _GIB for part in (*parts, sum(parts)))))
    held, _, optimizer = formulas.ADAM[adam]
    how = f"all but gradients; stages: {formulas.ZERO}"
    rows = [Row("checkpoint", "checkpoint", params * (held + optimizer) / _GIB, "GiB", how)]
    if layers and hidden and heads and seq:
        for kind in formulas.RECOMPUTE:
            bytes_ = formulas.activation_memory(
                layers, hidden, heads, seq, mbs, tp=tp, pp=pp, cp=cp,
                sequence_parallel=sequence_parallel, recompute=kind,
            )  # fmt: skip
            what = f"activations, recompute {kind}"
            how = formulas.ACTIVATIONS
            rows.append(Row(f"activations_{kind}", what, bytes_ / _GIB, "GiB a GPU", how))
    elif layers or hidden or heads or seq:
        raise click.UsageError("activations need --layers, --hidden, --heads and --seq")
    _show("memory", rows, json_path, columns, stages)


@command.command()
@click.option("--save", type=Seconds(min=1e-3), required=True, help="Time that a save stops it.")
@click.option("--mtbf", type=Seconds(min=1), required=True,
              help="Mean time between failures of the job; with --nodes, of a node.")  # fmt: skip
@_count("--nodes", "Number of nodes. The job fails if any of them fails.", default=1)
@click.option("--restart", type=Seconds(min=0), default=0, help="Time from a failure to training.")
@click.option("--seconds", type=Seconds(min=1e-6), help="Time of an iteration.")
@click.option("--every", type=_AMOUNT, metavar="ITERATIONS", help="Your interval, to compare.")
@json_option
def ckpt(
    *, save: float, mtbf: float, nodes: int, restart: float, seconds: float | None,
    every: float | None, json_path: str | None,
) -> None:  # fmt: skip
    """Show how often to save a checkpoint, and the share of time that failures and saves cost."""
    apart = mtbf / nodes
    intervals = [
        ("Young", formulas.young_interval(save, apart)),
        ("Daly", formulas.daly_interval(save, apart)),
    ]
    if every is not None:
        if seconds is None:
            raise click.UsageError("--every needs --seconds, the time of an iteration")
        intervals.append((f"every {every:g} iterations", every * seconds))
    lost = [100 * formulas.lost_share(interval, save, apart, restart) for _, interval in intervals]
    progress = "at the best of these intervals"
    if save + restart >= apart:
        progress = (
            "the job makes hardly any progress: a save and a restart take"
            f" {duration(save + restart)}, and a failure comes every {duration(apart)}"
        )
    rows = [
        Row("mtbf", "failures", apart / _HOUR, "hours apart", f"{formulas.YOUNG}; {formulas.DALY}"),
        Row("training", "time for training", 100 - min(lost), "%", progress),
    ]
    columns = ("rule", "interval s", "iterations", "lost %")
    cells = [
        (rule, interval, interval / seconds if seconds else None, share)
        for (rule, interval), share in zip(intervals, lost, strict=True)
    ]
    _show("ckpt", rows, json_path, columns, cells)


def _peak(gpu: str | None, dtype: str | None, given: float | None) -> Peak | None:
    if gpu is not None and given is not None:
        raise click.UsageError("give --gpu or --peak, not both")
    kind = dtype or "bf16"
    if given is not None:
        return Peak(given, f"your GPU, {kind}, dense: given")
    if gpu is None:
        return None
    row, tflops = table.peak(gpu, kind)
    return Peak(tflops, f"{row.name}, {kind}, dense: {row.source}")


def _speeds(model: float, hardware: float, how: str, peak: Peak | None) -> list[Row]:
    """Returns the rows of speeds in TFLOP/s of a GPU, and their shares of its peak."""
    again = f"{how}; with recomputation" if hardware > model else how
    rows = [
        Row("hardware_tflops", "hardware FLOPs", hardware, "TFLOP/s a GPU", again),
        Row("model_tflops", "model FLOPs", model, "TFLOP/s a GPU", how),
    ]
    for key, name, value in (("hfu", "HFU", hardware), ("mfu", "MFU", model)) if peak else ():
        assert peak is not None
        share = 100 * formulas.utilization(value, peak.tflops)
        rows.append(Row(key, name, share, "%", f"of {peak.tflops:g} TFLOP/s ({peak.of})"))
    return rows


def _show(
    tool: str, rows: Sequence[Row], json_path: str | None,
    columns: Sequence[str] = (), cells: Sequence[Sequence[object]] = (),
) -> None:  # fmt: skip
    def text(cell: object) -> object:
        return number_text(cell) if isinstance(cell, float) else cell

    if json_path != "-":
        if columns:
            render.table(columns, [[text(cell) for cell in row] for row in cells], sys.stdout)
        if columns and rows:
            render.line("", sys.stdout)
        if rows:
            shown = [(row.what, str(text(row.value)), row.unit, row.how) for row in rows]
            render.table(("what", "value", "unit", "how"), shown, sys.stdout)
    if json_path is not None:
        data = {
            "results": {r.key: {"value": r.value, "unit": r.unit, "how": r.how} for r in rows},
            "rows": [dict(zip(columns, row, strict=True)) for row in cells],
        }
        write_json(envelope(f"plan {tool}", {}, data), json_path)
