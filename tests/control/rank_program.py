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

from oddrank.control.root import Root, Snapshot
from oddrank.control.session import Member, Session, SessionEnded, start
from oddrank.errors import OddrankError

STAGES = ("first", "second", "third")
# On a busy machine, ranks started together reach their sessions one after the other.
JOIN_SECONDS = float(os.environ.get("TEST_OPEN_JOIN", "30"))


def judge(root: Root, folder: Path, stage_seconds: float) -> int:
    # Where a rank never comes, the time for it begins once all others are here.
    here = int(os.environ.get("TEST_HERE", "0"))
    while sum(one.contact == "ok" for one in root.snapshot()) < here:
        time.sleep(0.01)
    root.open_join(JOIN_SECONDS)
    round_ = root.collect("join")
    for stage in STAGES:
        if round_.reason != "complete":
            break
        root.go(stage, stage_seconds, json.dumps({"stage": stage}))
        put(folder / f"go-{stage}", "")
        round_ = root.collect(stage, partial(note_results, folder), every=0.05)
    verdict = {
        "stage": round_.stage,
        "reason": round_.reason,
        "results": {rank: value.decode() for rank, value in round_.results.items()},
        "states": [dataclasses.asdict(state) for state in round_.states.values()],
        "limits": round_.limits,
        "odd": [claim.text for claim in round_.odd],
    }
    put(folder / "verdict.json", json.dumps(verdict))
    return 0 if round_.reason == "complete" else 1


def note_results(folder: Path, snapshot: Snapshot) -> None:
    """Tells the ranks how many results of the stage the root has."""
    file = folder / f"{snapshot.stage}-results{snapshot.results}"
    if not file.exists():
        put(file, "")


def put(file: Path, text: str) -> None:
    file.with_suffix(".part").write_text(text)
    file.with_suffix(".part").rename(file)


def meet(session: Session, folder: Path) -> None:
    """Replaces torch's store: rank 0 publishes the root's address, the others fetch it."""
    if session.address():
        put(folder / "address", session.address() or "")
    elif not os.environ.get("ODDRANK_CONTROL_ADDR"):
        wait_for(folder / "address")
        session.connect((folder / "address").read_text())


def run_stages(session: Session, folder: Path) -> None:
    rank = int(os.environ["RANK"])
    for stage in STAGES:
        try:
            assert json.loads(session.enter(stage)) == {"stage": stage}
            put(folder / f"{stage}{rank}", "")
            if os.environ.get("TEST_LAST") == f"{stage} {rank}":
                wait_for(folder / f"{stage}-results{int(os.environ['WORLD_SIZE']) - 1}")
            session.progress("step 1")
            run_timestamps(session, folder, stage, int(os.environ.get("TEST_TIMESTAMPS", "0")))
            if os.environ.get("TEST_CLOCK"):
                compare_clocks(session, folder)
            session.progress("step 2", waiting=True)
            size = int(os.environ.get("TEST_RESULT", "0"))
            session.publish(f"{stage} of {rank}".encode().ljust(size))
        except (RuntimeError, OddrankError) as error:
            session.fail(f"{type(error).__name__}: {error}")
            return


def wait_for(file: Path) -> None:
    """Waits for ever: the guard ends this rank at the deadline."""
    while not file.exists():
        time.sleep(0.002)


def run_timestamps(session: Session, folder: Path, stage: str, count: int) -> None:
    """Runs collectives made of files: each ends once every rank is in it."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if not count:
        return
    timestamps = session.timestamps(count)
    for number in range(count):
        timestamps.enter()
        put(folder / f"{stage}-collective{number}-{rank}", "")
        for other in range(world):
            wait_for(folder / f"{stage}-collective{number}-{other}")
        timestamps.leave()
    both = (timestamps.starts(), timestamps.durations())
    numbers = [list(memoryview(stamps).cast("q")) for stamps in both]
    said = json.dumps([*numbers, timestamps.count, timestamps.dropped])
    put(folder / f"{stage}-timestamps{rank}", said)


def compare_clocks(session: Session, folder: Path) -> None:
    """Writes, with the shortcut and without: [offset, error] or why there is none, and the seconds.

    If TEST_CLOCK_AFTER is set, waits first for the file of this name in the folder.
    """
    wait_for(folder / os.environ.get("TEST_CLOCK_AFTER", ""))
    seconds = float(os.environ["TEST_CLOCK"])
    said: list[object] = []
    for shortcut in (True, False):
        began = time.monotonic()
        try:
            said.append([*session.sync_clock(seconds, shortcut=shortcut)])
        except OddrankError as error:
            said.append(str(error))
        said.append(time.monotonic() - began)
    put(folder / f"clock{os.environ['RANK']}", json.dumps(said))


def hold_back_forks(seconds: float) -> None:
    """Makes every forked child sleep first, as on an overloaded machine."""
    handler = ctypes.CFUNCTYPE(None)(lambda: time.sleep(seconds))
    hold_back_forks.keep = handler  # type: ignore[attr-defined]
    # pthread_atfork() itself is not exported by the C library; this is what it calls.
    assert ctypes.CDLL(None).__register_atfork(None, None, handler, None) == 0


def main() -> int:
    folder, deadline, stage_seconds = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    nodes = int(os.environ.get("TEST_NODES", "1"))
    local_world = world // nodes
    member = Member(
        rank=rank,
        local_rank=rank % local_world,
        world=world,
        local_world=local_world,
        node=rank // local_world,
        host=f"host{rank // local_world}",
    )
    if os.environ.get("TEST_LATE_GUARD") == str(rank):
        hold_back_forks(0.5)
    session = start(
        member,
        deadline=deadline,
        judge=lambda root: judge(root, folder, stage_seconds),
        join_seconds=float(os.environ.get("TEST_JOIN", deadline)),
        rendezvous_file=os.environ.get("TEST_RENDEZVOUS_FILE", ""),
    )
    put(folder / f"guard{rank}", f"{session.guard} {time.monotonic() + deadline}")
    try:
        meet(session, folder)
        run_stages(session, folder)
        return session.finish()
    except SessionEnded as ended:
        return ended.exit_code


if __name__ == "__main__":
    sys.exit(main())
