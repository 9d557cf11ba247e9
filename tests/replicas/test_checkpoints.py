"""Saved tensors: comparisons and hostile files."""

import json
import os
import re
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import forked
from bench.told import by_name, refusal, told, without_foreign_words
from golden import Golden
from oddrank import OddrankError
from oddrank.report import Report
from replicas.scenarios import Harmful, bits
from reports import valid

torch = pytest.importorskip("torch")
from oddrank.replicas import checkpoints, compare  # noqa: E402


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
    line = [sys.executable, "-m", "oddrank", "replicas", *map(str, arguments)]
    return forked.run(line, text=True, env={**os.environ, "COLUMNS": "100"})


def saved(path: Path, content: object) -> str:
    torch.save(content, path)
    return str(path)


def report_of(*files: object) -> Report:
    return compare.report([checkpoints.read(str(file)) for file in files])


def test_one_state_has_the_same_digests_in_every_format(tmp_path: Path):
    flat = {f"model.{name}": tensor for name, tensor in state().items()}
    files = [saved(tmp_path / "a.pt", {"model": state()}), str(tmp_path / "old.pt")]
    torch.save({"model": state()}, files[1], _use_new_zipfile_serialization=False)
    files += [str(safetensors(tmp_path / f"{n}.safetensors", flat, n)) for n in range(5)]
    read = [checkpoints.read(file) for file in files]
    assert len(read[0].tensors) == 5
    assert all(bits(one) == bits(read[0]) for one in read)
    assert compare.report(read).verdict == "healthy"


def test_what_differs_between_files_is_shown(tmp_path: Path, golden: Golden):
    changed, other = state(), state()
    changed["up.weight"][40, 3], changed["up.weight"][41, 0] = 7.0, 8.0
    safetensors(tmp_path / "changed.safetensors", changed)
    del other["mask"]
    other["scalar"], other["norm.weight"] = other["scalar"].view(1), other["norm.weight"].float()
    values = torch.randn(5, dtype=torch.complex64)
    a, x = saved(tmp_path / "a.pt", state()), saved(tmp_path / "x.pt", {"x": values})
    steps = [saved(tmp_path / f"{n}.pt", {**state(n % 2), "step": 4000 + n % 2}) for n in range(3)]
    lists = [saved(tmp_path / f"l{n}.pt", {"w": torch.ones(1), "rng": [*range(900), n]})
             for n in range(2)]  # fmt: skip
    nans = [saved(tmp_path / f"n{n}.pt", {"x": torch.tensor([1.0, n, n])})
            for n in (1.0, float("nan"))]  # fmt: skip
    said = {}
    for name, files, tensors, causes in (
        ("two elements", [a, tmp_path / "changed.safetensors"], ["up.weight"], {"different-files"}),
        ("missing tensors, shapes and types", [a, saved(tmp_path / "b.pt", other)], None, None),
        ("one of three", steps, None, {"different-files", "different-values"}),
        ("a conjugate", [saved(tmp_path / "c.pt", {"x": values.conj()}), x], ["x"], None),
        ("one of many numbers", lists, [], {"different-values"}),
        ("a number and NaN", nans, ["x"], None),
        ("one that lacks a tensor of most", [x, x, lists[0]], ["x", "w"], None),
    ):
        report = report_of(*files)
        assert report.verdict == "odd", name
        assert tensors is None or report.data["different"] == tensors, name
        assert causes is None or {one.cause for one in report.findings} == causes, name
        said[name] = told(*report.findings)
    (of_three, *_) = report_of(*steps).findings
    assert str(of_three.who.device) == steps[1]
    golden(without_values(by_name(said)).replace(f"{tmp_path}/", ""))


def without_values(text: str) -> str:
    """Leaves out random values, which differ between versions of torch."""
    return re.sub(r"[-+.\w()]+ \(0x[0-9a-f]+\)|(?<=largest difference ).*", "VALUE", text)


def test_differences_are_shown_as_numbers_or_as_bits(golden: Golden):
    bits = torch.tensor([[1, 2], [1, 3]], dtype=torch.uint8)
    nan = torch.tensor([torch.nan, 1.0, 3.0])
    small = torch.tensor([[1.0, 2.0], [1.0, 4.0]]).to(torch.float8_e4m3fn)
    golden("\n".join(compare.first_difference(*pair) for pair in (
        [one.view(torch.float4_e2m1fn_x2) for one in bits],  # torch only stores it
        (nan, torch.tensor([1.0, 1.0, 2.0])), (torch.tensor([1, 2]), torch.tensor([1, 3])), small,
    )))  # fmt: skip


