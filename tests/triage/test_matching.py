"""The first call in which ranks differ, and what always followed the calls before it."""

from oddrank.triage.matching import Signature, differs, expected, first_difference, fork

STEP = [Signature("all_reduce", "float32", size) for size in (2048, 1024, 512)]
REDUCE, ROOT_1 = Signature("all_reduce", "float32", 8), Signature("broadcast", "float32", 8, root=1)


def issued(calls):
    return {seq: {call: [0, 1]} for seq, call in enumerate(calls, 1)}


def by_rank(*ranks):
    """Returns what ranks issued: the calls of each, from number 1 on."""
    found = {}
    for rank, calls in enumerate(ranks):
        for seq, call in enumerate(calls, 1):
            found.setdefault(seq, {}).setdefault(call, []).append(rank)
    return found


def test_what_is_the_same_on_all_ranks_of_a_right_program_is_compared():
    for one, other, expected_ in (
        (REDUCE, ROOT_1, "op"),
        (Signature("broadcast", root=0), Signature("broadcast", root=1), "root"),
        (Signature("broadcast", root=0), Signature("broadcast"), None),
        (REDUCE, Signature("all_reduce", "float16", 8), "dtype"),
        (REDUCE, Signature("all_reduce", "", 8), None),
        (REDUCE, Signature("all_reduce", "float32", 9), "sizes"),
        (REDUCE, Signature("all_reduce", "float32"), None),
        # Inputs of these may differ, outputs may not; of others neither is compared.
        (Signature("all_gather", inputs=1, outputs=8), Signature("all_gather", inputs=2, outputs=8),
         None),
        (Signature("all_gather", outputs=8), Signature("all_gather", outputs=9), "sizes"),
        (Signature("scatter", inputs=8, outputs=1), Signature("scatter", outputs=2), "sizes"),
        (Signature("all_to_all", inputs=8, outputs=1), Signature("all_to_all", inputs=9), None),
    ):  # fmt: skip
        assert differs(one, other) == expected_, (one, other)
        assert differs(other, one) == expected_, (one, other)


def test_the_first_difference_says_who_issued_what_the_commonest_first():
    odd = Signature("all_reduce", "float32", 9)
    unknown = Signature("all_reduce")  # of a rank that does not tell: it fits both
    assert first_difference({}) is None
    assert first_difference(by_rank([REDUCE], [REDUCE], [unknown])) is None
    assert first_difference(by_rank([REDUCE, odd], [REDUCE, REDUCE], [REDUCE, REDUCE])) == (
        2, "sizes", [(REDUCE, (1, 2)), (odd, (0,))],
    )  # fmt: skip
    # Of two that are as common, that of the lowest rank.
    assert first_difference(by_rank([odd], [REDUCE])) == (1, "sizes", [(odd, (0,)), (REDUCE, (1,))])
    assert first_difference(by_rank([odd], [REDUCE], [unknown], [REDUCE])) == (
        1, "sizes", [(odd, (0, 2)), (REDUCE, (1, 3))],
    )  # fmt: skip


def test_ranks_go_different_ways_where_most_that_may_make_a_call_do():
    every, some = (0, 1, 2, 3), (0, 1, 2)
    world, message = (Signature("all_reduce 0"), every), (Signature("message"), every)
    part = (Signature("all_reduce 1"), some)
    for at, most in enumerate(([message, world], [world, message])):
        ways = {rank: [world, part] if rank == 2 else most for rank in every}
        assert fork(ways) == (at, "op", [(0, 1, 3), (2,)])
    # Who is in no smaller group can't make its call.
    assert fork({0: [part], 1: [part], 2: [world], 3: [world]}) == (0, "op", [(0, 1), (2,)])
    # Half of them are no majority, and who has come less far did nothing else.
    assert fork({0: [message], 1: [message], 2: [world], 3: [world]}) is None
    assert fork({0: [world, message], 1: [world], 2: [world], 3: [world]}) is None
    assert fork({}) is None


def test_the_same_calls_in_another_order_are_told_from_other_calls():
    a, b, c = (Signature(op) for op in ("all_reduce", "broadcast", "barrier"))

    def how(one, other):
        seq, differs_in, _ = first_difference(by_rank(one, other))
        return seq, differs_in

    assert how([c, a, b], [c, b, a]) == (2, "order")
    assert how([a, b, c], [b, c, a]) == (1, "order")
    assert how([a, b], [b, c]) == (1, "op")
    assert how([a, c], [b, c]) == (1, "op")
    assert how([a], [b, a]) == (1, "op")  # the one has not come so far
    assert how([a, *[c] * 14, b], [b, *[c] * 14, a]) == (1, "order")
    assert how([a, *[c] * 15, b], [b, *[c] * 15, a]) == (1, "op")  # too far apart
    # Nobody knows what they issued in between.
    assert first_difference({1: {a: [0], b: [1]}, 3: {b: [0], a: [1]}})[1] == "op"


def test_training_repeats_itself():
    save = Signature("gather")
    now_and_then = [*STEP, *STEP, save, *STEP, *STEP, save, *STEP, *STEP, *STEP]
    long = [*STEP, *STEP, save] * 4  # after six calls, not after three, it is clear what comes
    # After 8 calls, and 24: what stands before them differs, and what follows their ends elsewhere.
    eight = "pqrstpqr"
    more = f"{eight}suvwabcd{eight}"
    of_8, of_24 = (
        [Signature(op) for op in f"1{block}n2{block}n3{block}"] for block in (eight, more)
    )
    for calls, seq, call in (
        (STEP * 5, 16, STEP[0]),
        ([*STEP * 5, STEP[0]], 17, STEP[1]),
        (STEP * 5, 4, None),  # what comes later does not count
        (STEP * 2 + STEP[:2], 9, None),
        (STEP * 3, 10, STEP[0]),
        (STEP * 2, 7, None),  # seen once
        (now_and_then, len(now_and_then) + 1, None),
        (long, len(long) + 1, STEP[0]),
        (long[:-1], len(long), save),
        (STEP[:1] * 3 + STEP[1:2] + STEP[:1] * 3, 8, None),
        (of_8, len(of_8) + 1, Signature("n")),
        (of_24, len(of_24) + 1, Signature("n")),
        ([], 1, None),
        (STEP + STEP[:1], 5, None),
    ):
        assert expected(issued(calls), seq) == call, (calls, seq)
