"""Checks that an armed process does not grow: up to 10^9 events, with short-lived threads.

Each row is the same process at a later time: its own memory (RssAnon), its record's (RssShmem).
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

SCRIPT = """
import json, os, sys, threading, time
import oddrank
oddrank.arm({"*": "lines"}, overhead=None)

def work(times):
    for i in range(times):
        if i & 1:
            x = i
        else:
            x = -i

def burst():
    # A thread of its own, code that is new each time, and its death.
    code = compile("for i in range(10):\\n    x = i\\n", f"<burst {time.monotonic_ns()}>", "exec")
    thread = threading.Thread(target=exec, args=(code, {}))
    thread.start()
    thread.join()

def memory():
    lines = open("/proc/self/status").read().splitlines()
    return {key: int(line.split()[1]) for line in lines
            for key in ("RssAnon", "RssShmem") if line.startswith(key)}

done, begin = 0, time.monotonic()
for goal in map(int, sys.argv[1:]):
    while done < goal:
        work(100_000)   # three lines a turn
        burst()
        oddrank.step(done)
        done += 300_000
    facts = {"events": done, "seconds": time.monotonic() - begin, **memory()}
    print(json.dumps(facts), flush=True)
"""


def main() -> None:
    parser = harness.parser(__doc__ or "", default_repetitions=1)
    parser.add_argument("--events", type=int, default=10**9)
    arguments = parser.parse_args()
    goals = [str(10**power) for power in range(6, 19) if 10**power < arguments.events]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *goals, str(arguments.events)],
            env={**os.environ, "ODDRANK_DIR": folder},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=3600,
        )
    rows = []
    for line in done.stdout.splitlines():
        facts = json.loads(line)
        rows.append(
            {
                "events": f"{facts['events']:.1e}",
                "own_MiB": facts["RssAnon"] / 1024,
                "record_MiB": facts["RssShmem"] / 1024,
                "events_per_second": facts["events"] / facts["seconds"],
            }
        )
    harness.report("memory", rows, arguments.json)


if __name__ == "__main__":
    main()
