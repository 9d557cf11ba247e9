"""Saved tensors: dumps, comparisons and hostile files."""

import json
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import jsonschema
import pytest

from oddrank import OddrankError
from oddrank.report import SCHEMA_FILE

torch = pytest.importorskip("torch")
from oddrank.replicas import checkpoints, compare  # noqa: E402

SCHEMA = json.loads(SCHEMA_FILE.read_text())


def state(seed: int = 0) -> dict[str, "torch.Tensor"]:
    torch.manual_seed(seed)
    return {
        "norm.weight": torch.randn(32).bfloat16(),
        "up.weight": torch.randn(64, 32),
        "scalar": torch.tensor(3),
        "empty": torch.zeros(0, 4),
        "mask": torch.rand(9) > 0.5,
    }


def safetensors(path: Path, tensors: dict[str, "torch.Tensor"], shift: int = 0) -> Path:
    """Writes the format by its description; shift: bytes that make the data unaligned."""
    names = {"torch.bfloat16": "BF16", "torch.float32": "F32", "torch.int64": "I64",
             "torch.bool": "BOOL"}  # fmt: skip
    header, data = {"__metadata__": {"format": "pt"}}, b"\0" * 0
    for name, tensor in tensors.items():
        content = bytes(tensor.contiguous().view(-1).view(torch.uint8).tolist())
        header[name] = {
            "dtype": names[str(tensor.dtype)],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(content)],
        }
        data += content
    text = json.dumps(header).encode() + b" " * shift
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def oddrank(*arguments: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "oddrank", "replicas", *map(str, arguments)],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "COLUMNS": "100"},
    )  # fmt: skip


@pytest.mark.parametrize("shift", range(5))
def test_one_state_has_the_same_digests_in_every_format(tmp_path: Path, shift: int):
    torch.save({"model": state()}, tmp_path / "a.pt")
    torch.save({"model": state()}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    flat = {f"model.{name}": tensor for name, tensor in state().items()}
    safetensors(tmp_path / "a.safetensors", flat, shift)
    one, old, other = (
        checkpoints.read(str(tmp_path / name)) for name in ("a.pt", "old.pt", "a.safetensors")
    )
    assert one.as_json()["tensors"] == old.as_json()["tensors"] == other.as_json()["tensors"]
    assert len(one.tensors) == 5
    assert compare.report([one, old, other]).verdict == "healthy"


def test_a_changed_element_is_shown_with_both_values(tmp_path: Path):
    changed = state()
    changed["up.weight"][40, 3] = 7.0
    changed["up.weight"][41, 0] = 8.0
    files = [tmp_path / "a.pt", tmp_path / "b.safetensors"]
    torch.save(state(), files[0])
    safetensors(files[1], changed)
    report = compare.report([checkpoints.read(str(file)) for file in files])
    assert report.verdict == "odd"
    assert report.data["different"] == ["up.weight"]
    assert "differ in 1 of 5 tensors: up.weight (2 of 2048 elements, first at [40, 3]:" in (
        report.summary
    )
    assert "7 (0x40e00000)" in report.summary


def test_of_three_files_the_odd_one_is_named(tmp_path: Path):
    for name, seed in (("a", 0), ("b", 1), ("c", 0)):
        torch.save({**state(seed), "step": 4000 + seed}, tmp_path / f"{name}.pt")
    files = [str(tmp_path / f"{name}.pt") for name in "abc"]
    report = compare.report([checkpoints.read(file) for file in files])
    assert {finding.cause for finding in report.findings} == {"different-files", "different-values"}
    assert str(report.findings[0].who.device) == files[1]
    assert "step is 4000 in" in " ".join(finding.what for finding in report.findings)


def test_missing_tensors_other_shapes_and_other_types_are_told(tmp_path: Path):
    other = state()
    del other["mask"]
    other["scalar"] = other["scalar"].view(1)
    other["norm.weight"] = other["norm.weight"].float()
    torch.save(state(), tmp_path / "a.pt")
    torch.save(other, tmp_path / "b.pt")
    report = compare.report([checkpoints.read(str(tmp_path / f)) for f in ("a.pt", "b.pt")])
    told = " ".join(e.text for finding in report.findings for e in finding.evidence)
    assert "mask: not in all files" in told
    assert "int64 [] is not int64 [1]" in told
    assert "bfloat16 [32] is not float32 [32]" in told


@pytest.mark.timeout(600)  # it imports torch seven times
def test_the_command_dumps_and_compares_a_dump_with_a_folder(tmp_path: Path):
    folder, dumped = tmp_path / "step4000", tmp_path / "dump.json"
    folder.mkdir()
    half = dict(list(state().items())[:2])
    rest = dict(list(state().items())[2:])
    safetensors(folder / "model-1.safetensors", half)
    safetensors(folder / "model-2.safetensors", rest)
    shown = oddrank("dump", folder, "--json", dumped)
    assert shown.returncode == 0, shown.stderr
    assert "up.weight" in shown.stdout
    jsonschema.validate(json.loads(dumped.read_text()), SCHEMA)
    again = oddrank("compare", dumped, folder)
    assert (again.returncode, again.stdout.splitlines()[0]) == (0, "replicas compare: healthy")
    half["norm.weight"][5] = 1
    safetensors(folder / "model-1.safetensors", half)
    now = oddrank("compare", dumped, folder, "--json", "-")
    assert now.returncode == 1
    jsonschema.validate(json.loads(now.stdout), SCHEMA)
    assert "norm.weight (other digest)" in json.loads(now.stdout)["summary"]
    for fraction in ("-1", "1", "nan", "x"):
        wrong = oddrank("compare", dumped, folder, "--within", fraction)
        assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)


