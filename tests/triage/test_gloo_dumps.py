"""Dumps of gloo: without the ranks of groups, without messages, and with failed calls closed."""

from pathlib import Path
from typing import Any

from oddrank.triage.facts import Fact, Progress
from oddrank.triage.judges import waits
from triage.facts_of import of_kind
from triage.flight_dumps import Dump, dump, entry, facts, progress
from triage.told import check


def unnamed(*entries: Dump) -> Dump:
    """Returns a dump as gloo makes it: it does not list its groups."""
    numbered = [{**made, "record_id": number} for number, made in enumerate(entries)]
    return {**dump(*numbered), "pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}}}


def of_gloo(op: str, seq: int, state: str = "completed", **more: Any) -> Dump:
    return entry(op, seq, backend="gloo", state=state, **more)


def in_data(op: str, seq: int, state: str = "completed", **more: Any) -> Dump:
    return of_gloo(op, seq, state, group="5", desc="data", **more)


def gathered(seq: int, size: int) -> Dump:
    """An all_gather whose outputs show how many ranks its group has."""
    return in_data("all_gather", seq, output_sizes=[[size, 8, 4]])


def groups(found: list[Fact]) -> dict[str, tuple[int, ...]]:
    return {f.group.name: f.group.ranks for f in of_kind(found, Progress)}


def test_gloo_groups_get_their_ranks_from_who_used_them(tmp_path: Path, golden: Any) -> None:
    def of(name: str) -> Dump:
        return unnamed(
            of_gloo("all_reduce", 1), of_gloo("all_reduce", 1, group=name, desc="undefined")
        )

    found = facts(tmp_path, of("1"), of("1"), of("2"), of("2"))
    assert groups(found) == {"0": (0, 1, 2, 3), "1": (0, 1), "2": (2, 3)}
    assert {p.no_messages for p in of_kind(found, Progress)} == {True}
    # The rank that left no dump belongs to a group that shows one rank more.
    waiting = unnamed(gathered(1, 4), in_data("all_reduce", 2, "scheduled"))
    one_more = facts(tmp_path, waiting, waiting, None, waiting)
    assert groups(one_more) == {"5": (0, 1, 2, 3)}
    # Rank 1 waits for a rank without a dump, in a group whose size nothing shows.
    one = unnamed(gathered(1, 3), in_data("all_reduce", 2, "scheduled"))
    other = unnamed(gathered(1, 3), of_gloo("all_reduce", 1, "scheduled", group="3", desc="tensor"))
    alone = facts(tmp_path, one, other, one)
    assert groups(alone)["3"] == ()

    def timed_out(count: int) -> Dump:
        calls = [of_gloo("all_reduce", n, "scheduled", retired=True) for n in range(1, count + 1)]
        return {**dump(*calls), "pg_config": {}}

    late = facts(tmp_path, timed_out(3), timed_out(2), timed_out(3))
    assert ([call.seq for call in progress(late)[0].open], progress(late)[0].timed_out) == (
        [3], True,
    )  # fmt: skip
    check(golden, {
        "a rank without a dump": (one_more, ("not-entered-or-inside", (2,), 1)),
        "a group that one rank alone used": (alone, ("unknown", (), 0)),
        "a call that timed out counts as open": (late, ("not-entered", (1,), 1)),
    }, waits.judge)  # fmt: skip


def test_a_call_that_never_followed_these_before_is_unusual(tmp_path: Path) -> None:
    steps = [in_data("all_reduce", seq, size=(1 + seq % 3,)) for seq in range(1, 13)]
    for last, usual in (
        (in_data("all_reduce", 13, "scheduled", size=(2,)), True),
        (of_gloo("barrier", 1, "scheduled", size=None), False),
    ):
        found = facts(tmp_path, unnamed(*steps, last))
        (call,) = progress(found, last["process_group"][0])[0].open
        assert call.usual is usual
