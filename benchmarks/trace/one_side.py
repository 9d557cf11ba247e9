"""Makes one measurement in its own process: TOOL WORKLOAD FOLDER. Prints ns of CPU time per event.

Counts the events that a line tracer would see in the workload's own code, for every tool."""

import difflib
import json
import os
import sys
import time

ROUNDS = 5


def lines(n=20_000):
    for _ in range(n):
        a = 1
        b = 2
        c = a
        d = b
        e = c
        f = d
        a = e
        b = f
        c = a
        d = b
    return d


def fib(n=20):
    if n < 2:
        return n
    return fib(n - 1) + fib(n - 2)


def excluded():
    left = [f"line {i % 37}" for i in range(220)]
    right = [f"line {i % 41}" for i in range(220)]
    return list(difflib.unified_diff(left, right))


def dumps():
    table = {f"row {i}": [i, {"left": None, "right": [i, i + 1]}] for i in range(200)}
    return json.dumps(table, indent=1)  # runs in Python: the C encoder has no indent


# Workload -> its function and its line, call and return events.
WORKLOADS = {
    "lines": (lines, 20_000 * 11 + 3),
    "calls": (fib, 21_891 * 4),
    "excluded": (excluded, 1),
    "excluded-json": (dumps, 1),
}


def start(tool, folder):
    if tool in ("trace", "profile", "monitoring"):
        sys.path.insert(0, folder)
        import empty_hook

        empty_hook.start(tool)
    elif tool.startswith("oddrank"):
        import oddrank

        os.environ["ODDRANK_DIR"] = folder
        packages = {"__main__": "calls"} if tool == "oddrank-calls" else None
        oddrank.arm(packages, overhead=None)
    elif tool == "coverage":
        import coverage

        coverage.Coverage(data_file=None, include=[__file__]).start()
    elif tool == "hunter":
        import hunter

        hunter.trace(module="no_such_module")
    elif tool == "viztracer":
        import viztracer

        viztracer.VizTracer(ignore_c_function=True, verbose=0).start()
    elif tool == "stdlib":
        import trace

        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        sys.settrace(trace.Trace(count=0, trace=1).globaltrace)
    elif tool != "none":
        raise SystemExit(f"no such tool: {tool}")


def main():
    tool, workload, folder = sys.argv[1:]
    run, events = WORKLOADS[workload]
    run()
    start(tool, folder)
    rounds = []
    for _ in range(ROUNDS):
        begin = time.thread_time_ns()
        run()
        rounds.append((time.thread_time_ns() - begin) / events)
    sys.settrace(None)
    print(min(rounds), file=sys.__stdout__, flush=True)
    os._exit(0)


main()
