"""Wraps the lines of one job as tools do: the same rank is named through each envelope."""

import json
import sys

import pytest

import forked
from oddrank.inputs import envelopes
from oddrank.triage import report
from patience import PATIENCE
from texts import texts

WATCHDOG = (
    "[rank0]:[E105 09:12:44.1 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, NumelOut=1,"
    " Timeout(ms)=600000) ran for 600071 milliseconds before timing out."
)
LINES = [
    "[rank2]: Traceback (most recent call last):",
    '[rank2]:   File "/job/train.py", line 12, in step',
    "[rank2]:     raise ValueError(shard)",
    "[rank2]: ValueError: shard 9 is empty",
    WATCHDOG,
]


def each(made):
    return "".join(f"{made(number, line)}\n" for number, line in enumerate(LINES, 97))


def entries(**keys):
    return [{**keys, "message": line} for line in LINES]


def json_lines(rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows)


NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "source": ["# Rank 7 raised"]},
        {"cell_type": "code", "source": ["train()"], "outputs": [
            {"output_type": "stream", "text": [f"{line}\n" for line in LINES]}]},
    ],
    "nbformat": 4,
}  # fmt: skip
WRAPPED = {
    "grep -n": each(lambda n, line: f"{n}:{line}"),
    "grep -n -C": each(lambda n, line: f"{n}{'-' if n % 2 else ':'}{line}") + "--\n",
    "grep -Hn": each(lambda n, line: f"logs/job-7.out:{n}:{line}"),
    "cat -n": each(lambda n, line: f"{n:>6}\t{line}"),
    "bat": each(lambda n, line: f"{n:>4} │ {line}"),
    "a mail": each(lambda n, line: f"> {line}"),
    "a mail of a mail": each(lambda n, line: f"> > {line}"),
    "a list's code": each(lambda n, line: f"    {line}"),
    "stern": "+ trainer-0 \u203a pytorch\n" + each(lambda n, line: f"trainer-0 pytorch {line}"),
    "docker-compose": each(lambda n, line: f"trainer_1  | {line}"),
    "aws logs tail": each(
        lambda n, line: f"2026-01-05T09:22:44.{n}+00:00 train/default/4bd2f {line}"
    ),
    "journalctl -o json": json_lines(
        {"__REALTIME_TIMESTAMP": "1767604964100200", "_HOSTNAME": "n1", "MESSAGE": line}
        for line in LINES
    ),
    "gcloud lines": json_lines(
        {"jsonPayload": row, "timestamp": "2026-01-05T09:22:44.1Z",
         "resource": {"labels": {"pod_name": "trainer-0"}}} for row in entries()
    ),
    "gcloud list": json.dumps(entries(timestamp="2026-01-05T09:22:44.1Z"), indent=2),
    "get-log-events": json.dumps({"events": entries(timestamp=1767604964100), "next": "f/1"}),
    "a search": json.dumps(
        {"hits": {"hits": [{"_source": row} for row in entries(ts=1767604964)]}}
    ),
    "a logger": json_lines([
        {"asctime": "2026-01-05 09:22:44,1", "levelname": "ERROR", "message": "[rank2]: it failed",
         "exc_info": "\n".join(LINES[:4])}, {"time": 1767604964.5, "msg": WATCHDOG},
    ]),
    "a logger in a pod": each(lambda n, line: "[pod/train-0/pytorch] "
                              + json.dumps({"time": 1767604964, "msg": f"{line}\n[rank2]:"})),
    "a logger on a node": each(lambda n, line: f"2026-01-05T09:22:44.{n:09}Z stderr F "
                               + json.dumps({"level": "info", "msg": line})),
    "a query of CloudWatch": json_lines(
        [{"field": "@timestamp", "value": "2026-01-05 09:22:44.1"},
         {"field": "@message", "value": line}] for line in LINES
    ),
    "Loki's answer": json.dumps({"data": {"resultType": "streams", "result": [
        {"stream": {"pod": "w-0"}, "values": [["1767604964100200300", line] for line in LINES]}]}}),
    "Datadog": json_lines({"attributes": {**row, "timestamp": "2026-01-05T09:22:44Z"}}
                          for row in entries()),
    "fluentd": each(lambda n, line: "2026-01-05 09:22:44 +0000 kube.w-0: "
                    + json.dumps({"log": line, "stream": "stderr"})),
    "a string of JSON": json.dumps("\n".join(LINES)),
    "a table in Markdown": each(lambda n, line: f"| {line} |"),
    "code in Markdown": each(lambda n, line: f"`{line}`"),
    "cat -A": each(lambda n, line: f"{line}$"),
    "ts": each(lambda n, line: f"[2026-01-05 09:22:{n % 60:02}] {line}"),
    "a notebook": json.dumps(NOTEBOOK, indent=1),
    "grep of a quoted mail": each(lambda n, line: f"{n}:> {line}"),
    "JSON of a list, indented": each(
        lambda n, line: "  " + json.dumps({"log": line, "ts": 1767604964 + n})
    ),
    "a terminal of 100 columns": "".join(
        f"{line[at : at + 100]}\n" for line in LINES for at in range(0, len(line), 100)
    ),
    "Docker": each(
        lambda n, line: json.dumps(
            {"log": f"{line}\n", "stream": "stderr", "time": f"2026-01-05T09:22:44.{n:09}Z"},
            separators=(",", ":"),
        )
    ),
    "a line that does not fit": each(lambda n, line: f"{n}:{line}") + "and so on\n",
}  # fmt: skip


