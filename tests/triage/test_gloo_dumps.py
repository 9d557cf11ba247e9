"""Dumps of gloo: without the ranks of groups, without messages, and with failed calls closed."""

from pathlib import Path

from oddrank.triage.facts import Call, Fact, Progress
from oddrank.triage.judges import waits
from oddrank.triage.view import view
from triage.flight_dumps import Dump, dump, entry, facts, progress


def unnamed(*entries: Dump) -> Dump:
    """Returns a dump as gloo makes it: it does not list its groups."""
    numbered = [{**made, "record_id": number} for number, made in enumerate(entries)]
    return {**dump(*numbered), "pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}}}


def in_data(op: str, seq: int, state: str = "completed", **more: object) -> Dump:
    return entry(op, seq, group="5", desc="data", backend="gloo", state=state, **more)


def gathered(seq: int, size: int) -> Dump:
    """An all_gather whose outputs show how many ranks its group has."""
    return in_data("all_gather", seq, output_sizes=[[size, 8, 4]])


def groups(found: list[Fact]) -> dict[str, tuple[int, ...]]:
    return {f.group.name: f.group.ranks for f in found if isinstance(f, Progress)}


def test_gloo_groups_get_their_ranks_from_who_used_them(tmp_path: Path) -> None:
    def of(name: str) -> Dump:
        made = dump(
            entry("all_reduce", 1, backend="gloo"),
            entry("all_reduce", 1, group=name, desc="undefined", backend="gloo", record_id=1),
        )
        made["pg_config"] = {"": {"name": "", "desc": "", "ranks": "[]"}}
        return made

    found = facts(tmp_path, of("1"), of("1"), of("2"), of("2"))
    groups = {f.group.name: f.group.ranks for f in found if isinstance(f, Progress)}
    assert groups == {"0": (0, 1, 2, 3), "1": (0, 1), "2": (2, 3)}


def test_a_gloo_call_that_timed_out_counts_as_open(tmp_path: Path) -> None:
    def of(count: int) -> Dump:
        made = dump(*(
            entry("all_reduce", seq, backend="gloo", state="scheduled", retired=True)
            for seq in range(1, count + 1)
        ))  # fmt: skip
        made["pg_config"] = {}
        return made

    found = facts(tmp_path, of(3), of(2), of(3))
    assert [call.seq for call in progress(found)[0].open] == [3]
    assert progress(found)[0].timed_out
    (suspect,) = waits.judge(view(found))
    assert [process.rank for process in suspect.processes] == [1]


def test_the_rank_that_left_no_dump_belongs_to_a_group_that_shows_one_rank_more(tmp_path):
    waiting = unnamed(gathered(1, 4), in_data("all_reduce", 2, "scheduled"))
    dumps = [waiting, waiting, None, waiting]
    found = facts(tmp_path, *dumps)
    assert groups(found) == {"5": (0, 1, 2, 3)}
    (suspect,) = waits.judge(view(found))
    assert ([p.rank for p in suspect.processes], suspect.certainty) == ([2], 1)


def test_of_a_group_that_one_rank_alone_used_the_others_are_not_known(tmp_path):
    # Rank 1 waits for a rank without a dump, in a group whose size nothing shows.
    one = unnamed(gathered(1, 3), in_data("all_reduce", 2, "scheduled"))
    other = unnamed(gathered(1, 3), entry("all_reduce", 1, group="3", backend="gloo",
                                          desc="tensor", state="scheduled"))  # fmt: skip
    found = facts(tmp_path, one, other, one)
    assert groups(found)["3"] == ()
    assert not [s for s in waits.judge(view(found)) if s.certainty]


def test_a_call_that_never_followed_these_before_is_unusual(tmp_path):
    steps = [in_data("all_reduce", seq, size=(1 + seq % 3,)) for seq in range(1, 13)]
    usual = in_data("all_reduce", 13, "scheduled", size=(2,))
    leaving = entry("barrier", 1, backend="gloo", state="scheduled", size=None)

    def last(made: Dump) -> Call:
        found = facts(tmp_path, unnamed(*steps, made))
        (call,) = (
            call for p in progress(found, made["process_group"][0]).values() for call in p.open
        )
        return call

    assert last(usual).usual is True
    assert last(leaving).usual is False


def test_messages_are_not_in_it(tmp_path):
    found = facts(tmp_path, unnamed(gathered(1, 2)), unnamed(gathered(1, 2)))
    assert {p.no_messages for p in found if isinstance(p, Progress)} == {True}
