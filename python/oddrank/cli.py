"""The command line: a table of commands, and the one place where errors become exit codes.

A command's module is imported when the command runs (its attribute `command`): --help loads none.
"""

import math
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, ClassVar, NoReturn, TypeVar

import click

from oddrank._version import __version__
from oddrank.errors import LaunchError, OddrankError

# Name -> the module with its click command, and its line in --help.
_COMMANDS = {
    "selftest": ("oddrank.selftest.command", "Is this allocation healthy; which rank is not."),
    "bench": ("oddrank.bench.command", "How fast are the collectives, who is late."),
    "trace": ("oddrank.trace.command", "Where every rank is, or was when it died."),
    "doctor": ("oddrank.doctor.command", "What is built, loaded, missing, and what to type."),
}  # fmt: skip

_EPILOG = (
    "Exit codes: 0 healthy; 1 odd (somebody is named) or unknown (nobody can be); 2 could not run;"
    " 3 incomplete (deadline or signal, and nobody named)."
    " torchrun turns all but 0 into 1: read the verdict from --json FILE."
)
_INTERRUPTED = 130
_BROKEN_PIPE = 141  # as a shell says it of a command that SIGPIPE ended
# A group without a command shows its help; before click 8.2 it did so by itself.
_NO_ARGUMENTS: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())

Command = TypeVar("Command", bound=Callable[..., Any])


class Group(click.Group):
    """In its help the first sentence of each command is whole, on as many lines as it takes."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                sentence, _, _ = (command.help or "").partition("\n\n")
                rows.append((name, " ".join(sentence.split())))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class _LazyGroup(click.Group):
    """Commands of the table; only the one that runs is imported."""

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


@click.group(
    cls=_LazyGroup,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="oddrank %(version)s")
def _oddrank() -> None:
    """Find the odd rank: which one is stuck, slow, broken or different, and why."""
    from oddrank import launch

    if launch.fakes_terminals():
        from oddrank import render

        render.be_plain()


class Seconds(click.FloatRange):
    """A time in seconds, with or without a unit; a range alone lets NaN through."""

    name = "seconds"
    _units: ClassVar[dict[str, int]] = {"s": 1, "m": 60, "h": 3600}

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value).strip()
        unit = self._units.get(text[-1:], 0)
        try:
            seconds = float(text[:-1]) * unit if unit else float(text)
        except ValueError:
            seconds = math.nan
        if math.isnan(seconds):
            self.fail(f"{text[:40]!r} is not a time like 60, 60s or 5m", param, ctx)
        return float(super().convert(seconds, param, ctx))


def json_option(command: Command) -> Command:
    """`--json FILE`, passed as `json_path: str | None` and known to be writable."""
    return click.option(
        "--json",
        "json_path",
        metavar="FILE",
        callback=writable(),
        help="Write the report as JSON; - is stdout, and then nothing else goes there.",
    )(command)


def fail_on_option(command: Command) -> Command:
    """`--fail-on LIST`, passed as `fail_on: frozenset[str]` for `Report.exit_code`."""
    return click.option(
        "--fail-on",
        metavar="LIST",
        default="odd,unknown,incomplete",
        show_default=True,
        callback=_verdicts,
        help="Which verdicts fail the command; the others exit with 0. odd (somebody is named)"
        " and unknown (something is wrong, nobody can be named) fail with 1, incomplete (ended"
        " early, nobody named) with 3. none: never fail. odd alone: a prolog that drains no node"
        " because a deadline came.",
    )(command)


def writable(
    advice: str = "",
) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """The callback of an option for a file; advice: what to do where it can't be written."""

    def check(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
        """Only rank 0 writes; another node may not even have the folder."""
        from oddrank import finding, launch

        if value == "":
            raise click.BadParameter("it is empty: give it a file, or - for stdout")
        if value is not None:
            try:
                writes = launch.current().rank == 0
            except LaunchError:
                writes = True
            if writes:
                finding.check_writable(value, advice or finding.JSON_ADVICE)
        return value

    return check


def share(ctx: click.Context, option: click.Parameter, value: str) -> float:
    """The callback of a percentage: 1% or 1 becomes 0.01."""
    try:
        share = float(value.strip().removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not 0.0001 <= share <= 10:
        raise click.BadParameter(f"{value[:40]!r} is not a percentage like 1%")
    return share


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry of `oddrank`, `python -m oddrank`, `torchrun -m oddrank`, `srun oddrank`; ends it."""
    sys.exit(_run(sys.argv[1:] if arguments is None else list(arguments)))


def _run(arguments: list[str]) -> int:
    """The exit code. Unexpected exceptions pass through with their traceback."""
    try:
        with _oddrank.make_context("oddrank", arguments) as context:
            code = _oddrank.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as end:  # --help, --version
        return end.exit_code
    except (click.ClickException, OddrankError) as error:
        return _refuse(error)
    except (KeyboardInterrupt, click.Abort):
        return _INTERRUPTED
    except BrokenPipeError:
        # Python flushes stdout once more at exit: give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE


def _refuse(error: click.ClickException | OddrankError) -> int:
    """One line on stderr, and the exit code."""
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
        render.line(f"{path}: {message}; see {path} --help", sys.stderr)
    return OddrankError.exit_code


def _speaks() -> bool:
    """All ranks share a command line: one on each node says what is wrong with it."""
    from oddrank import launch

    try:
        return launch.current().local_rank == 0
    except LaunchError:
        return True


def _verdicts(ctx: click.Context, option: click.Parameter, value: str) -> frozenset[str]:
    from oddrank import finding

    chosen = frozenset(word.strip() for word in value.split(",") if word.strip())
    if chosen == {"none"}:
        return frozenset()
    if not chosen or not chosen <= finding.FAILING:
        raise click.BadParameter(
            f"{value!r} is neither none nor some of {','.join(sorted(finding.FAILING))}"
        )
    return chosen
