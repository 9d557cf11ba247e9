"""Inside one rank of a test: runs pytest on that one test and reports to the parent.

The parent sends a plan, then a byte for each point at which this process holds: "called", where the
test has ended and its fixtures have not, and "end". So no rank leaves while others still need it.
"""

import faulthandler
import importlib
import io
import json
import os
import re
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from oddrank.machine import end_with
from oddrank.marker.protocol import DUMP, shortened

_MOST_FRAMES = 32
_MOST_WARNINGS = 50
_PYTESTS = re.compile("/(?:_pytest|pluggy|unittest)/")
# Options that would make a rank report, choose tests or run again by itself.
_OPTIONS: dict[str, Any] = {
    "dist": "no", "numprocesses": None, "tx": [], "looponfail": False, "maxfail": 0, "reruns": 0,
    "lf": False, "failedfirst": False, "newfirst": False, "stepwise": False, "cacheclear": False,
    "pyargs": False, "log_file": os.devnull, "pastebin": None, "xmlpath": None,
}  # fmt: skip
# Plugins that run in the parent only: they know the whole test, not one rank of it.
_NOT_HERE = ("timeout", "rerunfailures", "flaky", "dsession")


def main(descriptor: int) -> None:
    """Runs this rank. descriptor: the socket to the process that runs the test."""
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    plan = json.loads(channel.makefile("rb").readline())
    end_with(plan["parent"])
    sys.argv[:] = plan["argv"]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    stacks = open(plan["stacks"], "wb", buffering=0)  # noqa: SIM115
    # Python restores this when it shuts down: the signal must not end the process then.
    signal.signal(DUMP, signal.SIG_IGN)
    faulthandler.register(DUMP, file=stacks, all_threads=True, chain=False)
    here = _Here(plan, channel)
    here.send("ready")
    # Without the recorder the test runs all the same; the verdict knows less.
    with warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")
        from oddrank.trace.arm import OVERHEAD, Armed

        Armed(None, OVERHEAD)

    from oddrank.marker import plugin

    plugin.HERE = plugin.Ranks(plan["rank"], plan["world"], plan["folder"], plan["deadline"])
    pytest.main(plan["args"], plugins=[here])
    sys.stdout.flush()
    here.ends()


class _Quiet:
    """Stands in for pytest's reporter: prints nothing by itself, but debuggers can use it."""

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter

    def __getattr__(self, name: str) -> Any:
        if name.startswith("pytest_"):
            raise AttributeError(name)
        return getattr(self._reporter, name)


class _Here:
    """This rank, as a plugin of its own pytest."""

    def __init__(self, plan: dict[str, Any], channel: socket.socket) -> None:
        self._plan, self._channel, self._pid = plan, channel, os.getpid()
        self._raised: Any = None
        self._has_run = self._has_left = False
        self._warnings = 0

    def send(self, kind: str, **facts: Any) -> None:
        if os.getpid() != self._pid:  # a fork of the test that came back here
            return
        line = json.dumps({"kind": kind, "time": time.time(), **facts}) + "\n"
        with suppress(OSError):  # the parent has gone, and this process will follow
            self._channel.sendall(line.encode())

    def hold(self, at: str) -> None:
        if os.getpid() == self._pid:
            self.send("hold", at=at)
            with suppress(OSError):
                self._channel.recv(1)

    def ends(self) -> None:
        if not self._has_run and not self._has_left:
            self.send("lost", text="its pytest ended before the test")
        self.hold("end")

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: Any) -> None:
        config.args = [self._plan["file"]]
        for name, value in _OPTIONS.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)
        config.option.basetemp = self._plan["basetemp"]
        if not self._plan["debug"]:
            config.option.usepdb = config.option.trace = False
        # Plugins write no reports and no cache in a process that has this.
        config.workerinput = self._plan["workerinput"]

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: Any) -> None:
        manager = config.pluginmanager
        for name in _NOT_HERE:
            if manager.hasplugin(name):
                manager.unregister(name=name)
        reporter = manager.getplugin("terminalreporter")
        if reporter is not None:
            manager.unregister(reporter)
            manager.register(_Quiet(reporter), "terminalreporter")

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> Iterator[None]:
        wanted = self._plan["nodeid"]
        # pytest-xdist adds the name of a test's group.
        names = (wanted, wanted.rpartition("@")[0])
        chosen = [item for name in names for item in items if item.nodeid == name][:1]
        yield
        items[:] = chosen
        if not chosen and not self._has_left:
            self._lost(
                f"it did not find the test {wanted}: are its name and parameters the same in every"
                " process (no sets, addresses or times in them)?"
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: Any) -> None:
        if "process_group" in getattr(item, "fixturenames", ()):
            with suppress(ImportError):  # seconds that are not the test's
                importlib.import_module("torch.distributed")
        self.send("begins")

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, call: Any) -> Iterator[None]:
        yield
        self._raised = call.excinfo

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._has_run = True
        whole = getattr(report, "context", None) is None  # else a subtest's
        self.send("phase", **self._phase(report), whole=whole)
        if whole and (report.when == "call" or (report.when == "setup" and not report.passed)):
            self.hold("called")

    def _phase(self, report: Any) -> dict[str, Any]:
        raised, text = self._raised, report.longrepr
        if report.skipped and isinstance(text, tuple):
            text = text[2].removeprefix("Skipped: ")
        phase = {
            "when": report.when, "outcome": report.outcome, "seconds": report.duration,
            "xfail": getattr(report, "wasxfail", None), "text": shortened(str(text or "")),
            "sections": [[name, shortened(said)] for name, said in report.sections],
            "properties": [[str(name), str(value)] for name, value in report.user_properties],
            "error": "", "frames": [],
        }  # fmt: skip
        if raised is not None:
            frames = traceback.extract_tb(raised.tb)
            own = [frame for frame in frames if not _PYTESTS.search(frame.filename)]
            phase["error"] = shortened(raised.exconly(), 2000)
            phase["frames"] = [[f.name, f.filename, f.lineno] for f in own[-_MOST_FRAMES:]]
        return phase

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._lost("it could not collect the test", str(report.longrepr))

    def pytest_internalerror(self, excrepr: Any) -> None:
        self._lost("an internal error of its pytest", str(excrepr))

    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        if excinfo.typename in ("KeyboardInterrupt", "Exit"):  # else pytest's own way to stop
            self._has_left = True
            exits = excinfo.typename == "Exit"
            self.send("left", exits=exits, text=str(excinfo.value)[:2000])

    def pytest_enter_pdb(self) -> None:
        self.send("debugs")

    def pytest_warning_recorded(self, warning_message: Any, when: str) -> None:
        self._warnings += 1
        if when == "runtest" and self._warnings <= _MOST_WARNINGS:
            told = warning_message
            self.send(
                "warning", category=told.category.__name__, text=str(told.message)[:2000],
                file=told.filename, line=told.lineno,
            )  # fmt: skip

    def _lost(self, why: str, text: str = "") -> None:
        self._has_left = True
        self.send("lost", text=why, more=shortened(text))
