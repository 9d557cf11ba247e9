"""Makes the log of a training, healthy or with one fault, as frameworks print it.

Each seed is another job: pace, noise and its memory, outliers, warm-up, evaluations, checkpoints
(with and without a line), sequence lengths that depend on the data, planned restarts, a loss scale
that adapts, batches that grow, log intervals of 1, 10 and 100.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

START = datetime(2026, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Fault:
    """spike: the loss's factor. drop: share of the throughput. stall: minutes. nan: rows."""

    kind: str = "none"
    size: float = 0.0
    at: float = 0.7
    """Share of the rows after which it begins."""


@dataclass
class Row:
    """The numbers of one line."""

    iteration: int
    total: int
    time: datetime
    step_s: float
    loss: float
    grad_norm: float
    lr: float
    batch: int
    samples: int
    tflops: float
    skipped: int = 0
    scale: float = 1.0
    ranks: int = 1
    before: list[str] = field(default_factory=list)
    """Lines that come before it."""


class Memory:
    """Noise that remembers: an AR(1) of deviation `sd`."""

    def __init__(self, chance: random.Random, sd: float, memory: float) -> None:
        self._chance, self._memory = chance, memory
        self._step = sd * math.sqrt(1 - memory**2)
        self._value = chance.gauss(0, sd)

    def next(self, scale: float = 1.0) -> float:
        self._value = self._memory * self._value + self._chance.gauss(0, self._step)
        return self._value * scale


