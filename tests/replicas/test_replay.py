"""One process: replays of a step, digests beside a checkpoint, and bad arguments."""

from collections.abc import Callable

import pytest

from oddrank import OddrankError

torch = pytest.importorskip("torch")
from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402

from oddrank import replicas  # noqa: E402
from replicas import small_training  # noqa: E402


def single() -> tuple["torch.nn.Module", "torch.optim.Optimizer"]:
    module = small_training.model()
    return module, torch.optim.AdamW(module.parameters(), lr=0.01)


def test_a_replay_leaves_the_training_one_step_further():
    """With a scheduler and dropout: both runs have the same state and random numbers."""

    def made() -> tuple[object, object, object, object]:
        module, optimizer = single()
        module.append(torch.nn.Dropout(0.5))
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

        def step() -> None:
            optimizer.zero_grad()
            module(torch.randn(8, 32)).square().mean().backward()
            optimizer.step()
            scheduler.step()

        return module, optimizer, scheduler, step

    results = []
    for replays in (False, True):
        module, optimizer, scheduler, step = made()
        torch.manual_seed(5)
        for _ in range(3):
            if replays:
                report = replicas.replay(step, module, optimizer, others=[scheduler])
                assert report.verdict == "healthy", report.summary
            else:
                step()
        results.append([*module.parameters(), torch.tensor(scheduler.get_last_lr())])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


class Noisy(torch.nn.Module):
    """Replaces a buffer, its number of calls, at each call. `noise` is in no state."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small_training.model()
        self.register_buffer("calls", torch.zeros(()))
        self.noise = 0.0

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        self.calls = self.calls + 1
        return self.inner(x) * self.calls.sqrt() + self.noise


def lbfgs() -> tuple[Noisy, "torch.optim.Optimizer", Callable[[], None]]:
    """Returns a training whose optimizer keeps lists of tensors."""
    module = Noisy()
    optimizer = torch.optim.LBFGS(module.parameters(), max_iter=3)
    data = torch.ones(4, 32).cumsum(1)

    def loss() -> "torch.Tensor":
        optimizer.zero_grad()
        found = module(data).square().mean()
        found.backward()
        return found

    return module, optimizer, lambda: optimizer.step(loss)


def test_a_replay_restores_lists_of_an_optimizer_and_replaced_buffers():
    results = []
    for replays in (False, True):
        module, optimizer, step = lbfgs()
        for _ in range(3):
            if replays:
                report = replicas.replay(step, module, optimizer)
                assert report.verdict == "healthy", report.summary
            else:
                step()
        results.append([*module.parameters(), module.calls])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


class Halves(torch.nn.Module):
    """Its weight has no memory of its own: it is a pair of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(TwoTensor(torch.ones(4), torch.ones(4)))


def test_a_replay_restores_parameters_with_other_memory_or_none_of_their_own():
    """`p.data = p.data - g`, as in optimizers by hand; and a subclass of tensors."""
    results = []
    for replays in (False, True):
        module, halves = small_training.model(), Halves()
        module.append(halves)

        def step() -> None:
            data = torch.ones(4, 32).cumsum(1)
            module[1](module[0](data)).square().mean().backward()  # noqa: B023
            for parameter in [*module[0].parameters(), *module[1].parameters()]:  # noqa: B023
                parameter.data = parameter.data - 0.1 * parameter.grad
                parameter.grad = None
            with torch.no_grad():
                halves.weight.mul_(2.0)  # noqa: B023

        for _ in range(2):
            if replays:
                report = replicas.replay(step, module)
                assert report.verdict == "healthy", report.summary
            else:
                step()
        results.append([*module[:2].parameters(), halves.weight.a, halves.weight.b])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_a_replay_restores_parameters_that_only_the_optimizer_has():
    """As the scale of a loss."""
    results = []
    for replays in (False, True):
        module, scale = small_training.model(), torch.nn.Parameter(torch.ones(()))
        optimizer = torch.optim.SGD([*module.parameters(), scale], lr=0.1)

        def step() -> None:
            optimizer.zero_grad()  # noqa: B023
            (scale * module(torch.ones(4, 32).cumsum(1))).square().mean().backward()  # noqa: B023
            optimizer.step()  # noqa: B023

        if replays:
            assert replicas.replay(step, module, optimizer).verdict == "healthy"
        else:
            step()
        results.append([*module.parameters(), scale])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_a_single_process_that_does_not_repeat_is_not_blamed():
    module, optimizer, step = lbfgs()

    def noisy() -> None:
        module.noise += 1.0
        step()

    report = replicas.replay(noisy, module, optimizer)
    assert (report.verdict, report.findings[0].cause) == ("unknown", "not-deterministic")
    assert "there is no other rank to compare with" in report.summary


def test_digests_of_a_single_process_are_checked_after_a_load(tmp_path):
    module, optimizer = single()
    small_training.step(module, optimizer, 1)
    replicas.save_digests(tmp_path, module, optimizer)
    torch.save(
        {"model": module.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "a.pt"
    )
    other, other_optimizer = single()
    report = replicas.check_digests(tmp_path, other, other_optimizer)
    assert report.verdict == "odd"
    loaded = torch.load(tmp_path / "a.pt")
    other.load_state_dict(loaded["model"])
    other_optimizer.load_state_dict(loaded["optimizer"])
    assert replicas.check_digests(tmp_path, other, other_optimizer).verdict == "healthy"
    half = small_training.model().bfloat16()
    half.load_state_dict(loaded["model"])
    report = replicas.check_digests(tmp_path, half)
    assert "saved as float32 [32], loaded as bfloat16 [32]" in report.summary


@pytest.mark.parametrize(
    "call",
    [
        lambda module, optimizer: replicas.watch_nonfinite(module, optimizer, every=0),
        lambda module, optimizer: replicas.watch_nonfinite(module, optimizer, on_found="stop"),
        lambda module, optimizer: replicas.watch_nonfinite(module, optimizer, what=("weights",)),
        lambda module, optimizer: replicas.trace(module, steps=0),
        lambda module, optimizer: replicas.trace(module, what="values"),
        lambda module, optimizer: replicas.trace(module).save("x.json"),
        lambda module, optimizer: replicas.replay(print, module, others=[3]),
        lambda module, optimizer: replicas.save_digests("/dev/null/x", module),
    ],
)
def test_bad_arguments_are_one_line(call):
    with pytest.raises(OddrankError) as error:
        call(*single())
    assert "\n" not in str(error.value)
