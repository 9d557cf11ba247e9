"""The program that control's tests run as every rank: three stages, no torch, verdict as JSON.

Arguments: a folder for the verdict and the root's address, the run's deadline, a stage's deadline.
"""

import ctypes
import dataclasses
import json
import os
import sys
import time
from pathlib import Path

from oddrank.control import Member, Root, Session, SessionEnded, start
from oddrank.errors import OddrankError

STAGES = ("first", "second", "third")
# Ranks that are started together come to their sessions one after the other on a busy machine.
JOIN_SECONDS = 4.0


def judge(root: Root, folder: Path, stage_seconds: float) -> int:
    root.open_join(JOIN_SECONDS)
    round_ = root.collect("join")
    for stage in STAGES:
        if round_.reason != "complete":
            break
        root.go(stage, stage_seconds, json.dumps({"stage": stage}))
        put(folder / f"go-{stage}", "")
        round_ = root.collect(stage, on_progress=lambda snapshot: None)
    verdict = {
        "stage": round_.stage,
        "reason": round_.reason,
        "results": {rank: value.decode() for rank, value in round_.results.items()},
        "states": [dataclasses.asdict(state) for state in round_.states.values()],
        "limits": round_.limits,
        "odd": [claim.text for claim in round_.odd],
        "foreign": root.foreign,
    }
    put(folder / "verdict.json", json.dumps(verdict))
    return 0 if round_.reason == "complete" else 1


def put(file: Path, text: str) -> None:
    file.with_suffix(".part").write_text(text)
    file.with_suffix(".part").rename(file)


def meet(session: Session, folder: Path) -> None:
    """Stands for the store: rank 0 publishes the root's address, the others fetch it."""
    if session.address():
        put(folder / "address", session.address() or "")
    end = time.monotonic() + JOIN_SECONDS
    while session.needs_address and time.monotonic() < end:
        if (folder / "address").exists():
            session.connect((folder / "address").read_text())
        time.sleep(0.01)


def run_stages(session: Session, folder: Path) -> None:
    rank = int(os.environ["RANK"])
    for stage in STAGES:
        try:
            assert json.loads(session.enter(stage)) == {"stage": stage}
            put(folder / f"{stage}{rank}", "")
            session.progress("step 1")
            run_laps(session, folder, stage, int(os.environ.get("TEST_LAPS", "0")))
            if os.environ.get("TEST_CLOCK"):
                compare_clocks(session, folder)
            session.progress("step 2", waiting=True)
            session.publish(f"{stage} of {rank}".encode())
        except RuntimeError as error:
            session.fail(f"{type(error).__name__}: {error}")
            return


def run_laps(session: Session, folder: Path, stage: str, count: int) -> None:
    """Collectives made of files: each ends once every rank is in it."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if not count:
        return
    laps = session.laps(count)
    for number in range(count):
        laps.enter()
        put(folder / f"{stage}-lap{number}-{rank}", "")
        while not all((folder / f"{stage}-lap{number}-{r}").exists() for r in range(world)):
            time.sleep(0.002)
        laps.leave()
    numbers = [list(memoryview(stamps).cast("q")) for stamps in (laps.starts(), laps.durations())]
    put(folder / f"{stage}-laps{rank}", json.dumps([*numbers, laps.count, laps.dropped]))


def compare_clocks(session: Session, folder: Path) -> None:
    """With the shortcut and without: [offset, error] or why not, and the seconds it took.

    Waits first for the file of this folder that TEST_CLOCK_AFTER names, if it is set.
    """
    while not (folder / os.environ.get("TEST_CLOCK_AFTER", "")).exists():
        time.sleep(0.01)
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
    """Every child that this process forks sleeps first, as on a machine with too much to do."""
    handler = ctypes.CFUNCTYPE(None)(lambda: time.sleep(seconds))
    hold_back_forks.keep = handler  # type: ignore[attr-defined]
    # What pthread_atfork() calls, which is no symbol of the C library itself.
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
    (folder / f"start{rank}").touch()  # from now on the deadline counts
    session = start(
        member,
        deadline=deadline,
        judge=lambda root: judge(root, folder, stage_seconds),
        join_seconds=float(os.environ.get("TEST_JOIN", deadline)),
        meeting_point=os.environ.get("TEST_MEETING_POINT", ""),
    )
    put(folder / f"guard{rank}", str(session.guard))
    try:
        meet(session, folder)
        run_stages(session, folder)
        return session.finish()
    except SessionEnded as ended:
        return ended.exit_code


if __name__ == "__main__":
    sys.exit(main())
