"""Real hangs of a 4-rank gloo DDP job: `trace where` shows each rank's place, alive and dead."""

import json

import pytest

from oddrank import _native
from patience import PATIENCE, until
from trace_command import oddrank
from training import training

pytestmark = [pytest.mark.needs("torch"), pytest.mark.timeout(600)]
# Kind of hang of the last rank -> the function that it hangs in.
HANGS = {
    "collective": "skip_the_collective",
    "data": "next_batch",
    "lock": "wait_for_the_lock",
    "callback": "average_in_a_callback",
}


def where(folder):
    done = oddrank("where", "--json", "-", folder=folder)
    return json.loads(done.stdout)["data"]["ranks"] if done.returncode == 0 else []


def functions(rank):
    return [
        frame["function"]
        for thread in rank["threads"] if thread["tid"] == rank["pid"]
        for frame in thread["stack"]
    ]  # fmt: skip


def without_a_stack(rank):
    return [note for note in rank["notes"] if "without a stack" in note]


@pytest.mark.parametrize("how", HANGS)
def test_a_hang_is_shown_alive_and_after_all_were_killed(tmp_path, how):
    def hanging():
        ranks = where(tmp_path)
        inside = [HANGS[how] in functions(rank) for rank in ranks]
        if inside != [False] * 3 + [True] or any(rank["step"] != 3 for rank in ranks):
            return False
        in_data, in_callback = ranks[3]["sections"] == ["data"], bool(without_a_stack(ranks[3]))
        return (in_data, in_callback) == (how == "data", how == "callback") and ranks

    with training(tmp_path, "--hang", how, "--steps", "1000"):
        alive = until(hanging, 240)
    dead = where(tmp_path)
    assert [rank["alive"] for rank in alive] == [True] * 4
    assert [rank["alive"] for rank in dead] == [False] * 4
    for ranks in (alive, dead):
        assert [rank["rank"] for rank in ranks] == [0, 1, 2, 3]
        for rank in ranks:
            assert functions(rank)[:3] == ["<module>", "main", "train"]
            assert (HANGS[how] in functions(rank)) == (rank["rank"] == 3)
    assert alive[3]["sections"] == (["data"] if how == "data" else [])
    assert len(without_a_stack(alive[3])) == (1 if how == "callback" else 0)


def test_the_example_trains_to_its_end_and_its_record_stays(tmp_path):
    """Ignores the exit code: torch sometimes aborts when gloo's threads are destroyed."""
    with training(tmp_path, "--steps", "5") as (_, launcher):
        launcher.wait(PATIENCE.seconds(240))
    assert [(rank["alive"], rank["step"]) for rank in where(tmp_path)] == [(False, 4)] * 4
    for file in tmp_path.rglob("rank*.trace"):
        _, events, _ = _native.core().trace_history(str(file), 1000)
        assert "trained" in {mark for *_, mark in events}
