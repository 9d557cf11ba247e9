"""`oddrank trace diff`: the first call, step or collective in which two ranks differ."""

import json

from oddrank.trace import jobs
from oddrank.trace.diff import History, Item, compare, read, text
from texts import texts
from trace_command import oddrank, plain

SCRIPT = texts(__file__)["script"]


def found_in(job):
    return compare(*map(read, jobs.find([str(job)]).files))


def step(number):
    return Item("step", str(number), "", 1)


def call(name):
    return Item("call", name, "/x/train.py", 1)


def collective(sequence, operation="allreduce_", size=4096, group="0"):
    return Item("collective", operation, group, 1, sequence, size)


def pair(a, b, whole=False):
    return History(0, "node1", 100, tuple(a), whole), History(1, "node1", 101, tuple(b), whole)


F, G, H, REDUCE = call("f"), call("g"), call("h"), collective(4)
EPOCH = [item for i in range(10) for item in (step(i), call("f"))]
# What rank 0 and rank 1 did -> how many of it, from where on, is common; what each did then.
HISTORIES = {
    "a rank that stopped has nothing more": (
        ([step(7), F, G, step(8), F], [step(6), step(7), F]), ("7", 2, ["g", "8", "f"], [])),
    "a skipped collective": (
        ([step(1), REDUCE, collective(5), F], [step(1), REDUCE, F]),
        ("1", 2, ["allreduce_", "f"], ["f"])),
    "another operation": (
        ([step(1), REDUCE], [step(1), collective(4, "broadcast_")]),
        ("1", 1, ["allreduce_"], ["broadcast_"])),
    "another size": (
        ([step(1), REDUCE, F], [step(1), collective(4, size=8192), F]),
        ("1", 1, ["allreduce_", "f"], ["allreduce_", "f"])),
    "another number: one was skipped long ago": (
        ([step(1), REDUCE, F], [step(1), collective(3), F]),
        ("1", 1, ["allreduce_", "f"], ["allreduce_", "f"])),
    "an unknown number is no difference": (
        ([step(1), REDUCE, F], [step(1), collective(None), G]), ("1", 2, ["f"], ["g"])),
    "groups that only one of the two is in are compared by what is done in them": (
        ([step(1), REDUCE, collective(9, group="5"), F],
         [step(1), REDUCE, collective(7, group="6"), F]), ("1", 4, [], [])),
    "a group that both are in is not": (
        ([step(1), REDUCE, collective(9, group="5"), F], [step(1), REDUCE, collective(5), F]),
        ("1", 2, ["allreduce_", "f"], ["allreduce_", "f"])),
    "in a second epoch the steps of the first are no anchors": (
        ([*EPOCH, *EPOCH[:12]], [*EPOCH, *EPOCH[:7]]), ("3", 1, ["f", "4", "f", "5", "f"], [])),
    "without steps the first collective with one number": (
        ([call("x"), collective(8), G], [collective(8), H]), ("allreduce_", 1, ["g"], ["h"])),
    "without either arm()": (([F, G], [F, H], True), (None, 1, ["g"], ["h"])),
    "nothing in common since arm()": (([F], [G], True), (None, 0, ["f"], ["g"])),
    "nothing recorded": (([], [], True), (None, 0, [], [])),
    "nothing in common": (
        ([step(1), step(2)], [step(7), step(8)]), (None, 0, [], [])),
}  # fmt: skip


def test_where_two_histories_part(golden):
    said = []
    for name, (histories, expected) in HISTORIES.items():
        found = compare(*pair(*histories))
        nexts = [[item.name for item in items] for items in (found.a_next, found.b_next)]
        begin = found.begin and found.begin.name
        assert (begin, found.common, *nexts) == expected, name
        assert found.compared == (name != "nothing in common"), name
        said += [f"==== {name}", *text(found), ""]
    golden("\n".join(said))


def test_a_window_whose_beginning_is_overwritten_has_only_whole_steps(run_ranks, tmp_path):
    found = found_in(run_ranks(tmp_path, SCRIPT.replace("STEPS", "9000")))
    assert not found.a.whole
    assert found.a.steps[0] > 0
    assert next(iter(text(found))).endswith(
        f": steps {found.a.steps[0]} to 8999 in its record, earlier events are overwritten"
    )
    assert found.a.steps[-1] == 8999
    assert [item.name for item in found.b_next] == ["skip_batch", "backward"]


def test_a_step_longer_than_the_window_is_said_to_be_overwritten(run_ranks, tmp_path):
    work = "    for _ in range(STEPS and 40_000):\n        forward()\n"
    busy = SCRIPT.replace("    forward()\n", work, 1).replace("STEPS", "1")
    found = found_in(run_ranks(tmp_path, busy))
    assert (found.a.steps, found.a.overwritten) == ([], (0,))
    assert next(iter(text(found))).endswith(
        ": no step in its record, the calls of step 0 are overwritten (raise ODDRANK_TRACE_MB)"
    )


def test_the_command_takes_files_or_ranks_and_shows_from_the_last_common_step_on(
    run_ranks, tmp_path, golden
):
    job = run_ranks(tmp_path, SCRIPT.replace("STEPS", "4"))
    file = tmp_path / "diff.json"
    done = oddrank("diff", *jobs.find([str(job)]).files, folder=job.parent, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    golden(plain(done.stdout))
    named = oddrank("diff", "0", "1", "--json", file, folder=job.parent, cwd=tmp_path)
    assert named.stdout == done.stdout
    report = json.loads(file.read_text())
    assert report["tool"] == "trace diff"
    assert report["data"]["last_common"]["name"] == "forward"
    assert found_in(job).a.steps == [0, 1, 2, 3]
