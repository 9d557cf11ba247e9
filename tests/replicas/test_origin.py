"""The rank where something began, judged from each rank's first event; and NaN in one process."""

import math
import re
from itertools import product

import pytest

from oddrank.replicas.judge import Event, first_within, origin

torch = pytest.importorskip("torch")
from oddrank import replicas  # noqa: E402
from oddrank.replicas import nonfinite  # noqa: E402
from oddrank.replicas.layer_hooks import LayerHooks  # noqa: E402
from replicas import small_training  # noqa: E402


def event(step: int, order: int, kind: str = "output") -> Event:
    return Event(step, order, kind, "layer", "nan")


def ranks_of(*events: Event | None, same_layers: bool = True) -> tuple[int, ...] | None:
    found = origin(dict(enumerate(events)), same_layers=same_layers)
    return None if found is None else found.ranks


def test_the_earliest_step_and_then_the_earliest_tensor_before_an_exchange_counts():
    received = event(3, 200, "step-grad")
    for events, ranks in (
        ([None, None], None),
        ([None, event(3, 9), None], (1,)),
        ([event(4, 1), event(3, 9), event(4, 1)], (1,)),
        ([event(3, 8), event(3, 9), event(3, 8)], (0, 2)),
        ([event(3, 8)], (0,)),
        # What all ranks have at once or after an exchange names none.
        ([event(3, 8), event(3, 8)], ()),
        ([None, received, None], ()),
        # Rank 0 also ran an evaluation in this step: it is still before the exchange.
        ([event(3, 900), received, received], (0,)),
    ):
        assert ranks_of(*events) == ranks, events
    # Ranks with other layers are ordered by steps only.
    assert ranks_of(event(3, 8), event(3, 1), None, same_layers=False) == ()
    assert ranks_of(event(3, 8), event(4, 1), None, same_layers=False) == (0,)
    assert first_within([event(3, 900), received, None]) == event(3, 900)
    assert first_within([event(3, 900), event(2, 5, "step-grad")]) is None
    assert first_within([None]) is None


