"""A command that judges, for tests of what all commands share."""

import os
import signal

import click

from oddrank import OddrankError, render
from oddrank.cli import fail_on_option, json_option
from reports import finding, report


@click.command()
@click.argument("fault", default="none")
@json_option
@fail_on_option
def command(fault: str, json_path: str | None, fail_on: frozenset[str]) -> int:
    """Judge a job of four ranks."""
    click.echo("running", err=True)
    match fault:
        case "refuse":
            raise OddrankError("no rank \x1b[2J is here: start one\nsecond line")
        case "bug":
            raise ValueError("a bug")
        case "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        case "flood":
            while True:
                click.echo("x" * 65536)
    findings = {"odd": [finding()], "unknown": [finding(condition="unknown")]}.get(fault, [])
    made = report(*findings, complete=fault != "deadline")
    render.deliver(made, json_path)
    return made.exit_code(fail_on)
