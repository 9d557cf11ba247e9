"""The self-test names faulty ranks and nodes, on real ranks: a part of `make soak`'s matrix."""

import os
import re
import signal
import socket
import sys
from contextlib import ExitStack
from dataclasses import replace
from subprocess import PIPE, STDOUT, Popen

import pytest

from faults import IN_EVERY_RUN, SMOKE, Case, healthy, hurt_rank, only, run_once
from job import job
from launchers import env
from processes import held_port
from texts import texts

pytestmark = [pytest.mark.needs("torch"), pytest.mark.timeout(300)]


# Tests below and in test_speed_jobs.py say more about these.
RAISES, KILLED = hurt_rank("raise", 0, "device", ranks=2), hurt_rank("kill", 1, "connect", ranks=2)
EXITS = hurt_rank("exit0", 1, "device", ranks=2)
ELSEWHERE = {str(case) for case in (RAISES, KILLED, EXITS, healthy(4))}


def marked(case: Case):
    marks = [pytest.mark.needs("netns")] * case.needs_hosts + [pytest.mark.smoke] * (
        str(case) in map(str, SMOKE)
    )
    return pytest.param(case, marks=marks)


CASES = [marked(case) for case in IN_EVERY_RUN if str(case) not in ELSEWHERE]


def test_what_is_tested_elsewhere_is_a_case_of_every_run():
    assert len(CASES) == len(IN_EVERY_RUN) - len(ELSEWHERE)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_rank_that_is_hurt_is_named_with_the_stage_and_healthy_ranks_are_not(case: Case):
    wrong = run_once(case)
    assert not wrong, wrong


@pytest.mark.parametrize(
    ("master", "why", "fail_on", "code"),
    [
        ("127.0.0.1", "127.0.0.1 refuses connections to port ", (), 1),
        # Longer than a name may be, so that no name server is asked, which may be slow. A prolog
        # that fails on odd ranks alone drains no node for it.
        ("nosuch." * 40 + "invalid", "the name can't be resolved (", ("--fail-on", "odd"), 0),
    ],
    ids=["refuses", "no such name"],
)
def test_without_rank_0_the_others_end_by_themselves_and_say_so(master, why, fail_on, code):
    verdict = job(
        3, launcher="env", absent=[0], deadline=30, command=(*only("device"), *fail_on),
        master=master, fresh=True,  # torch's own lines are switched off before it is loaded
    )  # fmt: skip
    assert verdict.report is None
    lines = verdict.output.splitlines()
    assert lines
    for line in lines:
        is_last = line == lines[-1]
        yet, more = ("", "") if is_last else (" yet", r", at most \d+ s more")
        tried = rf"{master}:\d+, tried for (\d+) s{more}: "
        found = re.match(f"oddrank: rank [12] .* finds no rank 0{yet}: .* {tried}", line)
        assert found, line
        assert (int(found[1]) >= 4, why in line) == (True, True), line
    assert set(verdict.codes) == {code}
    assert verdict.gone(), str(verdict)


# A rank that says why it finds no rank 0, if no other of its host does, and then lives on.
SAYS = texts(__file__)["says"]


def test_while_one_rank_that_finds_no_rank_0_lives_no_other_of_its_host_says_so():
    """Ranks of a job that start seconds apart may say it one after the other."""
    with held_port() as port, ExitStack() as stack:
        place = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        told = []
        for rank in ("1", "2"):
            own = {"RANK": rank, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "3"}
            started = Popen(
                [sys.executable, "-c", SAYS],
                env={**os.environ, **place, **own},
                stdin=PIPE, stdout=PIPE, stderr=STDOUT, text=True,
            )  # fmt: skip
            stack.enter_context(started)
            stack.callback(started.kill)
            told.append(started.stdout.readline())
    assert told[0].startswith("oddrank: rank 1 "), told
    assert told[1] == "lives on\n", told


