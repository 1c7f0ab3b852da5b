"""A function of tensors, recorded once as a list of operators and replayed without autograd or modules."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.graph import CodeGen
from torch.fx.node import map_arg

aten = torch.ops.aten
TensorFunction = Callable[..., tuple[Tensor, ...]]
RECORDING = Lock()  # torch traces one function at a time


class Recorded:
    """A function of tensors that is recorded at its first call.

    For functions that do nothing but apply operators to tensors: what else they do happens while they are
    recorded and never again, and Python values they read are constants from then on. Parameters they close
    over are read, and changed, at each call.

    Args:
        function: tensors -> a tuple of tensors; may differentiate inside.
    """

    def __init__(self, function: TensorFunction) -> None:
        self.function = function
        self._runs: dict[object, TensorFunction] = {}

    def __call__(self, first: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        """Call it, without gradient mode.

        The shapes and dtypes of `others` follow from those of `first` and their number.
        """
        assert not torch.is_grad_enabled(), "the operators would be differentiated once more"
        device = first.device
        autocast = torch.is_autocast_enabled(device.type)
        kind = (first.shape, first.dtype, device, len(others), autocast)
        run = self._runs.get(kind)
        if run is None:
            run = self._runs[kind] = record(self.function, first, *others)
        if not autocast:
            return run(first, *others)
        # What autocast does is among the operators; it would do it twice.
        with torch.autocast(device.type, enabled=False):
            return run(first, *others)


def record(function: TensorFunction, *example: Tensor) -> TensorFunction:
    """The operators `function` runs on arguments like `example`, backward passes included.

    They are not run, and nothing is drawn from the global generators, while they are recorded.

    Raises:
        Exception: what runs depends on a tensor's value, or the function raises.
    """
    devices = sorted({tensor.get_device() for tensor in example if tensor.is_cuda})
    with RECORDING, torch.random.fork_rng(devices), torch.autograd.set_multithreading_enabled(False):
        module = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*example)
    for node in list(module.graph.nodes):
        same = _copied_unchanged(node)
        if same is not None:
            node.replace_all_uses_with(same)
    closed_over = _closed_over(module)
    module.graph.eliminate_dead_code()
    for node in module.graph.nodes:
        if isinstance(node.target, OpOverload):
            node.target = _binding(node.target)
    module.graph.set_codegen(CodeGen())  # plain arguments, not a tree of them
    module.recompile()
    run = module.forward
    return lambda *arguments: run(*closed_over, *arguments)


RESHAPES = (aten.view.default, aten.squeeze.dim, aten.unsqueeze.default, aten.expand.default)


def _copied_unchanged(node: Node) -> Node | None:
    """The node whose tensor, as it lies in memory, this one only names anew."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return None
    source = node.args[0]
    if node.target in (aten.detach.default, aten.alias.default):
        return source
    if node.target is aten.t.default and source.target is aten.t.default:
        return source.args[0] if isinstance(source.args[0], Node) else None
    # Through any number of other shapes back to its own: the elements never change their order.
    layout, reshaped = _layout(node), node
    while reshaped.target in RESHAPES and layout is not None:
        reshaped = reshaped.args[0]  # type: ignore[assignment]
        if _layout(reshaped) == layout:
            return reshaped
    return None


def _layout(node: Node) -> tuple[Any, ...] | None:
    """Shape and strides, where they were noted: torch 2.6 notes none for a tensor that is closed over."""
    value = node.meta.get("val")
    return (value.shape, value.stride()) if isinstance(value, Tensor) else None


def _closed_over(module: GraphModule) -> list[Tensor]:
    """Make leading arguments of the tensors that the graph holds, and of views of them, and return those."""
    graph = module.graph
    first = next(iter(graph.nodes))
    tensors: dict[Node, Tensor] = {}
    for node in list(graph.nodes):
        if node.op == "get_attr":
            tensor = getattr(module, str(node.target))
        elif _is_view(node) and node.all_input_nodes and all(n in tensors for n in node.all_input_nodes):
            tensor = node.target(*map_arg(node.args, tensors.__getitem__))
        else:
            continue
        with graph.inserting_before(first):
            argument = graph.placeholder(f"closed_over_{len(tensors)}")
        node.replace_all_uses_with(argument)
        graph.erase_node(node)
        tensors[argument] = tensor
    return list(tensors.values())


def _is_view(node: Node) -> bool:
    """Whether it gives one tensor that shares its argument's memory, which stays as it is."""
    if not isinstance(node.target, OpOverload) or node.kwargs:
        return False
    returns = node.target._schema.returns
    alias = returns[0].alias_info if len(returns) == 1 and isinstance(node.meta["val"], Tensor) else None
    return alias is not None and not alias.is_write


def _binding(operator: OpOverload) -> Callable[..., Any]:
    """torch's Python function for an operator, made from the same schema; it is called in half the time."""
    name = operator._schema.name.partition("::")[2]
    for home in (torch._C._VariableFunctions, torch._C._nn, torch.Tensor):
        binding = getattr(home, name, None)
        # Some names are Python functions with other arguments: torch.Tensor.index is no aten::index.
        if operator.namespace == "aten" and isinstance(binding, (BuiltinFunctionType, MethodDescriptorType)):
            return binding
    return operator
