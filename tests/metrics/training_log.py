"""Logs of trainings for the tests of `oddrank metrics`, and what is found in them."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from golden import Golden
from oddrank import _native
from oddrank.finding import Finding
from oddrank.metrics import findings

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "metrics"))
import simulated_series as series
from simulated_training import Fault, Training

__all__ = ["Fault", "Training", "series"]


def judged(text: str | Iterable[str]) -> Any:
    """Returns a _core.Metrics that has read this log."""
    job = _native.core().Metrics([1_790_000_000_000_000_000])
    whole = text if isinstance(text, str) else "".join(f"{line}\n" for line in text)
    job.feed(0, whole.encode())
    job.end(0)
    job.flush()
    return job


def found(text: str | Iterable[str]) -> list[Finding]:
    job = judged(text)
    return findings.findings(job.suspects(), ["log"], job.figures()["speed_unit"])


def told(found: Iterable[Finding]) -> str:
    """Returns all that a report says of findings."""
    lines = []
    for one in found:
        lines.append(f"  {one.condition} ({one.cause}, {one.who}): {one.what}")
        evidence = [f"{point.text} [{point.source}]" for point in one.evidence]
        lines.append(f"    {one.confidence.level}: {'; '.join([one.confidence.why, *evidence])}")
        lines += [f"    next: {' | '.join(one.next)}"] * bool(one.next)
    return "".join(f"{line}\n" for line in lines)


def check(golden: Golden, rows: dict[str, tuple[Any, ...]]) -> None:
    """Judges each log: name -> (log, cause, ...); its sentences are in a golden file."""
    said, wrong = [], []
    for name, (log, *causes) in rows.items():
        made = found(log)
        if [one.cause for one in made] != causes:
            wrong.append(f"{name}: {[one.cause for one in made]}, not {causes}")
        said.append(f"{name}\n{told(made)}")
    assert not wrong, "\n".join(wrong)
    golden("".join(said))


def stamp(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"2026-01-{1 + hours // 24:02d} {hours % 24:02d}:{rest // 60:02d}:{rest % 60:02d}"


def kinds(text: str | Iterable[str]) -> list[str]:
    return [finding.cause for finding in found(text)]


def line(iteration: int, loss: object = 2.5, time: str = "", **fields: object) -> str:
    """Returns a line of Megatron-LM. fields: by their keys, _ for a space."""
    given: dict[str, object] = {"grad norm": 0.5, "elapsed time per iteration (ms)": 1000.0}
    given |= {name.replace("_", " "): value for name, value in fields.items()}
    stamp = f" [{time}]" if time else ""
    more = "".join(f" {name}: {value} |" for name, value in given.items())
    lm = "" if loss is None else f" lm loss: {loss} |"
    return f"{stamp} iteration {iteration:8d}/  100000 |{more}{lm}"


def lines(first: int, last: int, loss: object = None, **fields: Any) -> str:
    """Returns lines of iterations; loss: by default that of a training that is well."""
    numbers = ((n, 2.5 + n % 3 / 100 if loss is None else loss) for n in range(first, last))
    return "".join(f"{line(n, value, **fields)}\n" for n, value in numbers)


def bloom(last: int, rows: int = 600, seed: int = 1) -> list[str]:
    """Returns healthy lines as of BLOOM-176B, up to iteration `last`: the noise of its log.

    The chronicles quote a few lines around each fault; what the job did before is made here.
    """
    training = Training(seed, rows=rows)
    chance = training.chance
    made = []
    for iteration in range(last - rows + 1, last + 1):
        slow = 1 + 0.012 * chance.random() if chance.random() < 0.03 else 1.0
        step = 105.2 * (1 + chance.gauss(0, 0.002)) * slow
        made.append(
            f"[default7]: iteration {iteration:8d}/  115311 | consumed samples: {iteration * 1670}"
            f" | consumed tokens: {iteration * 3420160} | elapsed time per iteration (s):"
            f" {step:.2f} | learning rate: 5.279E-05 | global batch size:  2048 | lm loss:"
            f" {2.2 * (1 + chance.gauss(0, 0.008)):.6E} | grad norm:"
            f" {0.17 * 2.718 ** chance.gauss(0, 0.2):.3f} | num zeros: 0.0 | number of skipped"
            f" iterations:   0 | number of nan iterations:   0 | samples per second:"
            f" {2048 / step:.3f} | TFLOPs: {149.1 * 105.16 / step:.2f} |"
        )
    return made
