"""Makes the numbers of trainings, healthy or with one fault: losses and throughputs by their shape.

Noise of 0.1 to 5 %, seasons, heavy tails, noise that remembers or grows, warm-up ramps, rewards of
reinforcement learning (below 0, too), epochs, numbers of few digits.
"""

import math
import random
from dataclasses import dataclass

SHAPES = ("flat", "falling", "seasonal", "heavy", "memory", "ramp", "rl", "epochs", "digits",
          "growing noise")  # fmt: skip
FAULTS = ("step", "drift", "spike")


@dataclass
class Series:
    """values: losses, or throughputs. at: the row of the fault; 0: there is none."""

    shape: str
    is_loss: bool
    values: list[float]
    fault: str = "none"
    at: int = 0

    def text(self) -> str:
        """Returns the log of a training whose other numbers are healthy."""
        losses = self.values if self.is_loss else [2.5] * len(self.values)
        speeds = [150.0] * len(self.values) if self.is_loss else self.values
        return "".join(
            f" iteration {n:8d}/{len(losses):8d} | elapsed time per iteration (ms): 1000.0 |"
            f" throughput per GPU (TFLOP/s/GPU): {speed:.4f} | lm loss: {loss:.6E} |\n"
            for n, (loss, speed) in enumerate(zip(losses, speeds, strict=True), 1)
        )


def healthy(seed: int, *, is_loss: bool, rows: int = 0) -> Series:
    chance = random.Random(f"{seed} {is_loss}")
    shape = SHAPES[seed % len(SHAPES)]
    rows = rows or int(10 ** chance.uniform(2, 3.7))
    return Series(shape, is_loss, _made(chance, shape, is_loss, rows)[0])


def sick(seed: int) -> Series:
    """Returns a series with a fault that stands out of its noise, in the middle of the rows."""
    chance = random.Random(f"sick {seed}")
    shape, fault = SHAPES[seed % len(SHAPES)], FAULTS[seed % len(FAULTS)]
    is_loss = fault == "spike" or shape in ("rl", "epochs") or chance.random() < 0.5
    rows = int(10 ** chance.uniform(2.3, 3.7))
    values, levels, noise = _made(chance, shape, is_loss, rows)
    at = int(rows * chance.uniform(0.35, 0.75))
    if fault == "spike":
        fall, size = chance.randint(4, 12), chance.uniform(0.5, 1.5)
        for n in range(at, min(rows, at + 3 * fall)):
            share = math.exp(-(n - at) / fall)
            values[n] += 0.8 * share if shape == "rl" else size * share * values[n]
        return Series(shape, is_loss, values, fault, at)
    size = chance.uniform(0.3, 0.9) if is_loss else max(chance.uniform(0.08, 0.3), 3 * noise)
    if fault == "drift":
        size = max(size, 0.25)
    lasts = 1 if fault == "step" else max(20, rows - at - max(40, rows // 20))
    for n in range(at, rows):
        share = min(1.0, (n - at + 1) / lasts)
        if shape == "rl":
            values[n] += 0.4 * share
        elif is_loss:  # which falls no more
            values[n] *= levels[at] / levels[n] * math.exp(size * share)
        else:
            values[n] *= math.exp(-size * share)
    return Series(shape, is_loss, values, fault, at)


def _made(
    chance: random.Random, shape: str, is_loss: bool, rows: int
) -> tuple[list[float], list[float], float]:
    """Returns the values, the levels below their noise, and the deviation of that."""
    low, high = (-2.3, -1.3) if is_loss else (-3, -1.5)
    noise = 10 ** chance.uniform(low, high)
    memory = chance.choice((0, 0, 0.5, 0.8) if shape == "memory" else (0, 0, 0.3))
    period, wave = chance.uniform(20, rows / 6), chance.uniform(0.01, 0.03)
    ramp = max(5, rows // chance.randint(10, 40))
    epoch = max(20, rows // chance.randint(3, 8))
    last = chance.gauss(0, noise)
    values, levels = [], []
    for n in range(rows):
        grown = noise * (1 + 2 * n / rows if shape == "growing noise" else 1)
        last = memory * last + chance.gauss(0, grown * math.sqrt(1 - memory**2))
        away = last
        if shape == "heavy" and chance.random() < 0.02:
            away += abs(chance.gauss(0, 0.05)) if is_loss else -chance.uniform(0, 0.7)
        if shape == "seasonal":
            away += wave * math.sin(2 * math.pi * n / period)
        if not is_loss:
            level = 150 * (min(1, 0.3 + 0.7 * n / ramp) if shape == "ramp" else 1)
        elif shape == "epochs":
            level = 1.2 * math.exp(-0.25 * (n // epoch))
        else:
            level = 2.5 if shape == "flat" else 2 + 9 * (1 + n / 20) ** -0.6
        value = level * math.exp(away)
        if shape == "rl" and is_loss:
            value = -0.02 + chance.gauss(0, 0.025) + 0.3 * away - 0.1 * n / rows
        if shape == "digits":
            value = float(f"{value:.2g}") if is_loss else round(value)
        values.append(value)
        levels.append(level)
    return values, levels, (max(noise, 0.03) if shape == "heavy" else noise)
