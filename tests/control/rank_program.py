"""The program that control's tests run as every rank: three stages, no torch, verdict as JSON.

Arguments: the file that the judge writes, the deadline in seconds, the seconds a stage may take.
"""

import dataclasses
import json
import os
import sys

from oddrank.control import Member, Root, SessionEnded, start

STAGES = ("first", "second", "third")


def judge(root: Root, verdict_file: str, stage_seconds: float) -> int:
    root.open_join(stage_seconds)
    round_ = root.collect("join")
    for stage in STAGES:
        if round_.reason != "complete":
            break
        root.go(stage, stage_seconds, json.dumps({"stage": stage}))
        round_ = root.collect(stage, on_progress=lambda snapshot: None)
    verdict = {
        "stage": round_.stage,
        "reason": round_.reason,
        "results": {rank: value.decode() for rank, value in round_.results.items()},
        "states": [dataclasses.asdict(state) for state in round_.states.values()],
        "limits": round_.limits,
        "odd": round_.odd,
        "foreign": root.foreign,
    }
    with open(verdict_file + ".part", "w") as file:
        json.dump(verdict, file)
    os.replace(verdict_file + ".part", verdict_file)
    return 0 if round_.reason == "complete" else 1


def main() -> int:
    verdict_file, deadline, stage_seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    member = Member(
        rank=rank,
        local_rank=int(os.environ.get("LOCAL_RANK", rank)),
        world=world,
        local_world=int(os.environ.get("LOCAL_WORLD_SIZE", world)),
        node=int(os.environ.get("GROUP_RANK", 0)),
        host=os.environ.get("TEST_HOST", "localhost"),
    )
    session = start(
        member, deadline=deadline, judge=lambda root: judge(root, verdict_file, stage_seconds)
    )
    try:
        for stage in STAGES:
            assert json.loads(session.enter(stage)) == {"stage": stage}
            try:
                session.progress("step 1")
                session.progress("step 2", waiting=True)
                session.publish(f"{stage} of {rank}".encode())
            except Exception as error:
                session.fail(f"{type(error).__name__}: {error}")
                break
        return session.finish()
    except SessionEnded as ended:
        return ended.exit_code


if __name__ == "__main__":
    sys.exit(main())