class Training:
    """A job: its properties are drawn from the seed."""

    def __init__(self, seed: int, fault: Fault | None = None, rows: int = 0) -> None:
        self.chance = c = random.Random(seed)
        self.fault = fault or Fault()
        self.form = c.choice(list(FORMS))
        self.interval = c.choice((1, 1, 10, 100))
        drawn = int(10 ** c.uniform(2.3, 3.6))
        self.rows = rows or drawn
        self.step_s = 10 ** c.uniform(-0.5, 2) / (1 if self.interval == 1 else 5)
        average = math.sqrt(self.interval)
        self.pace = Memory(c, 10 ** c.uniform(-3, -1.6), c.choice((0, 0, 0.5, 0.8)))
        self.lengths = c.uniform(0.1, 0.4) / average if c.random() < 0.25 else 0.0
        self.outliers = c.choice((0, 0, 0.003, 0.015))
        self.outlier = c.uniform(0.03, 1.0)
        self.noise = Memory(c, c.uniform(0.005, 0.05) / average, c.choice((0, 0.3, 0.6)))
        self.heavy = c.random() < 0.3
        self.grad = Memory(c, c.uniform(0.05, 0.35), c.choice((0, 0.3, 0.8)))
        self.grad_outliers = c.choice((0, 0.002, 0.01))
        self.evaluate = self._every(0.6)
        self.evaluation_s = self.step_s * c.uniform(5, 100)
        self.says_evaluation = c.random() < 0.8
        if not self.says_evaluation:  # one that takes longer says something
            self.evaluation_s = min(self.evaluation_s, 1200)
        self.checkpoint = self._every(0.8)
        self.checkpoint_s = c.uniform(5, 240)
        self.says_checkpoint = c.random() < 0.8
        self.slow_after = c.randint(1, 5) if c.random() < 0.3 else 0
        self.planned = c.random() < 0.2
        self.scaled = c.random() < 0.3
        self.grows = c.random() < 0.1
        self.ranks = c.choice((1, 1, 1, 8)) if self.form == "torchtitan" else 1

    def _every(self, likely: float) -> int:
        """Returns how many rows lie between two evaluations or checkpoints; 0: there are none."""
        if self.chance.random() > likely:
            return 0
        unit = {1: (50, 100, 250, 500), 10: (10, 25, 50), 100: (5, 10, 20)}[self.interval]
        return self.chance.choice(unit)

    def lines(self) -> Iterator[str]:
        for row in self.each():
            yield from row.before
            yield from FORMS[self.form](row)

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines())

    def each(self) -> Iterator[Row]:
        """Yields the rows of the log."""
        c, now = self.chance, START
        harm = Harm(self.fault, self.rows, self.interval, c)
        total = self.rows * self.interval
        warm = max(3, self.rows // 50)
        scale = 2.0**32 if self.scaled else 1.0
        overflow = c.randint(3, 12) if self.scaled else 0
        samples, slow, low = 0, 0, 0.0
        for n in range(self.rows):
            before: list[str] = []
            pause = 0.0
            if self.evaluate and n and n % self.evaluate == 0:
                pause += self.evaluation_s * c.uniform(0.9, 1.2)
                if self.says_evaluation:
                    before.append(f" validation loss at iteration {n * self.interval} | 2.3 |")
            if self.checkpoint and n and n % self.checkpoint == 0:
                pause += self.checkpoint_s * c.uniform(0.7, 1.5)
                slow, low = self.slow_after, c.uniform(0.02, 0.15)
                if self.says_checkpoint:
                    before.append(f"saving checkpoint at iteration {n * self.interval} to /c")
                if self.planned and n % (3 * self.checkpoint) == 0:
                    pause += c.uniform(600, 7200)
                    before.append("[before the start of training step] datetime: 2026-01-01")
            factor = math.exp(self.pace.next())
            factor *= math.exp(c.gauss(0, self.lengths)) if self.lengths else 1.0
            if c.random() < self.outliers:
                factor *= 1 + self.outlier * c.random()
            if slow:
                slow, factor = slow - 1, factor * (1 + low)
            if n < 3:
                factor *= 1 + 3 / (n + 1)
            step = self.step_s * factor * harm.slower(n)
            pause += harm.pause(n)
            now += timedelta(seconds=step * self.interval + pause)
            batch = 256 * (1 + min(7, 8 * n // self.rows)) if self.grows else 2048
            samples += batch * self.interval
            skipped = 0
            if self.scaled and (n < overflow or c.random() < self.interval / 2000):
                skipped, scale = 1, scale / 2
            loss, grad = self._loss(n), self._grad(n, warm)
            loss, grad = loss * harm.loss(n), grad * harm.grad(n)
            lr = 3e-4 * min(1.0, (n + 1) / warm) * (1 - 0.9 * n / self.rows)
            tflops = 15_500 / 105 * batch / 2048 * self.step_s / step
            yield Row((n + 1) * self.interval, total, now, step, loss, grad, lr, batch, samples,
                      tflops, skipped, scale, self.ranks, before)  # fmt: skip

    def _loss(self, n: int) -> float:
        noise = self.noise.next()
        if self.heavy and self.chance.random() < 0.01:
            noise += self.chance.uniform(-3, 3) * 0.03 / math.sqrt(self.interval)
        return (2 + 9 * (1 + n * self.interval / 50) ** -0.6) * math.exp(noise)

    def _grad(self, n: int, warm: int) -> float:
        noise = self.grad.next()
        if self.chance.random() < self.grad_outliers:
            noise += math.log(self.chance.uniform(2, 8))
        return (0.2 + 6 * math.exp(-3 * n / warm)) * math.exp(noise)


class Harm:
    """The effect of a fault on a row."""

    def __init__(self, fault: Fault, rows: int, interval: int, chance: random.Random) -> None:
        self._fault = fault
        # Checkpoints and evaluations come at round iterations: a stall comes anywhere.
        self.at = int(rows * fault.at)
        every = 50 if interval == 1 else 5
        while fault.kind == "stall" and (self.at + 1) % every in (0, 1, 2):
            self.at += 1
        self._rise = chance.randint(2, 5)
        self._fall = chance.uniform(4, 12)

    def loss(self, n: int) -> float:
        since = n - self.at
        if self._fault.kind == "nan" and 0 <= since < self._fault.size:
            return math.nan
        if self._fault.kind != "spike" or since < 0:
            return 1.0
        return 1 + (self._fault.size - 1) * math.exp(-since / self._fall)

    def grad(self, n: int) -> float:
        """The grad norm grows some rows before the loss does."""
        since = n - self.at + self._rise
        if self._fault.kind != "spike" or since < 0:
            return 1.0
        rising = min(1.0, (since + 1) / self._rise)
        return math.exp(rising * 5 * math.exp(-max(0, n - self.at) / self._fall))

    def slower(self, n: int) -> float:
        lasts = self._fault.kind == "drop" and n >= self.at
        return 1 / (1 - self._fault.size) if lasts else 1.0

    def pause(self, n: int) -> float:
        return 60 * self._fault.size if self._fault.kind == "stall" and n == self.at else 0.0


def megatron(row: Row) -> Iterator[str]:
    skipped = row.skipped
    loss = "" if skipped else f"lm loss: {row.loss:.6E} | "
    grad = "" if skipped else f"grad norm: {row.grad_norm:.3f} | "
    yield (
        f" [{row.time:%Y-%m-%d %H:%M:%S}] iteration {row.iteration:8d}/{row.total:8d} | consumed"
        f" samples: {row.samples:12d} | elapsed time per iteration (ms): {row.step_s * 1e3:.1f} |"
        f" throughput per GPU (TFLOP/s/GPU): {row.tflops:.1f} | learning rate: {row.lr:.6E} |"
        f" global batch size: {row.batch:5d} | {loss}loss scale: {row.scale:.1f} | {grad}number of"
        f" skipped iterations: {skipped:3d} | number of nan iterations:   0 |"
    )


def deepspeed(row: Row) -> Iterator[str]:
    yield (
        f"[default7]: iteration {row.iteration:8d}/{row.total:8d} | consumed samples:"
        f" {row.samples:12d} | consumed tokens: {row.samples * 2048:12d} | elapsed time per"
        f" iteration (s): {row.step_s:.2f} | learning rate: {row.lr:.3E} | global batch size:"
        f" {row.batch:5d} | lm loss: {row.loss:.6E} | grad norm: {row.grad_norm:.3f} | num zeros:"
        f" 0.0 | number of skipped iterations: {row.skipped:3d} | number of nan iterations:   0 |"
        f" samples per second: {row.batch / row.step_s:.3f} | TFLOPs: {row.tflops:.2f} |"
    )


def thousands(value: float) -> str:
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def nanotron(row: Row) -> Iterator[str]:
    yield (
        f"{row.time:%m/%d/%Y %H:%M:%S} [INFO|DP=0|PP=1|TP=0|node]: iteration: {row.iteration} /"
        f" {row.total} | consumed_tokens: {thousands(row.samples * 2048.0)} |"
        f" time_per_iteration_ms: {thousands(row.step_s * 1e3)} | tokens_per_sec:"
        f" {thousands(row.batch * 2048 / row.step_s)} | global_batch_size: {row.batch} |"
        f" grad_norm: {row.grad_norm:.3g} | lm_loss: {row.loss:.3g} | lr: {row.lr:.3g} |"
        f" model_tflops_per_gpu: {row.tflops:.3g} | eta: 1 day"
    )


def torchtitan(row: Row) -> Iterator[str]:
    for rank in range(row.ranks):
        yield (
            f"[rank{rank}]:[titan] {row.time:%Y-%m-%d %H:%M:%S},000 - root - INFO - \x1b[31mstep:"
            f" {row.iteration:2}  \x1b[32mloss: {row.loss:7.4f}  \x1b[38;2;180;60;0mgrad_norm:"
            f" {row.grad_norm:7.4f}  \x1b[36mmemory: 66.91GiB(37.51%)  \x1b[34mtps:"
            f" {round(row.batch * 2048 / row.step_s):,}  \x1b[36mtflops: {row.tflops:.2f} "
            f" \x1b[35mmfu: {row.tflops / 9.89:.2f}%\x1b[39m"
        )


def trainer(row: Row) -> Iterator[str]:
    since = (row.time - START).total_seconds()
    clock = f"{int(since // 3600)}:{int(since // 60) % 60:02d}:{int(since) % 60:02d}"
    share = 100 * row.iteration // row.total
    yield (
        f"\r {share}%|###   | {row.iteration}/{row.total} [{clock}<9:59:59,  1.87s/it]"
        f"{{'loss': '{row.loss:.4g}', 'grad_norm': {row.grad_norm:.6g}, 'learning_rate':"
        f" {row.lr:.6g}, 'epoch': {row.iteration / row.total:.2f}}}"
    )


def ezpz(row: Row) -> Iterator[str]:
    yield (
        f"[{row.time:%Y-%m-%d %H:%M:%S},063715][I][ezpz/train:325] iter={row.iteration}"
        f" loss={row.loss:.6f} dt={row.step_s:.6f} loss/mean={row.loss:.6f}"
        f" loss/max={row.loss * 1.01:.6f} loss/min={row.loss * 0.99:.6f} loss/std=0.01"
    )


def llm_c(row: Row) -> Iterator[str]:
    yield (
        f"step {row.iteration:4d}/{row.total} | loss {row.loss:7.6f} (+0.10z)| norm"
        f" {row.grad_norm:6.4f} (-0.20z)| lr {row.lr:.2e} | {row.step_s * 1e3:.2f} ms | 45.3%"
        f" bf16 MFU | {row.batch * 2048 / row.step_s:.0f} tok/s"
    )


def nanochat(row: Row) -> Iterator[str]:
    yield (
        f"step {row.iteration:05d}/{row.total:05d} (0.05%) | loss: {row.loss:.6f} | grad norm:"
        f" {row.grad_norm:.4f} | lrm: 1.00 | dt: {row.step_s * 1e3:.2f}ms | tok/sec:"
        f" {int(row.batch * 2048 / row.step_s):,} | mfu: 45.30 | total time: 1.00m"
    )


FORMS: dict[str, Callable[[Row], Iterator[str]]] = {
    "megatron": megatron,
    "deepspeed": deepspeed,
    "nanotron": nanotron,
    "torchtitan": torchtitan,
    "trainer": trainer,
    "ezpz": ezpz,
    "llm.c": llm_c,
    "nanochat": nanochat,
}
