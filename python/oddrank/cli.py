"""The command line: a table of commands, and the one place where errors become exit codes.

The module of a command is imported when the command runs; --help imports none.
"""

import math
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

import click

from oddrank._version import __version__
from oddrank.errors import LaunchError, OddrankError

if TYPE_CHECKING:
    from oddrank.page import Parts
    from oddrank.report import Report

# Name -> module with its click command, line in --help.
_COMMANDS = {
    "selftest": ("oddrank.selftest.command", "Test whether this allocation is healthy."),
    "bench": ("oddrank.bench.command", "Measure collectives and links, and find late ranks."),
    "run": ("oddrank.run.command", "Run a training script, and report deaths and stalls."),
    "top": ("oddrank.top.command", "Show the ranks of this host live."),
    "trace": ("oddrank.trace.command", "Show where every rank is, or was when it died."),
    "collect": ("oddrank.collect.command", "Save all evidence of a job before it is gone."),
    "triage": ("oddrank.triage.command", "Name the rank that hung or ended a job."),
    "logs": ("oddrank.logs.command", "Split and merge logs; name the rank that failed first."),
    "metrics": ("oddrank.metrics.command", "Find in a log when loss or speed went wrong."),
    "replicas": ("oddrank.replicas.command", "Compare checkpoints tensor by tensor, bit by bit."),
    "plan": ("oddrank.plan.command", "Calculate speed, memory and batch sizes of a training run."),
    "advise": ("oddrank.advise.command", "Explain environment variables; warn of those that hurt."),
    "switch": ("oddrank.switches.command", "Tell all ranks of a job to save or end."),
    "attach": ("oddrank.debugger.command", "Debug a rank that waits in oddrank.breakpoint()."),
    "doctor": ("oddrank.doctor.command", "Show which parts work, and how to install the others."),
}  # fmt: skip

_EXAMPLES = """Find the odd rank: which one is stuck, slow, broken or different, and why.

\b
Examples:
  torchrun --nproc-per-node 8 -m oddrank selftest --quick
  torchrun --nproc-per-node 8 -m oddrank bench run --json today.json
  torchrun --nproc-per-node 8 -m oddrank run train.py
  oddrank trace where
"""
_EPILOG = (
    "Exit codes: 0 healthy; 1 odd (a rank is named) or unknown (something is wrong, but no rank can"
    " be named); 2 could not run; 3 incomplete (a deadline or signal ended it, no rank is named)."
    " torchrun turns all but 0 into 1: read the verdict from --json FILE."
)
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
# Set by a shell that completes a command line: eval "$(_ODDRANK_COMPLETE=bash_source oddrank)".
_COMPLETE = "_ODDRANK_COMPLETE"
_INTERRUPTED = 130
_BROKEN_PIPE = 141  # a shell's exit code of a command that SIGPIPE ended
# Raised for a group without a command, from click 8.2 on.
_NO_ARGUMENTS: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())

Command = TypeVar("Command", bound=Callable[..., Any])


class CommandGroup(click.Group):
    """Shows the whole first sentence of each command in its help; suggests known names."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.BadOptionUsage as error:  # click does not name the command
            name = ctx.invoked_subcommand
            if error.ctx is None and name and (command := self.get_command(ctx, name)):
                error.ctx = click.Context(command, parent=ctx, info_name=name)
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            known = [*self.list_commands(ctx), *(o for p in self.get_params(ctx) for o in p.opts)]
            ctx.fail(f"No such command {args[0][:40]!r}{near(args[0], known)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                sentence, _, _ = (command.help or "").partition("\n\n")
                rows.append((name, " ".join(sentence.split())))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class _LazyGroup(CommandGroup):
    """Imports only the command that runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(_COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, help=_EXAMPLES, epilog=_EPILOG, context_settings=_SETTINGS)
@click.version_option(__version__, "-V", "--version", message="oddrank %(version)s")
def _oddrank() -> None:
    from oddrank import launch

    if launch.fakes_terminals():
        from oddrank import render

        render.be_plain()


class Seconds(click.FloatRange):
    """A time in seconds, with or without a unit. Refuses NaN, which a range would accept."""

    name = "seconds"
    _units: ClassVar[dict[str, int]] = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 365 * 86400}

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value).strip()
        unit = self._units.get(text[-1:], 0)
        try:
            seconds = float(text[:-1]) * unit if unit else float(text)
        except ValueError:
            seconds = math.nan
        if not seconds <= 1000 * self._units["y"]:
            self.fail(f"{text[:40]!r} is no time up to 1000y, like 60, 60s, 5m or 2d", param, ctx)
        return float(super().convert(seconds, param, ctx))


