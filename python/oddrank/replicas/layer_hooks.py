"""Hooks that show each tensor of a training step, in the order in which the step makes it.

A tensor is shown before a collective mixes it with other ranks' tensors, as far as hooks of modules
and parameters reach: inputs of each layer, each rank's own gradients. So the rank that made a wrong
value shows it earlier than the ranks that received it.
"""

import sys
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from oddrank import render
from oddrank.errors import OddrankError
from oddrank.replicas.groups import unwrapped

PARAMS, VALUES, GRADS = ALL = ("params", "values", "grads")


@dataclass(frozen=True)
class Kind:
    """A kind of tensor. own: it shows before ranks exchange it. late: after the backward pass."""

    words: str
    own: bool = True
    late: bool = False


KINDS = {
    "param": Kind("the parameter {}"),
    "input": Kind("an input of {}"),
    "output": Kind("the output of {}"),
    "output-grad": Kind("the gradient of the output of {}"),
    "grad": Kind("the gradient of {}"),
    "step-grad": Kind("the final gradient of {}", own=False, late=True),
}

# Takes a row of KINDS, the name of the layer or parameter, and the tensor.
See = Callable[[str, str, Any], None]


def check_optimizer(optimizer: Any) -> None:
    """Raises OddrankError if an optimizer has no step hooks, as a wrapper of one."""
    try:
        optimizer.register_step_post_hook(lambda *_: None).remove()
    except AttributeError as error:
        raise OddrankError(
            f"a {type(optimizer).__name__} has no hooks on its steps: give the torch optimizer"
            " that it wraps"
        ) from error


class LayerHooks:
    """Shows the tensors of one module until remove(). `names`: of its layers."""

    def __init__(
        self, module: Any, optimizer: Any, what: Collection[str], see: See,
        after_step: Callable[[], None],
    ) -> None:  # fmt: skip
        check_optimizer(optimizer)
        self._see, self._what, self._after = see, what, after_step
        self._inner = unwrapped(module)
        self._shown: set[int] = set()  # parameters that this step has shown
        self._last: tuple[Any, int] | None = None  # the newest output, and its version
        self._hooks: list[Any] = []
        self.names: list[str] = []
        if any(
            hasattr(part, "_orig_mod") or getattr(part, "_compiled_call_impl", None) is not None
            for part in module.modules()
        ):
            say("torch.compile hides the layers of this module: only its gradients are seen")
        for name, layer in self._inner.named_modules():
            is_leaf = not any(layer.children())
            if layer is self._inner or is_leaf or [*layer.parameters(recurse=False)]:
                self.names.append(name or "the model")
                self._hook_layer(self.names[-1], name, layer)
        if GRADS in what:
            for name, parameter in self._inner.named_parameters():
                if parameter.requires_grad:
                    self._hooks.append(parameter.register_hook(self._shows("grad", name)))
        self._hooks.append(optimizer.register_step_pre_hook(self._before_step))
        self._hooks.append(optimizer.register_step_post_hook(self._after_step))

    def remove(self) -> None:
        """Ends it. May be called twice."""
        while self._hooks:
            self._hooks.pop().remove()

    def _hook_layer(self, shown: str, name: str, layer: Any) -> None:
        prefix = f"{name}." if name else ""

        def before(layer: Any, args: Any, kwargs: Any) -> None:
            if _is_traced():
                return
            if PARAMS in self._what:
                for own, parameter in layer.named_parameters(recurse=False):
                    if id(parameter) not in self._shown:
                        self._shown.add(id(parameter))
                        self._see("param", prefix + own, parameter)
            if VALUES in self._what:
                for tensor in tensors_of((args, kwargs)):
                    if not self._is_last(tensor):
                        self._see("input", shown, tensor)

        def after(layer: Any, args: Any, output: Any) -> None:
            if _is_traced():
                return
            for tensor in tensors_of(output):
                if VALUES in self._what:
                    self._see("output", shown, tensor)
                    self._last = weakref.ref(tensor), _version(tensor)
                # A leaf is no output of the layer's work, and would keep the hook of each pass.
                if GRADS in self._what and tensor.requires_grad and not tensor.is_leaf:
                    tensor.register_hook(self._shows("output-grad", shown))

        self._hooks.append(layer.register_forward_pre_hook(before, with_kwargs=True))
        self._hooks.append(layer.register_forward_hook(after))

    def _is_last(self, tensor: Any) -> bool:
        """Returns whether it is the newest output, which has been shown."""
        if self._last is None:
            return False
        newest, version = self._last
        return newest() is tensor and _version(tensor) == version

    def _shows(self, kind: str, name: str) -> Callable[[Any], None]:
        def show(tensor: Any) -> None:
            if self._hooks and tensor is not None and not _is_traced():
                self._see(kind, name, tensor)

        return show

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if GRADS in self._what:
            for name, parameter in self._inner.named_parameters():
                if parameter.grad is not None:
                    self._see("step-grad", name, parameter.grad)

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._shown.clear()
        self._last = None
        self._after()


def tensors_of(thing: Any) -> Iterator[Any]:
    """Yields the tensors in nested tuples, lists and mappings."""
    if hasattr(thing, "data_ptr") and hasattr(thing, "register_hook"):
        yield thing
    elif isinstance(thing, Mapping):
        for one in thing.values():
            yield from tensors_of(one)
    elif isinstance(thing, tuple | list):
        for one in thing:
            yield from tensors_of(one)


def say(text: str) -> None:
    """Prints a line on one rank."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0:
        render.line(f"oddrank: {text}", sys.stderr)


def _version(tensor: Any) -> int:
    return -1 if tensor.is_inference() else int(tensor._version)


def _is_traced() -> bool:
    """Returns whether tensors have no values here: within compile, trace, vmap and grad."""
    import torch

    return bool(
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch._C._are_functorch_transforms_active()
    )
