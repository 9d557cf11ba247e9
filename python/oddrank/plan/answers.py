"""Makes the answers of the commands: results with sources, and tables. Pure, without click."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from oddrank import plan
from oddrank.errors import OddrankError
from oddrank.finding import number_text
from oddrank.plan.downtime import DALY, YOUNG
from oddrank.plan.hyperparameters import MEGATRON_STD
from oddrank.plan.memory import ACTIVATIONS, RECOMPUTE, ZERO
from oddrank.plan.peaks import DTYPES, Gpu

COLUMNS = ("what", "value", "unit", "how")
"""Column names of the results on the screen."""
_DAY, _HOUR, _GIB = 86400, 3600, 1 << 30


@dataclass(frozen=True)
class Row:
    """A result. key: its name in the JSON. value: a number, or a time such as 2027-03-30 16:58.

    how: the formula, or its source.
    """

    key: str
    what: str
    value: float | str
    unit: str
    how: str


@dataclass(frozen=True)
class Answer:
    """Results, and perhaps a table above them.

    most_rows: of a longer table, the screen shows the first and the last rows.
    """

    rows: Sequence[Row] = ()
    columns: Sequence[str] = ()
    table: Sequence[Sequence[object]] = ()
    most_rows: int = 20

    def data(self) -> dict[str, Any]:
        """Returns `data` of the JSON."""
        return {
            "results": {r.key: {"value": r.value, "unit": r.unit, "how": r.how} for r in self.rows},
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.table],
        }

    def shown_rows(self) -> list[tuple[str, ...]]:
        """Returns the results as texts under COLUMNS."""
        return [(r.what, str(_text(r.value)), r.unit, r.how) for r in self.rows]

    def shown_table(self) -> list[Sequence[object]]:
        """Returns the table without the rows in the middle of a long one: the JSON has all."""
        texts = [[_text(cell) for cell in row] for row in self.table]
        if len(texts) <= self.most_rows:
            return [*texts]
        half = self.most_rows // 2
        gap = ["...", *["-"] * (len(self.columns) - 1)]
        return [*texts[:half], gap, *texts[-half:]]


def _text(cell: object) -> object:
    return number_text(cell) if isinstance(cell, float) else cell


def speeds(model: float, hardware: float, how: str, peak: plan.Peak | None) -> list[Row]:
    """Returns the rows of speeds in TFLOP/s of a GPU, and their shares of its peak."""
    again = f"{how}; with recomputation" if hardware > model else how
    rows = [
        Row("hardware_tflops", "hardware FLOPs", hardware, "TFLOP/s a GPU", again),
        Row("model_tflops", "model FLOPs", model, "TFLOP/s a GPU", how),
    ]
    if peak is not None:
        why = f"of {peak.tflops:g} TFLOP/s ({peak.gpu}, {peak.dtype}, dense: {peak.source})"
        for key, name, value in (("hfu", "HFU", hardware), ("mfu", "MFU", model)):
            share = 100 * plan.utilization(value, peak.tflops)
            rows.append(Row(key, name, share, "%", why))
    return rows


def tokens(seq: int, batch: int, seconds: float) -> Row:
    """Returns the tokens per second of a whole job. seconds: of an iteration."""
    return Row("tokens_per_second", "tokens", seq * batch / seconds, "1/s", "batch x seq / seconds")


def peaks(rows: Sequence[Gpu] = plan.PEAKS) -> Answer:
    """Returns the table of peaks: a row a GPU, in TFLOP/s by data type."""
    columns = ("GPU", *DTYPES, "source", "note")
    table = [
        (row.name, *(getattr(row, kind) or None for kind in DTYPES), row.source, row.note)
        for row in rows
    ]
    return Answer((), columns, table, most_rows=len(table))


def initial_values(hidden: int) -> Answer:
    """Returns the standard deviations of initial weights that rules give for a hidden size."""
    rows = [
        Row(_key(rule), rule, std(hidden), "", source)
        for rule, (std, source) in plan.INIT_STDS.items()
    ]
    default = "Megatron-LM's default: too large for large models, says the handbook"
    return Answer([*rows, Row("megatron_default", "for any h", MEGATRON_STD, "", default)])


def _key(formula: str) -> str:
    """Returns a formula as a name for the JSON: sqrt(2 / (5 h)) is sqrt_2_over_5_h."""
    return re.sub(r"[^a-z0-9]+", "_", formula.replace("/", "over")).strip("_")


def ramp_up(ramped: plan.RampUp, samples: int, train_samples: int | None) -> Answer:
    """Returns the stages of a ramp-up of the batch size. samples: its length."""
    stages = list(ramped.stages())
    last = stages[-1]
    how = "Megatron-LM, num_microbatches_calculator.py"
    rows = [
        Row("iterations", "ramp-up", last.first_iteration, "iterations", how),
        Row("samples", "ramp-up", last.first_sample, "samples", how),
        Row("step_samples", "each step lasts", samples / max(1, ramped.steps), "samples", how),
        Row("most_replicas", "most MBS x DP", ramped.most_replicas, "", "gcd of start, increment"),
    ]
    if train_samples is not None:
        count = ramped.iterations(train_samples)
        rows.append(Row("train_iterations", "training", count, "iterations", how))
    columns = ("batch size", "from iteration", "from sample", "iterations")
    table = [(s.batch_size, s.first_iteration, s.first_sample, s.iterations) for s in stages]
    return Answer(rows, columns, table)


def time_left(
    count: float, each: float, hours_per_day: float, overhead: float, start: datetime
) -> Answer:
    """Returns the time for `count` iterations of `each` seconds, and when they end.

    overhead: further work, in percent. start: when they begin, with its zone.
    """
    left = plan.run_seconds(count, each, hours_per_day=hours_per_day, overhead=overhead / 100)
    how = f"at {hours_per_day:g} hours a day, {overhead:g} % more work"
    try:
        end = (start + timedelta(seconds=left)).astimezone(timezone.utc)
    except OverflowError:
        raise OddrankError(
            f"{left / _DAY:.4g} days end after the year 9999: check the numbers"
        ) from None
    began = start.astimezone(timezone.utc)
    return Answer([
        Row("days", "time left", left / _DAY, "days", how),
        Row("hours", "time left", left / _HOUR, "hours", how),
        Row("end", "end", f"{end:%Y-%m-%d %H:%M}", "UTC", f"from {began:%Y-%m-%d %H:%M} UTC on"),
    ])  # fmt: skip


def parallel(
    world: int, *, tp: int, pp: int, cp: int, mbs: int, gbs: int | None, gpus_per_node: int | None
) -> Answer:
    """Returns the replicas that the ranks make, and what follows for the global batch size."""
    count = plan.data_parallel(world, tp, pp, cp)
    multiple = "multiple of MBS x DP"
    rows = [
        Row("dp", "replicas (DP)", count, "", "world / (TP x PP x CP)"),
        Row("gbs_multiple", "global batch size", mbs * count, "samples", multiple),
    ]
    if gbs is not None:
        micro = plan.microbatches(gbs, mbs, count)
        rows.append(Row("microbatches", "micro-batches", micro, "a replica", "GBS / (MBS x DP)"))
        idle = 100 * plan.bubble(pp, micro)
        rows.append(Row("bubble", "pipeline bubble", idle, "%", "(p - 1) / (m + p - 1), 1F1B"))
    if gpus_per_node is not None:
        nodes = tp * pp * cp / gpus_per_node
        rows.append(Row("nodes", "nodes of a replica", nodes, "", "TP x PP x CP / GPUs per node"))
    return Answer(rows)


def state_by_stage(params: float, *, tp: int, pp: int, dp: int, adam: str) -> Answer:
    """Returns the memory of a GPU for the training's state, a row a ZeRO stage."""
    columns = ("ZeRO", "parameters GiB", "gradients GiB", "optimizer GiB", "together GiB")
    table = []
    for zero in range(4):
        state = plan.state_memory(params, tp=tp, pp=pp, dp=dp, zero=zero, adam=adam)
        parts = (state.parameters, state.gradients, state.optimizer, state.total)
        table.append((zero, *(part / _GIB for part in parts)))
    saved = params * plan.ADAM[adam].saved / _GIB
    how = f"all but gradients; stages: {ZERO}"
    return Answer([Row("checkpoint", "checkpoint", saved, "GiB", how)], columns, table)