def test_an_odd_files_value_is_told_instead_of_that_of_most(tmp_path: Path):
    files = [saved(tmp_path / f"{i}.pt", {"a": torch.tensor([1, 2 + i % 2])}) for i in range(3)]
    assert re.search(r"first at \[1\]: 3 \(.*\) instead of 2 \(", report_of(*files).summary)


def test_the_command_compares_a_file_with_a_folder(tmp_path: Path):
    folder, whole = tmp_path / "step4000", saved(tmp_path / "whole.pt", state())
    folder.mkdir()
    half = dict(list(state().items())[:2])
    rest = dict(list(state().items())[2:])
    safetensors(folder / "model-1.safetensors", half)
    safetensors(folder / "model-2.safetensors", rest)
    again = oddrank("compare", whole, folder)
    assert (again.returncode, again.stdout.splitlines()[0]) == (0, "replicas compare: healthy")
    half["norm.weight"][5] = 1
    safetensors(folder / "model-1.safetensors", half)
    now = oddrank("compare", whole, folder, "--json", "-")
    assert now.returncode == 1
    assert "norm.weight (1 of 32 elements, first at [5]" in valid(now.stdout)["summary"]


def test_pickled_code_is_refused_and_not_run(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"a": torch.ones(2), "b": Harmful()}, tmp_path / "bad.pt")
    with pytest.raises(OddrankError, match="more than tensors and plain data, and is not run"):
        checkpoints.read("bad.pt")
    assert not (tmp_path / "harmed").exists()
    done = oddrank("compare", "bad.pt", "bad.pt")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def header(**changes: object) -> bytes:
    one = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}
    text = json.dumps({"a": one}).encode()
    return struct.pack("<Q", len(text)) + text + bytes(8)


BROKEN = (
    b"", b"x", bytes(40), b"{}", b'{"data": 3}', b"[" * 50_000, b'{"a":' * 50_000,
    struct.pack("<Q", 1 << 60) + b"{}", struct.pack("<Q", 9) + b"{}",
    struct.pack("<Q", 2) + b"{x" + bytes(8), struct.pack("<Q", 2) + b"{}",
    header(data_offsets=[0, 16]), header(data_offsets=[8, 0]), header(data_offsets=[-8, 0]),
    header(shape=[1 << 62, 4]), header(shape=[-2]), header(shape="ab"), header(dtype="F31"),
    header(shape=[3]), header(shape=[0, 1 << 70]), header(data_offsets=[0]),
    header(data_offsets=[0.0, 8.0]),
    b"PK\x03\x04" + bytes(60), b"\x80\x02}q\x00.",
)  # fmt: skip


def test_a_broken_file_is_one_line(tmp_path: Path, golden: Golden):
    said = []
    for content in BROKEN:
        (tmp_path / "file").write_bytes(content)
        said.append(refusal(checkpoints.read, str(tmp_path / "file")))
    said += [refusal(checkpoints.read, str(path)) for path in (tmp_path, tmp_path / "none.pt")]
    golden(without_foreign_words("\n".join(said).replace(str(tmp_path), "FOLDER")))


def test_a_file_of_a_folder_that_needs_code_is_left_out_with_the_reason(tmp_path: Path):
    """As training_args.bin beside the model, which transformers pickles."""
    safetensors(tmp_path / "model.safetensors", state())
    torch.save(Harmful(), tmp_path / "training_args.bin")
    found = checkpoints.read(str(tmp_path))
    assert len(found.tensors) == 5
    assert "is not run" in found.skipped["training_args.bin"]
    again = oddrank("compare", tmp_path, tmp_path)
    assert again.returncode == 0
    said = " ".join(again.stdout.split())
    assert f"compared; not compared: {tmp_path}: training_args.bin (it needs the code of" in said


def test_a_folder_in_a_checkpoint_is_told_to_be_left_out(tmp_path: Path):
    """As of DeepSpeed's and Accelerate's states beside the model."""
    safetensors(tmp_path / "model.safetensors", state())
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "events").touch()
    assert report_of(tmp_path, tmp_path).verdict == "healthy"
    (tmp_path / "global_step100" / "rank0").mkdir(parents=True)
    saved(tmp_path / "global_step100" / "rank0" / "optim.pt", state())
    (tmp_path / "random_states_0.pkl").touch()
    report = report_of(tmp_path, tmp_path)
    assert report.verdict == "incomplete"
    assert "global_step100/" in report.why
    assert "random_states_0.pkl" in report.why