def json_option(command: Command) -> Command:
    """Adds `--json FILE`, passed as `json_path: str | None`. Checks that it can be written."""
    return click.option(
        "--json", "json_path", metavar="FILE", callback=writable(),
        help="Write the report as JSON. - is stdout, which then has nothing else.",
    )(command)  # fmt: skip


def html_option(command: Command) -> Command:
    """Adds `--html FILE`, passed as `html_path: str | None`. Checks that it can be written."""
    return click.option(
        "--html", "html_path", metavar="FILE", callback=_html_file,
        help="Write the report as one HTML page, which needs no network.",
    )(command)  # fmt: skip


def _html_file(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    from oddrank import page

    if value in ("", "-"):
        raise click.BadParameter("a page is no text for a terminal: give it a file")
    if value is not None and writes_report():
        page.check()
    return writable(page.ADVICE)(ctx, option, value)


def write_page(made: "Report", parts: Callable[[], "Parts"], path: str | None) -> None:
    """Writes the page of `html_option`, if it is wanted, after the verdict is printed.
    Reports a failure, which changes neither the verdict nor the exit code."""
    from oddrank import page, render

    try:
        if path is not None:
            page.write(made, parts(), path)
    except OddrankError as error:
        render.progress(f"oddrank: {error}", sys.stderr)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        render.progress(f"oddrank: {path} was not written: {why}", sys.stderr)


def refuse_shared(files: Mapping[str, str | None]) -> None:
    """Refuses to write two things to one file, or to stdout. files: option -> its file, if any."""
    given = {option: path for option, path in files.items() if path}
    to_stdout = [option for option, path in given.items() if path == "-"]
    if len(to_stdout) > 1:
        raise click.UsageError(f"only one of {' and '.join(to_stdout)} can be -")
    by_file: dict[str, list[str]] = {}
    for option, path in given.items():
        # A device or a pipe takes several things, one after the other.
        if path != "-" and (os.path.isfile(path) or not os.path.exists(path)):
            by_file.setdefault(os.path.realpath(path), []).append(option)
    for options in by_file.values():
        if len(options) > 1:
            raise click.UsageError(f"{' and '.join(options)} each need a file of their own")


def refuse_inputs(outputs: Mapping[str, str | None], inputs: Iterable[str]) -> None:
    """Refuses to write to a file that is read. outputs: option -> its file, if any.

    - is stdin or stdout. Compares files, not names: a link is the file that it points to.
    """
    read = {_identity(path, 0) for path in inputs} - {None}
    for path in outputs.values():
        if path and _identity(path, 1) in read:
            name = "stdout" if path == "-" else path
            raise OddrankError(f"{name} is also an input: give another file")


def _identity(path: str, stream: int) -> tuple[int, int] | None:
    """Returns device and inode of a regular file; None for others, such as pipes and /dev/null."""
    try:
        found = os.fstat(stream) if path == "-" else os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def some_of(*words: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Returns the completion of an option that takes some of the words, with commas between."""

    def complete(ctx: click.Context, option: click.Parameter, value: str) -> list[str]:
        head, comma, begun = value.rpartition(",")
        return [f"{head}{comma}{word}" for word in words if word.lower().startswith(begun.lower())]

    return complete


def renamed(**new: str) -> dict[str, Any]:
    """Returns context settings that keep old names of options.

    new: old name -> new name, without dashes in front.
    """
    return {"token_normalize_func": lambda name: new.get(name, name)}


_VERDICTS = ("odd", "unknown", "incomplete")


def fail_on_option(command: Command) -> Command:
    """Adds `--fail-on LIST`, passed as `fail_on: frozenset[str]` for `Report.exit_code`."""
    return click.option(
        "--fail-on", metavar="LIST", default=",".join(_VERDICTS), show_default=True,
        callback=_some_verdicts, shell_complete=some_of(*_VERDICTS, "none"),
        help="Verdicts that make the exit code non-zero: 1 for odd (a rank is named) and unknown"
        " (something is wrong, but no rank can be named), 3 for incomplete (ended early, no rank is"
        " named). Use odd in a scheduler's prolog, none to always exit with 0.",
    )(command)  # fmt: skip


def _some_verdicts(ctx: click.Context, option: click.Parameter, value: str) -> frozenset[str]:
    chosen = frozenset(word.strip().lower() for word in value.split(",") if word.strip())
    if chosen == {"none"}:
        return frozenset()
    if not chosen or not chosen <= set(_VERDICTS):
        text = f"{value[:60]!r} is neither none nor some of {','.join(_VERDICTS)}"
        raise click.BadParameter(text)
    return chosen


def writable(
    advice: str = "", *, folder: bool = False
) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Returns the callback of an option for a file or folder. advice: the remedy if it can't be
    written. Leaves a default unchecked: it may never be needed."""

    def check(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
        """Checks on rank 0 only, which writes the file: other nodes may not have the folder."""
        from oddrank.report import check_writable

        what = "folder" if folder else "file in a folder"
        if value == "":
            raise click.BadParameter(f"it is empty: name a {what} you can write")
        if value and value != option.default and writes_report():
            remedy = advice or f"give {option.opts[-1]} a {what} you can write"
            check_writable(value, remedy, folder=folder)
        return value

    return check


def writes_report() -> bool:
    """Returns whether this process writes the job's files: rank 0, or one without a launcher."""
    from oddrank import launch

    try:
        return launch.current().rank == 0
    except LaunchError:
        return True


def prometheus_file(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Refuses files that the collector would silently ignore: it reads *.prom only."""
    from oddrank.exposition import ADVICE

    # A device or a pipe is read by another program.
    special = value and os.path.exists(value) and not os.path.isfile(value)
    if value and value != "-" and not value.endswith(".prom") and not special:
        raise click.BadParameter(f"{value} would never be read: {ADVICE}")
    return writable(ADVICE)(ctx, option, value)


def near(name: str, known: Sequence[str]) -> str:
    """Returns a "did you mean" with the nearest known name; "" if none is near."""
    from difflib import get_close_matches

    plain = {one.replace("_", "").replace("-", ""): one for one in known}
    wanted = name[:40].lower().replace("_", "").replace("-", "")
    found = get_close_matches(wanted, plain, n=1, cutoff=0.75)
    return f"; did you mean {plain[found[0]]}?" if found else ""


def share(ctx: click.Context, option: click.Parameter, value: str) -> float:
    """Converts the percentage of an option: 1% or 1 becomes 0.01."""
    try:
        share = float(value.strip().removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not 0.0001 <= share <= 10:
        raise click.BadParameter(f"{value[:40]!r} is not a percentage like 1%")
    return share


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs a command and ends the process: `oddrank`, `python -m oddrank`, `srun oddrank`."""
    sys.exit(_run(sys.argv[1:] if arguments is None else list(arguments)))


def _run(arguments: list[str]) -> int:
    """Runs a command; returns the exit code. Does not catch unexpected exceptions."""
    if sys.stdin is None or sys.stdout is None or sys.stderr is None:
        from oddrank import render

        render.open_closed_streams()
    if instruction := os.environ.get(_COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(_oddrank, {}, "oddrank", _COMPLETE, instruction)
    try:
        with _in_a_folder(), _oddrank.make_context("oddrank", arguments) as context:
            code = _oddrank.invoke(context)
        _flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as end:  # --help, --version
        return end.exit_code
    except (click.ClickException, OddrankError) as error:
        code = _refuse(error)
        _drop_unwritten()
        return code
    except (KeyboardInterrupt, click.Abort):
        return _INTERRUPTED
    except BrokenPipeError:
        _drop_unwritten()
        return _BROKEN_PIPE


@contextmanager
def _in_a_folder() -> Iterator[None]:
    """Raises OddrankError if a command failed because its working directory was deleted."""
    try:
        yield
    except (FileNotFoundError, SystemError):  # Python 3.13.0 can't even import socket there
        try:
            os.getcwd()
        except FileNotFoundError:
            text = "the working directory is gone: cd to a folder that exists"
            raise OddrankError(text) from None
        raise


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError:
        from oddrank import render

        render.line("", sys.stdout)


def _drop_unwritten() -> None:
    """Drops text that stdout does not take: else Python's last flush would exit with 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def alike_on_all_ranks() -> Iterator[None]:
    """Errors within come from the command line, which all ranks share: one rank a node prints."""
    try:
        yield
    except OddrankError as error:
        if not _speaks():
            raise click.exceptions.Exit(error.exit_code) from error
        raise


def _refuse(error: click.ClickException | OddrankError) -> int:
    """Prints the error as one line on stderr; returns the exit code."""
    from oddrank import render

    if isinstance(error, OddrankError):
        render.line(f"oddrank: {error}", sys.stderr)
        return error.exit_code
    context = getattr(error, "ctx", None)
    if context and isinstance(error, _NO_ARGUMENTS):
        click.echo(context.get_help(), err=True)
    elif _speaks():
        path = context.command_path if context else "oddrank"
        message = error.format_message().rstrip(".")
        then = " See" if message.endswith("?") else "; see"  # a question ends its sentence
        render.line(f"{path}: {message}{then} {path} --help", sys.stderr)
    return OddrankError.exit_code


def _speaks() -> bool:
    """Returns whether this rank reports errors in the command line, which all ranks share."""
    from oddrank import launch

    try:
        return launch.current().local_rank == 0
    except LaunchError:
        return True