def activations(
    layers: int, hidden: int, heads: int, seq: int, mbs: int, *, tp: int, sequence_parallel: bool
) -> list[Row]:
    """Returns the memory of a GPU for activations, a row a kind of recomputation."""
    rows = []
    for kind in RECOMPUTE:
        held = plan.activation_memory(
            layers, hidden, heads, seq, mbs,
            tp=tp, sequence_parallel=sequence_parallel, recompute=kind,
        )  # fmt: skip
        what = f"activations, recompute {kind}"
        rows.append(Row(f"activations_{kind}", what, held / _GIB, "GiB a GPU", ACTIVATIONS))
    return rows


def checkpoints(
    save: float, mtbf: float, *, restart: float, seconds: float | None, every: float | None
) -> Answer:
    """Returns the best intervals of checkpoints, and the share of the time that each one loses.

    mtbf: of the whole job. seconds: of an iteration. every: an interval in iterations to compare.
    """
    found = [("Young", plan.young_interval(save, mtbf)), ("Daly", plan.daly_interval(save, mtbf))]
    if every is not None and seconds is not None:
        found.append((f"every {every:g} iterations", every * seconds))
    columns = ("rule", "interval s", "iterations", "lost %")
    table = [
        (
            name,
            interval,
            interval / seconds if seconds else None,
            100 * plan.lost_share(interval, save, mtbf, restart),
        )
        for name, interval in found
    ]
    best = max(1 - plan.lost_share(interval, save, mtbf, restart) for _, interval in found)
    rows = [
        Row("mtbf", "failures", mtbf / _HOUR, "hours apart", f"{YOUNG}; {DALY}"),
        Row("training", "time for training", 100 * best, "%", _progress(save, restart, mtbf)),
    ]
    return Answer(rows, columns, table)


def _progress(save: float, restart: float, mtbf: float) -> str:
    """Returns whether a job comes to train between its failures."""
    if save + restart < mtbf:
        return "at the best of these intervals"
    return (
        f"the job makes hardly any progress: a save and a restart take {save + restart:g} s,"
        f" and a failure comes every {mtbf:g} s"
    )