class Harmful:
    def __reduce__(self):
        return (os.system, ("touch harmed",))


def test_pickled_code_is_refused_and_not_run(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"a": torch.ones(2), "b": Harmful()}, tmp_path / "bad.pt")
    with pytest.raises(OddrankError, match="more than tensors and plain data, and is not run"):
        checkpoints.read("bad.pt")
    assert not (tmp_path / "harmed").exists()
    done = oddrank("dump", "bad.pt")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def header(**changes: object) -> bytes:
    one = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}
    text = json.dumps({"a": one}).encode()
    return struct.pack("<Q", len(text)) + text + bytes(8)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"x", bytes(40), b"{}", b'{"data": 3}', b"[" * 50_000, b'{"a":' * 50_000,
        struct.pack("<Q", 1 << 60) + b"{}", struct.pack("<Q", 9) + b"{}",
        struct.pack("<Q", 2) + b"{x" + bytes(8), struct.pack("<Q", 2) + b"{}",
        header(data_offsets=[0, 16]), header(data_offsets=[8, 0]), header(data_offsets=[-8, 0]),
        header(shape=[1 << 62, 4]), header(shape=[-2]), header(shape="ab"), header(dtype="F31"),
        header(shape=[3]), header(shape=[0, 1 << 70]), header(data_offsets=[0]),
        header(data_offsets=[0.0, 8.0]),
        b"PK\x03\x04" + bytes(60), b"\x80\x02}q\x00.",
        b'{"data": {"tensors": {"a": {"digest": "00", "dtype": "x", "shape": []}}, "values": {}}}',
        b'{"data": {"tensors": {"a": {"digest": "' + b"00" * 16
        + b'", "dtype": "x", "shape": [Infinity]}}, "values": {}}}',
    ],
)  # fmt: skip
def test_a_broken_file_is_one_line(tmp_path: Path, content: bytes):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(OddrankError) as error:
        checkpoints.read(str(tmp_path / "file"))
    assert "\n" not in str(error.value)


def test_folders_without_tensors_and_missing_files_are_one_line(tmp_path: Path):
    for path in (tmp_path, tmp_path / "none.pt"):
        with pytest.raises(OddrankError, match=str(path)):
            checkpoints.read(str(path))


def test_a_file_of_a_folder_that_needs_code_is_left_out_with_the_reason(tmp_path: Path):
    """As training_args.bin beside the model, which transformers pickles."""
    safetensors(tmp_path / "model.safetensors", state())
    torch.save(Harmful(), tmp_path / "training_args.bin")
    found = checkpoints.read(str(tmp_path))
    assert len(found.tensors) == 5
    assert "is not run" in found.skipped["training_args.bin"]
    again = oddrank("compare", tmp_path, tmp_path)
    assert again.returncode == 0
    assert "files compared; not compared: " in " ".join(again.stdout.split())
    shown = oddrank("dump", tmp_path)
    assert "training_args.bin holds more than tensors" in " ".join(shown.stderr.split())


