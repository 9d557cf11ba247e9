"""One process: replays of a step, and bad arguments."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from bench.told import refusal
from golden import Golden

torch = pytest.importorskip("torch")
from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402

from oddrank import replicas  # noqa: E402
from replicas import small_training  # noqa: E402


def assert_leaves_the_training_one_step_further(make: Callable[[], Any], steps: int) -> None:
    """Trains twice from the start: with steps, and with replays of them. Both end alike.

    make: returns (a step, arguments of its replay, and a function of the tensors at the end).
    """
    results = []
    for replays in (False, True):
        step, arguments, others, tensors = make()
        torch.manual_seed(5)
        for _ in range(steps):
            if replays:
                report = replicas.replay(step, *arguments, **others)
                assert report.verdict == "healthy", report.summary
            else:
                step()
        results.append([*tensors()])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_a_replay_restores_a_scheduler_and_the_random_numbers_of_dropout():
    def make():
        module, optimizer = small_training.single()
        module.append(torch.nn.Dropout(0.5))
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

        def step() -> None:
            optimizer.zero_grad()
            module(torch.randn(8, 32)).square().mean().backward()
            optimizer.step()
            scheduler.step()

        def tensors():
            return [*module.parameters(), torch.tensor(scheduler.get_last_lr())]

        return step, (module, optimizer), {"others": [scheduler]}, tensors

    assert_leaves_the_training_one_step_further(make, 3)


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
    def make():
        module, optimizer, step = lbfgs()
        return step, (module, optimizer), {}, lambda: [*module.parameters(), module.calls]

    assert_leaves_the_training_one_step_further(make, 3)


class Halves(torch.nn.Module):
    """Its weight has no memory of its own: it is a pair of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(TwoTensor(torch.ones(4), torch.ones(4)))


def test_a_replay_restores_parameters_with_other_memory_or_none_of_their_own():
    """`p.data = p.data - g`, as in optimizers by hand; and a subclass of tensors."""

    def make():
        module, halves = small_training.model(), Halves()
        module.append(halves)

        def step() -> None:
            data = torch.ones(4, 32).cumsum(1)
            module[1](module[0](data)).square().mean().backward()
            for parameter in [*module[0].parameters(), *module[1].parameters()]:
                parameter.data = parameter.data - 0.1 * parameter.grad
                parameter.grad = None
            with torch.no_grad():
                halves.weight.mul_(2.0)

        def tensors():
            return [*module[:2].parameters(), halves.weight.a, halves.weight.b]

        return step, (module,), {}, tensors

    assert_leaves_the_training_one_step_further(make, 2)


def test_a_replay_restores_parameters_that_only_the_optimizer_has():
    """As the scale of a loss."""

    def make():
        module, scale = small_training.model(), torch.nn.Parameter(torch.ones(()))
        optimizer = torch.optim.SGD([*module.parameters(), scale], lr=0.1)

        def step() -> None:
            optimizer.zero_grad()
            (scale * module(torch.ones(4, 32).cumsum(1))).square().mean().backward()
            optimizer.step()

        return step, (module, optimizer), {}, lambda: [*module.parameters(), scale]

    assert_leaves_the_training_one_step_further(make, 1)


def test_a_replay_restores_gradients_that_a_step_adds_to():
    def make():
        module = small_training.model()

        def step() -> None:
            module(torch.ones(4, 32).cumsum(1)).square().mean().backward()

        step()
        return step, (module,), {}, lambda: [one.grad for one in module.parameters()]

    assert_leaves_the_training_one_step_further(make, 2)


def test_a_tensor_that_only_one_of_both_runs_has_is_named():
    module, runs = small_training.model(), iter(range(2))
    optimizer = torch.optim.SGD(module.parameters())
    last = list(module.parameters())[-1]

    def step() -> None:
        if next(runs):
            optimizer.state[last]["momentum_buffer"] = torch.ones(32)

    report = replicas.replay(step, module, optimizer)
    assert report.verdict == "unknown"
    assert (
        "1.down.bias.momentum_buffer after the step is in one of both runs only" in report.summary
    )


def test_a_single_process_that_does_not_repeat_is_not_blamed():
    module, optimizer, step = lbfgs()

    def noisy() -> None:
        module.noise += 1.0
        step()

    report = replicas.replay(noisy, module, optimizer)
    assert (report.verdict, report.findings[0].cause) == ("unknown", "not-deterministic")
    assert "there is no other rank to compare with" in report.summary


def test_bad_arguments_are_one_line(golden: Golden):
    search = replicas.watch_nonfinite
    module, optimizer = small_training.single()
    golden("\n".join(refusal(*call) for call in (
        (partial(search, every=0), module, optimizer),
        (partial(search, on_found="stop"), module, optimizer),
        (partial(search, what=("weights",)), module, optimizer),
        (partial(replicas.trace, steps=0), module),
        (partial(replicas.trace, what="values"), module),
        (lambda: replicas.trace(module).save("x.json"),),
        (partial(replicas.replay, print, others=[3]), module),
    )))  # fmt: skip
