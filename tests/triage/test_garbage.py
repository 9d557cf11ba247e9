"""Files that are broken, cut off, gone, or only look like evidence: a note, and never an error."""

import json
import random
import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oddrank.errors import OddrankError
from oddrank.inputs import Item, Notes
from oddrank.triage import report
from oddrank.triage.evidence import kernel, kubernetes, nccl_debug, nccl_ras, nvidia_smi
from oddrank.triage.evidence.kernel import WORDS
from oddrank.triage.facts import Death
from oddrank.triage.judges import ras
from oddrank.triage.tree import lines
from oddrank.triage.view import view
from triage.facts_of import item_of, noted
from triage.test_kernel import XID
from triage.test_kubernetes import listed, pod
from triage.test_nccl_debug import coll, completion, init
from triage.test_nvidia_smi import HEAD, gpu

PIECES = {
    kernel: [*(word for word, _ in WORDS.each), XID[:30], "[9.000000] ", "\n", "pid="],
    nccl_debug: [init(1), coll(1, 1), completion("n"), "\n", "opCount ", "comm 0x5", "9" * 30,
                 "- Init COMPLETE", init(1)[:-2], coll(1, 1)[:-3]],
    nccl_ras: ["#0-0 (ab) MISMATCH", "  3 ranks have launched up to operation ", "\n", "9" * 40,
               "  Rank 5 -- GPU 5", " managed by process 1 on node x", "Communicators...",
               "Job summary\n", "   1 1 1\n", "The missing ranks: 1,1"],
    nvidia_smi: [*gpu().splitlines(keepends=True), HEAD, " " * 9, ":", "\n"],
}  # fmt: skip


@pytest.mark.parametrize("module", PIECES, ids=lambda module: module.KIND.name)
@given(data=st.data())
def test_garbage_never_raises(tmp_path_factory, module, data):
    some = st.sampled_from(PIECES[module]) | st.text(max_size=9)
    text = "".join(data.draw(st.lists(some, max_size=30)))
    content = (HEAD * (module is nvidia_smi) + text).encode(errors="replace")
    path = tmp_path_factory.mktemp("garbage") / "log"
    path.write_bytes(content)
    item = Item("log", path, len(content), content)
    module.KIND.sniff(item)
    ras.judge(view(module.KIND.read([item], Notes())))


KEYS = ("kind metadata name spec status containerStatuses state terminated conditions type"
        " exitCode reason containers env involvedObject")  # fmt: skip


@given(data=st.data())
def test_documents_of_any_shape_never_raise(tmp_path_factory, data):
    words = st.sampled_from(["Pod", "Node", "Event", "True", "OOMKilling", "", "x"])
    keys = st.sampled_from(KEYS.split())
    tree = data.draw(st.recursive(
        st.none() | st.integers() | words,
        lambda c: st.lists(c, max_size=3) | st.dictionaries(keys, c, max_size=6),
        max_leaves=20,
    ))  # fmt: skip
    found = tree if isinstance(tree, dict) else {"status": tree, "metadata": tree}
    kind = data.draw(st.sampled_from(["Pod", "Node", "Event"]))
    made = {"kind": "List", "items": [{**found, "kind": kind}, tree]}
    path = tmp_path_factory.mktemp("garbage") / "k.json"
    noted(kubernetes.KIND, path, json.dumps(made).encode())


def test_what_is_not_readable_in_a_file_is_a_note_and_the_rest_is_read(tmp_path, golden):
    infinite = listed(pod({"exitCode": float("inf")}), pod({"exitCode": 1}))
    rows = {
        "pods cut off": (kubernetes, listed(pod({"exitCode": 1}))[:-9], Death, 0),
        "pods in another encoding": (kubernetes, '{"kind": "Pod",\n"x": "\udcff"}', Death, 0),
        "pods in many lists": (kubernetes, '{"kind": "Pod", "x": ' + "[" * 100_000, Death, 0),
        "pods that are a number": (kubernetes, '{"kind": "List", "items": 5}', Death, 0),
        "pods with odd values": (kubernetes, infinite, Death, 1),
    }
    said = []
    for name, (module, text, kind, count) in rows.items():
        content = text.encode(errors="surrogateescape")
        found, lines = noted(module.KIND, tmp_path / "file.json", content)
        assert sum(isinstance(fact, kind) for fact in found) == count, name
        said += [name, *lines]
    notes = Notes()
    assert list(kernel.KIND.read([Item("log", tmp_path / "none", 9, b"NVRM: Xid")], notes)) == []
    golden("\n".join([*said, "gone", *notes.lines]))


def test_a_log_that_only_has_some_of_the_words_is_not_of_this_kind(tmp_path):
    path = tmp_path / "train.log"
    for module, text in (
        (nccl_debug, "the opCount grows; Call to ibv_poll failed\n"),
        (nccl_ras, "foo() ERROR: bar\nstep 3 (x) MISMATCH\nRank 3 has started\nINIT  done\n"),
        (nvidia_smi, "RuntimeError: GPU is lost\n"),
    ):
        path.write_text(text)
        assert not module.KIND.sniff(item_of(path)), text


DATA = Path(__file__).with_name("data")
CASES = sorted(path for path in DATA.rglob("*.txt") if path.stat().st_size < 1 << 18)
NUMBERS = (b"0", b"-1", b"007", b"1e400", b"4194305", b"9" * 20)


def mutated(content, rnd):
    """Returns a text whose lines are gone or doubled, numbers or bytes changed, or end cut off."""
    for _ in range(rnd.randint(1, 5)):
        lines = content.split(b"\n")
        at, end = rnd.randrange(len(lines)), rnd.randrange(len(content) + 1)
        numbers = [*re.finditer(rb"\d+", content[:20_000])] or [re.match(b"", content)]
        number = rnd.choice(numbers)
        content = rnd.choice([
            b"\n".join(lines[:at] + lines[at + rnd.randint(1, 9) :]),
            b"\n".join(lines[:at] + 2 * lines[at : at + 9] + lines[at + 9 :]),
            content[: number.start()] + rnd.choice(NUMBERS) + content[number.end() :],
            content[:end] + bytes([rnd.randrange(256)]) + content[end + 1 :],
            content[:end],
        ])  # fmt: skip
    return content


@given(seed=st.integers(0, 1 << 32))
def test_mutated_cases_never_raise_and_whoever_is_named_has_a_next_step(tmp_path_factory, seed):
    rnd, folder = random.Random(seed), tmp_path_factory.mktemp("cases")
    for number in range(rnd.randint(1, 3)):
        path = folder / rnd.choice([f"{number}.txt", f"rank_{number}.log", f"_dump_{number}"])
        path.write_bytes(mutated(rnd.choice(CASES).read_bytes(), rnd))
    with suppress(OddrankError):
        found = report.read([str(folder)])
        made = report.made(found)
        assert [*report.explanation(found), *lines(found.view.stacks)]
        assert report.parts(found) is not None
        assert all(one.next for one in made.findings if one.names_somebody())
