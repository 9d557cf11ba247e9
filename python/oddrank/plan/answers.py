"""Makes the answers of the commands: results with sources, and tables. Pure, without click."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oddrank import plan
from oddrank.finding import number_text
from oddrank.plan.downtime import DALY, YOUNG
from oddrank.plan.memory import ACTIVATIONS, RECOMPUTE, ZERO
from oddrank.plan.peaks import DTYPES, Gpu

COLUMNS = ("what", "value", "unit", "how")
"""Column names of the results on the screen."""
_HOUR, _GIB = 3600, 1 << 30


@dataclass(frozen=True)
class Row:
    """A result. key: its name in the JSON. how: the formula, or its source."""

    key: str
    what: str
    value: float
    unit: str
    how: str


@dataclass(frozen=True)
class Answer:
    """Results, and perhaps a table above them."""

    rows: Sequence[Row] = ()
    columns: Sequence[str] = ()
    table: Sequence[Sequence[object]] = ()

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
        """Returns the table as texts."""
        return [[_text(cell) for cell in row] for row in self.table]


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
    return Answer((), columns, table)


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
