"""Folders of torch.distributed.checkpoint: the same tensors as in one file, and hostile ones."""

import os
import pickle
import shutil
from pathlib import Path

import pytest

from oddrank import OddrankError

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as torch_dcp  # noqa: E402

from oddrank.replicas import checkpoints, compare  # noqa: E402

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
    assert both[0].as_json()["tensors"] == both[1].as_json()["tensors"]
    assert both[0].values["step"] == "4000"
    assert both[0].values == both[1].values
    assert compare.report(both).verdict == "healthy"


def test_a_changed_element_is_shown_with_both_values(folder: Path, tmp_path: Path):
    changed = state()
    changed["model"]["weight"][7, 3] = 5.0
    torch.save(changed, tmp_path / "a.pt")
    report = compare.report([checkpoints.read(str(path)) for path in (folder, tmp_path / "a.pt")])
    assert "differ in 1 of 4 tensors: model.weight (1 of 320 elements, first at [7, 3]:" in (
        report.summary
    )


def test_a_bit_that_rots_in_the_file_is_found(folder: Path):
    before = checkpoints.read(str(folder))
    content = bytearray(distcp(folder).read_bytes())
    weight = state()["model"]["weight"].numpy().tobytes()
    content[content.index(weight) + 100] ^= 4
    distcp(folder).write_bytes(content)
    report = compare.report([before, checkpoints.read(str(folder))])
    assert report.data["different"] == ["model.weight"]


# A memo with the number 2^32 - 1, for which the unpickler in C makes an array; bytes of 2^46.
HIGH_MEMO = b"\x80\x04]r\xff\xff\xff\xff."
LONG_BYTES = b"\x80\x04\x8e" + (1 << 46).to_bytes(8, "little") + b"."


class Harmful:
    def __reduce__(self):
        return (os.system, ("touch harmed",))


def test_code_in_the_index_is_not_run(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)
    index = pickle.loads((folder / ".metadata").read_bytes())
    index.planner_data = Harmful()
    (folder / ".metadata").write_bytes(pickle.dumps(index))
    assert len(checkpoints.read(str(folder)).tensors) == 4
    assert not (folder / "harmed").exists()


def test_an_object_that_needs_code_is_left_out_with_the_reason(tmp_path: Path):
    thing = {"weight": torch.ones(3), "thing": Harmful()}
    torch_dcp.save(thing, checkpoint_id=tmp_path / "a", no_dist=True)
    found = checkpoints.read(str(tmp_path / "a"))
    assert list(found.tensors) == ["weight"]
    assert "is not run" in found.skipped["thing"]
    assert compare.report([found, found]).why.endswith(
        "not compared: " + str(tmp_path / "a: thing")
    )


def _edit(folder: Path, change) -> None:
    index = pickle.loads((folder / ".metadata").read_bytes())
    change(index)
    (folder / ".metadata").write_bytes(pickle.dumps(index))


def _each_place(change):
    def edit(folder: Path) -> None:
        _edit(folder, lambda index: [change(place) for place in index.storage_data.values()])

    return edit


def _sizes(size: tuple[int, ...]):
    def change(index) -> None:
        index.state_dict_metadata["model.weight"].size = torch.Size(size)

    return lambda folder: _edit(folder, change)


def _lose_a_part(index) -> None:
    (key,) = (key for key in index.storage_data if key.fqn == "model.weight")
    del index.storage_data[key]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / ".metadata").write_bytes(b""), "can't be read"),
        (lambda folder: (folder / ".metadata").write_bytes(b"\x80\x04]."), "can't be read"),
        (lambda folder: (folder / ".metadata").write_bytes(b"\x80\x04cposix\nsystem\n"), "read"),
        (lambda folder: (folder / ".metadata").write_bytes(bytes(999)), "can't be read"),
        (lambda folder: (folder / ".metadata").write_bytes(HIGH_MEMO), "can't be read"),
        (lambda folder: (folder / ".metadata").write_bytes(LONG_BYTES), "can't be read"),
        (lambda folder: distcp(folder).unlink(), "is missing or cut off"),
        (lambda folder: os.truncate(distcp(folder), 900), "is missing or cut off"),
        (lambda folder: distcp(folder).write_bytes(bytes(1 << 16)), "can't be read"),
        (_each_place(lambda place: setattr(place, "relative_path", "../x")), "no file of the"),
        (_each_place(lambda place: setattr(place, "offset", -1)), "no whole numbers"),
        (_each_place(lambda place: setattr(place, "length", 1 << 60)), "no whole numbers"),
        (_each_place(lambda place: setattr(place, "length", 1 << 40)), "missing or cut off"),
        (_each_place(lambda place: setattr(place, "transform_descriptors", ["zstd"])),
         "is compressed"),
        (_sizes((40, 9)), "is not whole"),
        (_sizes((1 << 30, 8)), "is not whole"),
        (_sizes((39, 8)), "does not fit the index"),
        (_sizes((320,)), "does not fit the index"),
        (lambda folder: _edit(folder, _lose_a_part), "is not whole"),
    ],
)  # fmt: skip
def test_a_broken_folder_is_one_line(folder: Path, spoil, said: str):
    spoil(folder)
    with pytest.raises(OddrankError, match=said) as error:
        checkpoints.read(str(folder))
    assert "\n" not in str(error.value)
