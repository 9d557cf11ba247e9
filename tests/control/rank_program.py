"""The program of every rank in control's tests: three stages, no torch, verdict as JSON.

Arguments: a folder for the verdict and the root's address, the run's deadline, a stage's deadline.
"""

import ctypes
import dataclasses
import json
import os
import sys
import time
from functools import partial
from pathlib import Path

from oddrank.control.session import Root, Session, SessionEnded, start
from oddrank.errors import OddrankError
from oddrank.launch import Launch

STAGES = ("first", "second", "third")
FOLDER, DEADLINE, STAGE_SECONDS = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LOCAL_WORLD = WORLD // int(os.environ.get("TEST_NODES", "1"))


def judge(root: Root) -> int:
    # Where a rank never comes, the time for it begins once all others are here.
    here = int(os.environ.get("TEST_HERE", "0"))
    while sum(one.contact == "ok" for one in root.snapshot()) < here:
        time.sleep(0.01)
    root.go("join", float(os.environ.get("TEST_OPEN_JOIN", "30")))
    round_ = root.await_stage("join")
    for stage in STAGES:
        if round_.reason != "complete":
            break
        root.go(stage, STAGE_SECONDS, json.dumps({"stage": stage}))
        put(f"go-{stage}")
        round_ = root.await_stage(stage, partial(note_results, stage), every=0.05)
    verdict = {
        "stage": round_.stage,
        "reason": round_.reason,
        "results": {rank: value.decode() for rank, value in round_.results.items()},
        "states": [dataclasses.asdict(state) for state in round_.states.values()],
    }
    put("verdict.json", json.dumps(verdict))
    return 0 if round_.reason == "complete" else 1


def note_results(stage: str, _states: object, results: int, _left: float) -> None:
    """Tells the ranks how many results of the stage the root has."""
    name = f"{stage}-results{results}"
    if not (FOLDER / name).exists():
        put(name)


def put(name: str, text: str = "") -> None:
    part = FOLDER / f"{name}.part"
    part.write_text(text)
    part.rename(FOLDER / name)


def wait_for(name: str) -> Path:
    """Waits for ever: the guard ends this rank at the deadline."""
    while not (FOLDER / name).exists():
        time.sleep(0.002)
    return FOLDER / name


def meet(session: Session) -> None:
    """Replaces torch's store: rank 0 publishes the root's address, the others fetch it."""
    if session.address:
        put("address", session.address or "")
    elif not os.environ.get("ODDRANK_CONTROL_ADDR"):
        session.connect(wait_for("address").read_text())


def run_stages(session: Session) -> None:
    for stage in STAGES:
        try:
            assert json.loads(session.enter(stage)) == {"stage": stage}
            put(f"{stage}{RANK}")
            if os.environ.get("TEST_LAST") == f"{stage} {RANK}":
                wait_for(f"{stage}-results{WORLD - 1}")
            session.progress("step 1")
            if count := int(os.environ.get("TEST_TIMESTAMPS", "0")):
                run_timestamps(session, stage, count)
            if os.environ.get("TEST_CLOCK"):
                compare_clocks(session)
            session.progress("step 2", waiting=True)
            size = int(os.environ.get("TEST_RESULT", "0"))
            session.publish(f"{stage} of {RANK}".encode().ljust(size))
        except (RuntimeError, OddrankError) as error:
            session.fail(f"{type(error).__name__}: {error}")
            return


def run_timestamps(session: Session, stage: str, count: int) -> None:
    """Runs collectives made of files: each ends once every rank is in it."""
    timestamps = session.timestamps(count)
    for number in range(count):
        timestamps.enter()
        put(f"{stage}-collective{number}-{RANK}")
        for other in range(WORLD):
            wait_for(f"{stage}-collective{number}-{other}")
        timestamps.leave()
    both = (timestamps.starts(), timestamps.durations())
    numbers = [list(memoryview(stamps).cast("q")) for stamps in both]
    said = json.dumps([*numbers, timestamps.count, timestamps.dropped])
    put(f"{stage}-timestamps{RANK}", said)


def compare_clocks(session: Session) -> None:
    """Writes, with the shortcut and without: [offset, error] or why there is none, and the seconds.

    If TEST_CLOCK_AFTER is set, waits first for the file of this name in the folder.
    """
    wait_for(os.environ.get("TEST_CLOCK_AFTER", ""))
    said: list[object] = []
    for shortcut in (True, False):
        began = time.monotonic()
        try:
            said.append(session.sync_clock(float(os.environ["TEST_CLOCK"]), shortcut=shortcut))
        except OddrankError as error:
            said.append(str(error))
        said.append(time.monotonic() - began)
    put(f"clock{RANK}", json.dumps(said))


def hold_back_forks(seconds: float) -> None:
    """Makes every forked child sleep first, as on an overloaded machine."""
    handler = ctypes.CFUNCTYPE(None)(lambda: time.sleep(seconds))
    hold_back_forks.keep = handler  # type: ignore[attr-defined]
    # pthread_atfork() itself is not exported by the C library; this is what it calls.
    assert ctypes.CDLL(None).__register_atfork(None, None, handler, None) == 0


def main() -> int:
    node = RANK // LOCAL_WORLD
    if os.environ.get("TEST_LATE_GUARD") == str(RANK):
        hold_back_forks(0.5)
    place = ("env", RANK, RANK % LOCAL_WORLD, WORLD, LOCAL_WORLD, node, 1, f"host{node}", None, "")
    session = start(
        Launch(*place),
        deadline=DEADLINE,
        judge=judge,
        join_seconds=float(os.environ.get("TEST_JOIN", DEADLINE)),
        rendezvous_file=os.environ.get("TEST_RENDEZVOUS_FILE", ""),
    )
    put(f"guard{RANK}", f"{session.guard} {time.monotonic() + DEADLINE}")
    try:
        meet(session)
        run_stages(session)
        return session.finish()
    except SessionEnded as ended:
        return ended.exit_code


if __name__ == "__main__":
    sys.exit(main())