def test_two_tensors_of_one_path_are_two(tmp_path: Path):
    files = [
        saved(tmp_path / f"{n}.pt", {"a": {"b.c": torch.tensor(n)}, "a.b": {"c": torch.ones(1)}})
        for n in range(2)
    ]
    assert report_of(*files).data["different"] == ["a.b.c"]


def test_a_checkpoint_that_is_not_whole_is_one_line(tmp_path: Path, golden: Golden):
    """As transformers writes it: shards, and an index of which one has which tensor."""
    shards = [tmp_path / f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    for shard, (name, tensor) in zip(shards, state().items(), strict=False):
        safetensors(shard, {name: tensor})
    index = tmp_path / "model.safetensors.index.json"

    def listed(*more: str) -> None:
        names = [*list(state())[:3], *more]
        index.write_text(json.dumps({"weight_map": {n: shards[min(i, 2)].name
                                                    for i, n in enumerate(names)}}))  # fmt: skip

    listed()
    assert len(checkpoints.read(str(tmp_path)).tensors) == 3
    listed("mask")
    said = [refusal(checkpoints.read, str(tmp_path))]
    index.write_text("{}")
    said.append(refusal(checkpoints.read, str(tmp_path)))
    index.unlink()
    shards[1].unlink()
    said.append(refusal(checkpoints.read, str(tmp_path)))
    listed()
    said.append(refusal(checkpoints.read, str(tmp_path)))
    golden("\n".join(said).replace(str(tmp_path), "FOLDER"))
    assert len(checkpoints.read(str(shards[0])).tensors) == 1


def test_the_index_of_another_format_and_numbers_from_0_on_make_no_checkpoint_half(tmp_path: Path):
    for n, (name, tensor) in enumerate(list(state().items())[:2]):
        safetensors(tmp_path / f"model-0000{n}-of-00002.safetensors", {name: tensor})
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": {"w": "pytorch_model-00001-of-00001.bin"}}))
    assert len(checkpoints.read(str(tmp_path)).tensors) == 2


def test_names_in_ddp_and_compile_are_those_without(tmp_path: Path):
    files = [
        saved(tmp_path / f"{i}.pt", {"model": {f"{prefix}{k}": v for k, v in state().items()}})
        for i, prefix in enumerate(("", "module.", "module._orig_mod."))
    ]
    report = report_of(*files)
    assert (report.verdict, report.data["tensors"]) == ("healthy", 5)
    assert "names without module" in report.why
    # A model whose own layers have these names keeps them.
    both = {"module.w": torch.ones(1), "w": torch.zeros(1)}
    report = report_of(saved(tmp_path / "a", both), saved(tmp_path / "b", {"w": both["w"]}))
    assert report.data["different"] == ["module.w"]


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


def test_what_has_no_memory_in_a_file_is_left_out_with_the_reason_and_not_healthy(tmp_path: Path):
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
    del content["meta"]
    files = [saved(tmp_path / f"{n}.pt", content) for n in range(2)]
    assert report_of(*files).verdict == "incomplete"


def test_what_claims_too_much_holds_itself_or_would_be_waited_for_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
):
    ring: list[object] = [torch.ones(1)]
    ring.append(ring)
    laughs: object = torch.ones(1)  # some hundred bytes, and 2^60 paths to one tensor
    for _ in range(60):
        laughs = [laughs, laughs]
    saved(tmp_path / "plain.pt", {"w": torch.zeros(1 << 16)})
    with (
        zipfile.ZipFile(tmp_path / "plain.pt") as plain,
        zipfile.ZipFile(tmp_path / "packed.pt", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    (tmp_path / "pipes").mkdir()
    os.mkfifo(tmp_path / "pipes" / "a.pt")
    monkeypatch.setattr(checkpoints, "_MOST_NODES", 1000)
    many = [torch.ones(1 << 10).expand(1 << 12, 1 << 10)] * 50
    said = [
        refusal(checkpoints.read, str(file))
        for file in (
            saved(tmp_path / "ring.pt", ring), tmp_path / "packed.pt", tmp_path / "pipes",
            saved(tmp_path / "wide.pt", torch.ones(1).expand(1 << 40)),
            saved(tmp_path / "many.pt", many), saved(tmp_path / "laughs.pt", laughs),
            tmp_path / "pipes" / "a.pt",
        )
    ]  # fmt: skip
    golden(re.sub(r"'\w+/data\S*'", "RECORD", "\n".join(said)).replace(str(tmp_path), "FOLDER"))
