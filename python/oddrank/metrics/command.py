"""`oddrank metrics`: says from a training's log when loss or speed went wrong."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import IO, TextIO

import click

from oddrank import cli, pictures, render
from oddrank.errors import OddrankError
from oddrank.inputs import Notes, files, growing
from oddrank.metrics import findings, report
from oddrank.metrics.feeding import Logs, events
from oddrank.report import write_json

_EXAMPLES = """Find in a training's log when loss or speed went wrong.

\b
Reads the lines of Megatron-LM, NeMo, DeepSpeed, torchtitan, nanotron, HF Trainer,
Lightning, composer, OLMo, verl, TRL, nanoGPT, MLX and others, JSON lines, CSV and
files of TensorBoard. Finds spikes and rises of the loss, growing grad norms, drops in
throughput, stalls, NaN, skipped iterations, slow ranks, and work that restarts lost.
LOGs are of one training, in any order if their lines name the time, else the oldest
first; also packed, folders or pipes. - is stdin.

\b
Examples:
  oddrank metrics slurm-*.out
  oddrank metrics main_log.txt --plot loss.png --csv rows.csv
  oddrank metrics main_log.txt --follow --json now.json

Exit codes: 0 healthy; 1 odd or unknown; 2 not readable; 3 incomplete.
"""
_CSV_ADVICE = "give --csv a file in a folder you can write"
_MONTH = 30 * 86400.0


@click.command(help=_EXAMPLES)
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option("--follow", is_flag=True,
              help="Go on as the logs grow or are rotated; print each finding once, as it appears."
              " SIGINT, SIGTERM or --deadline ends it.")  # fmt: skip
@click.option("--deadline", type=cli.Seconds(0, _MONTH), metavar="SECONDS",
              help="Time limit for --follow. Default: 30 days.")  # fmt: skip
@click.option("--pattern", default="", metavar="TEXT",
              help="Read only lines of this form, as 'it#{iteration} L={loss} {step_seconds} s'."
              " The names are those of --csv.")  # fmt: skip
@click.option("--plot", "picture", metavar="OUT.png",
              help="Draw loss, grad norm and throughput, with restarts and findings: .png, .svg"
              " or .pdf.")  # fmt: skip
@click.option("--csv", "csv_path", metavar="FILE", callback=cli.writable(_CSV_ADVICE),
              help="Write all rows as CSV, with a column for each number.")  # fmt: skip
@cli.json_option
@cli.fail_on_option
def command(
    *, logs: tuple[str, ...], follow: bool, deadline: float | None, pattern: str,
    picture: str | None, csv_path: str | None, json_path: str | None, fail_on: frozenset[str],
) -> int:  # fmt: skip
    outputs = {"--plot": picture, "--csv": csv_path, "--json": json_path}
    cli.refuse_shared(outputs)
    cli.refuse_inputs(outputs, logs)
    if deadline is not None and not follow:
        raise click.UsageError("--deadline ends --follow: give both or neither")
    if picture:
        pictures.check_target(picture, "--plot")
        pictures.matplotlib()  # fails early without it
    if follow:
        growing.check(logs)
    notes = Notes()
    records = None if follow else events
    with files.texts(logs, notes, peel=False, may_be_empty=follow, records=records) as items:
        cli.refuse_inputs(outputs, (str(item.path) for item in items))
        for note in notes.lines:
            render.line(note, sys.stderr)
        opened = Logs(items, follow=follow, csv=csv_path is not None, pattern=pattern)
        news = _News(opened, notes, json_path)
        with _csv(csv_path) as csv:
            ends: AbstractContextManager[list[int]] = (
                growing.until_signal() if follow else nullcontext([])
            )
            with ends as told:
                every = opened.follow(_MONTH if deadline is None else deadline, told)
                for _ in every if follow else opened.read():
                    if csv:
                        csv.write(opened.job.csv())
                        csv.flush()
                    if follow:
                        news.say(sys.stderr if "-" in (json_path, csv_path) else sys.stdout)
            opened.finish()
            if csv:
                csv.write(opened.job.csv())
    made = report.made(opened.job, opened.paths, notes)
    if picture:
        from oddrank.metrics import picture as drawing

        pictures.write(drawing.draw(opened.job, made), picture, "--plot")
    rows = [report.row(opened.job.figures())]
    whole = render.deliver(
        made, json_path, report.COLUMNS, rows, stdout_is_taken=csv_path == "-",
        tables=report.spent(made), next_once=True,
    )  # fmt: skip
    return made.exit_code(fail_on) or (0 if whole else OddrankError.exit_code)


@contextmanager
def _csv(path: str | None) -> Iterator[IO[bytes] | None]:
    if path is None:
        yield None
        return
    try:
        with open(1 if path == "-" else path, "wb", closefd=path != "-") as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OddrankError(f"cannot write {path}: {error.strerror}; {_CSV_ADVICE}") from error


class _News:
    """Says each finding of --follow once, and when it is over; writes the file anew."""

    def __init__(self, logs: Logs, notes: Notes, json_path: str | None) -> None:
        self._job, self._paths, self._notes = logs.job, logs.paths, notes
        self._json = json_path
        self._said: set[int] = set()
        self._over: set[int] = set()
        self._seen: tuple[int, int] | None = None

    def say(self, stream: TextIO) -> None:
        figures, suspects = self._job.figures(), self._job.suspects()
        if self._seen == (figures["rows"], len(suspects)):
            return
        self._seen = figures["rows"], len(suspects)
        for number, suspect in enumerate(suspects):
            if number not in self._said:
                finding = findings.one(suspect, self._paths, figures["speed_unit"])
                if finding is not None:
                    render.progress(f"{finding.who}: {finding.what}", stream)
                    self._said.add(number)
            elif number not in self._over and (text := findings.is_over(suspect)):
                render.progress(f"line {findings.source(suspect, self._paths)}: {text}", stream)
                self._over.add(number)
        if self._json and self._json != "-":
            made = report.made(self._job, self._paths, self._notes)
            write_json(made.envelope(), self._json)