def test_files_of_a_folder_with_the_same_names_in_them_are_told_apart(tmp_path: Path):
    for rank in range(2):
        content = {"weight": torch.full((3,), float(rank)), "step": 7 + rank}
        torch.save(content, tmp_path / f"old{rank}.pt", _use_new_zipfile_serialization=False)
        safetensors(tmp_path / f"rank{rank}.safetensors", {"weight": content["weight"]})
    found = checkpoints.read(str(tmp_path))
    assert list(found.tensors) == [
        "old0.pt: weight", "old1.pt: weight", "weight", "rank1.safetensors: weight",
    ]  # fmt: skip
    assert found.values == {"old0.pt: step": "7", "old1.pt: step": "8"}


def test_long_lists_of_numbers_are_one_value(tmp_path: Path):
    for last in range(2):
        torch.save({"w": torch.ones(1), "rng": [*range(900), last]}, tmp_path / f"{last}.pt")
    files = [checkpoints.read(str(tmp_path / f"{last}.pt")) for last in range(2)]
    (finding,) = compare.report(files).findings
    assert finding.cause == "different-values"
    assert finding.what.startswith("rng is [0, 1, 2, ")


def test_a_state_that_holds_itself_or_claims_too_much_is_one_line(tmp_path: Path):
    ring: list[object] = [torch.ones(1)]
    ring.append(ring)
    torch.save(ring, tmp_path / "ring.pt")
    torch.save(torch.ones(1).expand(1 << 40), tmp_path / "wide.pt")
    for name, said in (("ring.pt", "holds itself"), ("wide.pt", "claims more than the file")):
        with pytest.raises(OddrankError, match=said):
            checkpoints.read(str(tmp_path / name))


def test_what_has_no_memory_in_a_file_is_left_out_with_the_reason(tmp_path: Path):
    content = {
        "weight": torch.ones(3),
        "meta": torch.ones(3, device="meta"),
        "sparse": torch.eye(3).to_sparse(),
    }
    torch.save(content, tmp_path / "a.pt")
    found = checkpoints.read(str(tmp_path / "a.pt"))
    assert list(found.tensors) == ["weight"]
    assert found.skipped["meta"] == "it is a meta tensor without values"
    assert "only strided tensors are compared" in found.skipped["sparse"]


def test_a_compressed_file_is_refused_before_it_takes_memory(tmp_path: Path):
    torch.save({"w": torch.zeros(1 << 16)}, tmp_path / "a.pt")
    with (
        zipfile.ZipFile(tmp_path / "a.pt") as plain,
        zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    with pytest.raises(OddrankError, match=r"its record 'a/\S+' is compressed or cut off"):
        checkpoints.read(str(tmp_path / "b.pt"))


def test_lists_that_hold_each_other_many_times_are_one_line(tmp_path: Path, monkeypatch):
    """Some hundred bytes, and 2^60 paths to one tensor."""
    monkeypatch.setattr(checkpoints, "_MOST_NODES", 1000)
    thing: object = torch.ones(1)
    for _ in range(60):
        thing = [thing, thing]
    torch.save(thing, tmp_path / "laughs.pt")
    with pytest.raises(OddrankError, match="has more than 1000 values"):
        checkpoints.read(str(tmp_path / "laughs.pt"))


def test_a_tensor_that_a_file_holds_many_times_is_not_read_for_ever(tmp_path: Path):
    torch.save([torch.ones(1 << 10).expand(1 << 12, 1 << 10)] * 50, tmp_path / "many.pt")
    with pytest.raises(OddrankError, match="claims more than the file can hold"):
        checkpoints.read(str(tmp_path / "many.pt"))


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "a.pt")
    for path in (tmp_path, tmp_path / "a.pt"):
        with pytest.raises(OddrankError, match=r"a\.pt is no regular file"):
            checkpoints.read(str(path))


def test_conjugates_in_files_are_compared(tmp_path: Path):
    values = torch.randn(5, dtype=torch.complex64)
    torch.save({"x": values.conj()}, tmp_path / "a.pt")
    torch.save({"x": values}, tmp_path / "b.pt")
    report = compare.report([checkpoints.read(str(tmp_path / f)) for f in ("a.pt", "b.pt")])
    assert "x (5 of 5 elements, first at [0]: " in report.summary