def test_a_port_that_another_program_has_is_told_in_seconds_and_no_rank_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        def start(order):
            return env(replace(order, master=("127.0.0.1", port)))

        verdict = job(2, launcher=start, absent=[1], deadline=200, command=only("device"))
    assert not verdict.causes, str(verdict)
    assert verdict.codes == (2,)
    assert f"MASTER_PORT {port} is taken by another program" in verdict.output
    assert verdict.seconds < 100  # half of the deadline
    assert verdict.gone()


def test_a_rank_that_puts_wrong_values_into_collectives_is_found_out():
    spoilt = "value:rank=2,stage=collectives;value:rank=2,stage=localise"
    verdict = job(3, inject=spoilt, deadline=90, command=only("collectives"))
    assert verdict.names(rank=2, stage="collectives"), str(verdict)
    assert verdict.causes == {"wrong-contribution"}


def test_wrong_values_that_nobody_can_be_blamed_for_name_nobody():
    spoilt = "value:rank=2,stage=collectives"
    verdict = job(3, inject=spoilt, deadline=90, command=only("collectives"))
    assert verdict.report["verdict"] == "unknown", str(verdict)
    assert verdict.names(rank=[], stage="collectives")
    (finding,) = verdict.report["findings"]
    assert "a gather without arithmetic" in finding["confidence"]["why"]
    told = [e["text"] for e in finding["evidence"]]
    assert told[0].startswith("ranks 0-2: ")
    assert len({text.partition(": ")[2] for text in told}) == len(told)


@pytest.mark.smoke
def test_an_exception_in_a_stage_is_told_with_file_and_line():
    verdict = RAISES.run(())
    assert RAISES.right(verdict), str(verdict)
    assert verdict.causes == {"dead"}
    (finding,) = verdict.report["findings"]
    assert re.fullmatch(r"/.*/tests/inject\.py:\d+", finding["evidence"][0]["source"])
    assert "\n" not in finding["what"]
    assert finding["next"][0].startswith("start the same command with one process")
    assert verdict.gone()


@pytest.mark.smoke
def test_a_rank_that_exits_is_named_and_stages_behind_are_told_as_not_begun():
    chosen = ("selftest", "--quick", "--only", "device,fingerprint,collectives")
    verdict = job(2, exit0=1, at="device", deadline=90, command=chosen)
    assert verdict.names(rank=1, stage="device"), str(verdict)
    behind = {"fingerprint": "not begun", "connect": "not begun", "collectives": "not begun"}
    skipped = verdict.report["data"]["skipped"]
    assert {name: why for name, why in skipped.items() if why != "--only"} == behind, str(verdict)
    for name in behind:
        assert re.search(rf"^{name} +- +- +not begun$", verdict.output, re.MULTILINE)
    assert verdict.gone()


def test_the_verdict_comes_before_the_launchers_own_words_and_in_one_line_behind_them():
    verdict = KILLED.run(())
    assert KILLED.right(verdict), str(verdict)
    own, behind = verdict.output.split("ChildFailedError", 1)
    assert own.count("selftest: odd") == 1
    assert behind.count("selftest: odd") == 1
    assert verdict.codes == (1,)
    assert verdict.gone()


def test_ended_by_hand_while_it_hangs_it_says_where_to_look_and_blames_nobody():
    verdict = job(
        3, gil=1, at="collectives", deadline=60, command=only("collectives"),
        after="collectives  0/3  not through yet",
        act=lambda live: live.launchers[0].send_signal(signal.SIGINT),
    )  # fmt: skip
    assert verdict.report is not None, str(verdict)
    assert verdict.report["verdict"] == "incomplete", str(verdict)
    assert verdict.names(rank=[], stage="collectives")
    said = verdict.report["summary"]
    assert said.startswith("ranks 0, 2 were waiting for the others in stage collectives"), said
    assert re.search(r"; rank 1 \(\S+, local rank 1\) was not: look there first$", said), said
    assert verdict.gone(), str(verdict)