def test_a_value_that_is_not_finite_shows_at_each_place():
    dtypes = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e5m2,
              torch.complex64)  # fmt: skip
    for dtype, size, value in product(dtypes, (1, 7, 1000), (math.nan, math.inf, -math.inf)):
        for place in {0, size // 2, size - 1}:
            tensor = torch.full((size,), -1.5).to(dtype)
            assert all(math.isfinite(float(one)) for one in nonfinite._extremes(tensor)), dtype
            tensor[place] = torch.tensor(value).to(dtype)
            low, high = map(float, nonfinite._extremes(tensor))
            assert not (math.isfinite(low) and math.isfinite(high)), (dtype, size, place)


def searched(module, data, **how):
    """Runs a module forward and backward within a search; returns the search."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    with replicas.watch_nonfinite(module, optimizer, every=1, **how) as watch:
        module(data).abs().sum().backward()
        optimizer.step()
    return watch


def found(what: str):
    return pytest.raises(replicas.NonfiniteError, match=re.escape(what))


def test_without_ranks_the_tensor_and_step_are_named():
    module, optimizer = small_training.single()
    watch = replicas.watch_nonfinite(module, optimizer, every=1)
    small_training.step(module, optimizer, 1)
    module[1].down.bias.data[3] = math.nan
    with found("nan in the parameter 1.down.bias at step 2"):
        small_training.step(module, optimizer, 2)
    assert watch.report is not None
    small_training.step(module, optimizer, 3)  # it looks no further


def test_a_bad_batch_is_an_input_of_the_model():
    data = torch.zeros(2, 32)
    data[1, 1] = math.inf
    with found("inf in an input of the model at step 1"):
        searched(small_training.model(), data, what=("values",))


def test_a_compiled_module_shows_its_gradients_only_and_says_so(capsys):
    module = torch.compile(small_training.model(), backend="eager")
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    weight = module._orig_mod[0].norm.weight
    weight.register_hook(lambda grad: grad * math.nan)
    watch = replicas.watch_nonfinite(module, optimizer, every=1)
    with watch, found("nan in the gradient of 0.norm.weight"):
        small_training.step(module, optimizer, 1)
    assert "torch.compile hides the layers" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_transforms_of_a_module_go_on_without_a_search():
    """As a loss with torch.func beside the training's own."""
    module, optimizer = small_training.single()
    parameters = dict(module.named_parameters())

    def loss(parameters, data):
        return torch.func.functional_call(module, parameters, (data,)).square().mean()

    with replicas.watch_nonfinite(module, optimizer, every=1):
        torch.func.grad(loss)(parameters, torch.ones(2, 32))
        torch.func.vmap(module)(torch.ones(3, 2, 32))
        torch.jit.trace(module, torch.ones(2, 32))
        small_training.step(module, optimizer, 1)


def test_a_search_changes_no_bit_of_the_training():
    plain, watched = small_training.single(), small_training.single()
    with replicas.watch_nonfinite(*watched, every=2):
        for number in range(4):
            small_training.step(*plain, number)
            small_training.step(*watched, number)
    for one, other in zip(plain[0].parameters(), watched[0].parameters(), strict=True):
        assert torch.equal(one, other)


def test_an_attention_mask_is_no_overflow():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    mask, forward = torch.nn.Transformer.generate_square_subsequent_mask(5), layer.forward
    layer.forward = lambda data: forward(data, src_mask=mask)
    assert searched(layer, torch.randn(2, 5, 8)).report is None
    with found("inf in an input of the model"):
        searched(layer, torch.randn(2, 5, 8) - math.inf)


def test_a_conjugate_that_a_layer_returns_is_read():
    class Conjugate(torch.nn.Module):
        def forward(self, x: "torch.Tensor") -> "torch.Tensor":
            return torch.complex(x, x * math.inf).conj()

    module = torch.nn.Sequential(torch.nn.Linear(2, 2), Conjugate())
    with found("in the output of 1 at step 1"):
        searched(module, torch.ones(1, 2), what=("values",))


def test_a_parameter_that_a_layer_returns_keeps_no_hooks():
    module = torch.nn.Sequential(torch.nn.Identity())
    leaf = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([leaf], lr=0.01)
    with replicas.watch_nonfinite(module, optimizer, every=1):
        for _ in range(5):
            module(leaf).sum().backward()
            optimizer.step()
    assert not leaf._backward_hooks


class Far(torch.Tensor):
    """An extreme that is on a GPU, as far as the search can tell."""

    @property
    def device(self) -> "torch.device":
        return torch.device("cuda", 0)


def test_a_long_evaluation_keeps_few_extremes_on_a_gpu(monkeypatch: pytest.MonkeyPatch):
    extremes = nonfinite._extremes

    def far(tensor):
        return tuple(one.as_subclass(Far) for one in extremes(tensor))

    monkeypatch.setattr(nonfinite, "_extremes", far)
    monkeypatch.setattr(nonfinite, "_MOST_PENDING", 50)
    module, optimizer = small_training.single()
    with replicas.watch_nonfinite(module, optimizer, every=3) as watch:
        for _ in range(40):
            module(torch.ones(1, 32))
            assert len(watch._pending) < 50
        small_training.step(module, optimizer, 1)
        module[1].down.bias.data[3] = math.nan
        small_training.step(module, optimizer, 2)
        with found("nan in the parameter 1.down.bias at step 2"):
            small_training.step(module, optimizer, 3)


class Adds(torch.nn.Module):
    """Adds a number to its first layer's output, in place, before the second layer gets it."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self.one, self.two, self.number = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), number

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        y = self.one(x)
        return self.two(y.add_(self.number) if self.number else y)


def shown_by(module):
    """Returns what hooks show of two steps with two passes each."""
    shown = []
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    LayerHooks(module, optimizer, ("params", "values"), lambda *seen: shown.append(seen[:2]), list)
    for _ in range(2):
        with torch.no_grad():
            module(torch.ones(1, 2))
            module(torch.ones(1, 2))
        optimizer.step()
    assert shown[: len(shown) // 2] == shown[len(shown) // 2 :]
    return shown[len(shown) // 2 :]


def test_an_input_is_shown_unless_it_is_the_newest_output_and_a_parameter_once_a_step():
    for number in (0.0, 1.0):
        shown = shown_by(Adds(number))
        assert (("input", "two") in shown) == bool(number)
        assert shown.count(("output", "one")) == 2
        assert shown.count(("param", "two.weight")) == 1
