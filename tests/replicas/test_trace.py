"""Traces of two runs: the first layer where they part."""

from pathlib import Path

import pytest

from golden import Golden
from reports import valid

torch = pytest.importorskip("torch")
from oddrank import replicas  # noqa: E402
from oddrank.replicas import checkpoints, compare  # noqa: E402
from replicas import small_training  # noqa: E402


def traced(path: Path, *, change: float = 0.0, steps: int = 3, **how: object) -> Path:
    """Trains for some steps; `change` is added to a weight before the last one."""
    module = small_training.model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    with replicas.trace(module, optimizer, **how) as trace:
        for number in range(1, steps + 1):
            if number == steps:
                module[1].up.weight.data[3, 5] += change
            small_training.step(module, optimizer, number)
    trace.save(path)
    return path


def report_of(*files: Path):
    return compare.report([checkpoints.read(str(file)) for file in files])


def test_two_runs_alike_have_the_same_trace_and_others_name_their_first_tensor(tmp_path: Path):
    for values in (False, True):
        files = [traced(tmp_path / f"{i}.trace", values=values) for i in range(2)]
        if not values:  # with them, it is a file of torch.save
            valid(files[0].read_text())
        assert report_of(*files).verdict == "healthy"
        report = report_of(files[0], traced(tmp_path / "b", change=0.25, values=values))
        assert report.data["different"][:2] == [
            "step 3: the parameter 1.up.weight", "step 3: the output of 1.up",
        ]  # fmt: skip
        assert not any(name.startswith("step 2") for name in report.data["different"])
        shown = "(other digest; largest: "
        if values:
            shown = "(1 of 2048 elements, first at [3, 5]:"
            assert "largest difference 0.25 (relative" in report.summary
        assert f"step 3: the parameter 1.up.weight {shown}" in report.summary


def test_within_a_tolerance_the_first_layer_that_is_farther_off_is_named(tmp_path: Path):
    """As a CPU and a GPU: all tensors differ a little, one layer is wrong."""
    names = [f"step 1: the output of {i}" for i in range(4)]
    right = {name: torch.randn(30, 40) for name in names}
    right["nan"], right["count"] = torch.tensor([torch.nan, torch.inf, 1.0]), torch.tensor(3)
    other = {name: one * (1 + 1e-6) if one.is_floating_point() else one
             for name, one in right.items()}  # fmt: skip
    other[names[2]] = other[names[2]] + 1e-2
    torch.save(right, tmp_path / "cpu.pt")
    torch.save(other, tmp_path / "gpu.pt")
    both = [checkpoints.read(str(tmp_path / name)) for name in ("cpu.pt", "gpu.pt")]
    assert len(compare.report(both).data["different"]) == 5
    report = compare.report(both, 1e-5)
    assert report.data["different"] == [names[2]]
    assert report.why.endswith("floats within 1e-05 of the largest value in a tensor")
    assert compare.report(both, 0.1).verdict == "healthy"


def test_no_tolerance_covers_nan_other_shapes_integers_or_zeros(tmp_path: Path):
    for one, other in (
        ([1.0, torch.nan], [1.0, 2.0]),
        ([1.0, torch.inf], [1.0, -torch.inf]),
        ([1.0, 2.0], [1.0, 2.0, 3.0]),
        ([1, 2], [1, 3]),
        ([0.0, 0.0], [0.0, 1e-30]),
    ):
        for name, values in (("a.pt", one), ("b.pt", other)):
            torch.save({"x": torch.tensor(values)}, tmp_path / name)
        both = [checkpoints.read(str(tmp_path / name)) for name in ("a.pt", "b.pt")]
        assert compare.report(both, 0.5).verdict == "odd", (one, other)


def test_the_last_steps_are_kept(tmp_path: Path):
    names = checkpoints.read(str(traced(tmp_path / "a", steps=5, what=("values",)))).tensors
    assert next(iter(names)) == "step 4: an input of the model"
    assert {name.partition(":")[0] for name in names} == {"step 4", "step 5"}


def test_a_layer_that_is_called_twice_has_two_tensors(tmp_path: Path):
    module = small_training.model()
    with replicas.trace(module, what=("values",)) as trace, torch.no_grad():
        for _ in range(2):
            module(torch.ones(1, 32))
        trace.next_step()
        module(torch.ones(1, 32))
    trace.save(tmp_path / "a.json")
    names = list(checkpoints.read(str(tmp_path / "a.json")).tensors)
    assert "step 1: the output of 0.norm, 2" in names
    assert "step 2: the output of 0.norm" in names
    assert "step 2: the output of 0.norm, 2" not in names


class Adds(torch.nn.Module):
    """Adds a number to its first layer's output, in place, before the second layer gets it."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self.one, self.two, self.number = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), number

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        y = self.one(x)
        return self.two(y.add_(self.number) if self.number else y)


def test_an_input_is_shown_unless_it_is_the_newest_output_as_that_was(tmp_path: Path):
    for number in (0.0, 1.0):
        module = Adds(number)
        with replicas.trace(module, what=("values",)) as trace, torch.no_grad():
            module(torch.ones(1, 2))
        trace.save(tmp_path / "a.json")
        names = checkpoints.read(str(tmp_path / "a.json")).tensors
        assert ("step 1: an input of two" in names) == bool(number)
        assert "step 1: the output of one" in names


def test_each_step_without_an_optimizer_has_its_parameters(tmp_path: Path):
    module = small_training.model()
    with replicas.trace(module, what=("params",), steps=1) as trace, torch.no_grad():
        for _ in range(3):
            module(torch.ones(1, 32))
            trace.next_step()
        module(torch.ones(1, 32))
    trace.save(tmp_path / "a.json")
    names = checkpoints.read(str(tmp_path / "a.json")).tensors
    assert "step 3: the parameter 1.up.weight" in names
    assert "step 4: the parameter 1.up.weight" in names


def test_differences_are_shown_as_numbers_or_as_bits(golden: Golden):
    bits = torch.tensor([[1, 2], [1, 3]], dtype=torch.uint8)
    nan = torch.tensor([torch.nan, 1.0, 3.0])
    small = torch.tensor([[1.0, 2.0], [1.0, 4.0]]).to(torch.float8_e4m3fn)
    golden("\n".join(compare.first_difference(*pair) for pair in (
        [one.view(torch.float4_e2m1fn_x2) for one in bits],  # torch only stores it
        (nan, torch.tensor([1.0, 1.0, 2.0])), (torch.tensor([1, 2]), torch.tensor([1, 3])), small,
    )))  # fmt: skip
