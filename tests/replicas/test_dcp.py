"""Folders of torch.distributed.checkpoint: the same tensors as in one file, and hostile ones."""

import os
import pickle
import shutil
from pathlib import Path

import pytest

from bench.told import refusal, without_foreign_words
from golden import Golden

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as torch_dcp  # noqa: E402

from oddrank.replicas import checkpoints, compare  # noqa: E402
from replicas.scenarios import Harmful, bits  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def state() -> dict[str, object]:
    torch.manual_seed(0)
    return {
        "model": {
            "weight": torch.randn(40, 8),
            "half": torch.randn(6, 5).bfloat16().t(),
            "scalar": torch.tensor(3.5),
            "mask": torch.rand(9) > 0.5,
        },
        "step": 4000,
        "groups": [{"lr": 0.1, "betas": (0.9, 0.99)}],
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dcp") / "step4000"
    torch_dcp.save(state(), checkpoint_id=folder, no_dist=True)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "step4000"))


def distcp(folder: Path) -> Path:
    (file,) = folder.glob("*.distcp")
    return file


def test_a_folder_has_the_tensors_and_values_of_a_file(folder: Path, tmp_path: Path):
    torch.save(state(), tmp_path / "a.pt")
    both = [checkpoints.read(str(path)) for path in (folder, tmp_path / "a.pt")]
    assert bits(both[0]) == bits(both[1])
    assert both[0].values["step"] == "4000"
    assert both[0].values == both[1].values
    assert compare.report(both).verdict == "healthy"
    # As Megatron's common.pt.
    torch.save({"step": 4000, "weight": torch.ones(3)}, folder / "common.pt")
    beside = checkpoints.read(str(folder))
    assert beside.values["common.pt: step"] == "4000"
    assert beside.tensors.keys() == {*both[0].tensors, "common.pt: weight"}
    (folder / "common.pt").unlink()
    changed = state()
    changed["model"]["weight"][7, 3] = 5.0
    torch.save(changed, tmp_path / "a.pt")
    report = compare.report([both[0], checkpoints.read(str(tmp_path / "a.pt"))])
    assert "model.weight (1 of 320 elements, first at [7, 3]:" in report.summary


def test_code_in_the_index_is_not_run(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)
    edit(folder, lambda index: setattr(index, "planner_data", Harmful()))
    assert len(checkpoints.read(str(folder)).tensors) == 4
    assert not (folder / "harmed").exists()


def test_an_object_that_needs_code_is_left_out_with_the_reason(tmp_path: Path):
    thing = {"weight": torch.ones(3), "thing": Harmful()}
    torch_dcp.save(thing, checkpoint_id=tmp_path / "a", no_dist=True)
    found = checkpoints.read(str(tmp_path / "a"))
    assert list(found.tensors) == ["weight"]
    why = found.skipped["thing"]
    assert "is not run" in why
    assert compare.report([found, found]).why.endswith(f"not compared: {tmp_path}/a: thing ({why})")


def edit(folder: Path, change) -> None:
    index = pickle.loads((folder / ".metadata").read_bytes())
    change(index)
    (folder / ".metadata").write_bytes(pickle.dumps(index))


def each_place(**changes):
    def change(index) -> None:
        for place in index.storage_data.values():
            vars(place).update(changes)

    return lambda folder: edit(folder, change)


def sizes(*size: int):
    def change(index) -> None:
        index.state_dict_metadata["model.weight"].size = torch.Size(size)

    return lambda folder: edit(folder, change)


def lose_a_part(index) -> None:
    (key,) = (key for key in index.storage_data if key.fqn == "model.weight")
    del index.storage_data[key]


# A memo with the number 2^32 - 1, for which the unpickler in C makes an array; bytes of 2^46.
HIGH_MEMO = b"\x80\x04]r\xff\xff\xff\xff."
LONG_BYTES = b"\x80\x04\x8e" + (1 << 46).to_bytes(8, "little") + b"."
INDICES = (b"", b"\x80\x04].", b"\x80\x04cposix\nsystem\n", bytes(999), HIGH_MEMO, LONG_BYTES)
SPOILS = (
    *(lambda folder, text=text: (folder / ".metadata").write_bytes(text) for text in INDICES),
    lambda folder: distcp(folder).unlink(),
    lambda folder: os.truncate(distcp(folder), 900),
    lambda folder: distcp(folder).write_bytes(bytes(1 << 16)),
    each_place(relative_path="../x"), each_place(offset=-1), each_place(length=1 << 60),
    each_place(length=1 << 40), each_place(transform_descriptors=["zstd"]),
    sizes(40, 9), sizes(1 << 30, 8), sizes(39, 8), sizes(320),
    lambda folder: edit(folder, lose_a_part),
)  # fmt: skip


def test_a_broken_folder_is_one_line(made: Path, tmp_path: Path, golden: Golden):
    said = []
    for number, spoil in enumerate(SPOILS):
        folder = Path(shutil.copytree(made, tmp_path / str(number) / "step4000"))
        spoil(folder)
        said.append(refusal(checkpoints.read, str(folder)).replace(f"{folder.parent}/", ""))
    golden(without_foreign_words("\n".join(said)))