@pytest.mark.parametrize("name", WRAPPED)
def test_a_rank_is_named_through_an_envelope(tmp_path, name):
    path = tmp_path / "pasted.txt"
    path.write_text(WRAPPED[name], encoding="utf-8")
    (suspect,) = report.read([str(path)]).suspects
    assert [process.rank for process in suspect.processes] == [2]
    assert suspect.death is not None
    assert suspect.death.text == "ValueError: shard 9 is empty"
    assert suspect.leaf is not None
    assert suspect.leaf.function == "step"


def test_lines_of_docker_with_and_without_escapes_come_out_alike(tmp_path):
    """Those without are cut by a pattern, the others are read as JSON."""
    path = tmp_path / "0-json.log"
    said = ["step 1", 'say "hi"', "", "a\tb", "50 \u00b5s", "\033[31mred", "step 2", "C:\\n"]
    times = [f"2026-01-05T09:22:44{part}Z" for part in ("", ".1", ".000000097", ".123456789")]
    rows = [(text, time) for text in said for time in times]
    for blank in ("", " "):
        path.write_text("".join(
            json.dumps({"log": f"{text}\n", "stream": "stderr", "time": time},
                       separators=(f",{blank}", f":{blank}"), ensure_ascii=number % 2 > 0) + "\n"
            for number, (text, time) in enumerate(rows)
        ), encoding="utf-8")  # fmt: skip
        envelope = envelopes.found(path.read_bytes())
        assert envelope is not None
        left = [0]
        lines = b"".join(envelope.lines(path, left)).decode().split("\n")
        assert lines == [*(f"{time} {text}" for text, time in rows), ""]
        assert left == [0]


# Lines that begin as wrapped ones do.
BARE = {
    "srun --label": each(lambda n, line: f"{n}: {line}"),
    "a template of torchrun": each(lambda n, line: f"node1.cluster:{n}: {line}"),
    "NCCL's own": each(lambda n, line: f"n1.cluster:{n}:{n} [0] NCCL INFO {line}"),
    "times": each(lambda n, line: f"{n - 90}:15:02 {line}"),
    "a traceback": 'Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 1\n',
    "lines of one length": each(lambda n, line: f"[rank{n % 4}]: {WATCHDOG}"),
    "steps of one length": each(lambda n, line: f"{'step':70} {n:03} Timeout"),
    "a dump": '{"version": "2.10", "entries": [{"message": "a", "time": 1}]}\n',
    "an error file": '{"message": {"message": "E", "extraInfo": {"timestamp": "1"}}}\n',
    "Kubernetes": '{"kind": "List", "items": [{"message": "x", "time": "2026-01-05T09:22:44Z"}]}',
    "times beyond all clocks": each(
        lambda n, _: json.dumps({"line": "x", "timestamp": (1e400, -1e400, "1e400")[n % 3]})
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BARE)
def test_lines_that_only_look_wrapped_stay(name):
    assert envelopes.found(BARE[name].encode()) is None


HOSTILE = texts(__file__)["hostile"]


def test_a_line_of_a_mebibyte_is_looked_at_in_one_pass():
    """In the square of its length it would take hours."""
    done = forked.run([sys.executable, "-c", HOSTILE], timeout=PATIENCE.limit)
    assert done.returncode == 0
