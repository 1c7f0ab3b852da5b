"""A function of tensors, recorded once as a list of operators and replayed without autograd or modules."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.graph import CodeGen

log = logging.getLogger(__name__)
aten = torch.ops.aten
TensorFunction = Callable[..., tuple[Tensor, ...]]


class Recorded:
    """A function of tensors that is recorded at its first call.

    What the function does beside tensor operators happens while it is recorded and never again: Python
    values it reads are constants from then on. Tensors it closes over are read, and changed, at each call.
    What cannot be recorded (it decides by a tensor's value) runs as it is.

    Args:
        function: tensors -> a tuple of tensors; may differentiate inside.
    """

    def __init__(self, function: TensorFunction) -> None:
        self.function = function
        self._runs: dict[object, TensorFunction] = {}

    @torch.no_grad()
    def __call__(self, first: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        """Call it; the shapes of `others` follow from that of `first` and their number."""
        kind = (first.shape, first.device, len(others))
        if kind not in self._runs:
            self._runs[kind] = self._record(first, *others)
        return self._runs[kind](first, *others)

    def _record(self, *example: Tensor) -> TensorFunction:
        try:
            return record(self.function, *example)
        except Exception as error:
            log.info("runs operator by operator, which is slower: %s", error)
            return self.function


def record(function: TensorFunction, *example: Tensor) -> TensorFunction:
    """The operators `function` runs on arguments like `example`, backward passes included.

    Draws nothing from the global generators.

    Raises:
        Exception: whatever the function raises, or it depends on a tensor's value.
    """
    devices = sorted({tensor.get_device() for tensor in example if tensor.is_cuda})
    with torch.random.fork_rng(devices):
        module = make_fx(function)(*example)
    for node in list(module.graph.nodes):
        same = _copied_unchanged(node)
        if same is not None:
            node.replace_all_uses_with(same)
    closed_over = _closed_over(module)
    module.graph.eliminate_dead_code()
    module.graph.set_codegen(CodeGen())  # plain arguments, not a tree of them
    module.recompile()
    run = module.forward
    return lambda *arguments: run(*closed_over, *arguments)


def _copied_unchanged(node: Node) -> Node | None:
    """The node whose tensor, as it lies in memory, this one only names anew."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return None
    source = node.args[0]
    if node.target in (aten.detach.default, aten.alias.default):
        return source
    if node.target is aten.t.default and source.target is aten.t.default:
        return source.args[0] if isinstance(source.args[0], Node) else None
    if node.target is aten.view.default and node.meta["val"].shape == source.meta["val"].shape:
        return source
    return None


def _closed_over(module: GraphModule) -> list[Tensor]:
    """Make leading arguments of the tensors that the graph holds, and return them."""
    graph = module.graph
    first = next(iter(graph.nodes))
    tensors = []
    for node in [node for node in graph.nodes if node.op == "get_attr"]:
        tensors.append(getattr(module, str(node.target)))
        with graph.inserting_before(first):
            argument = graph.placeholder(f"closed_over_{len(tensors)}")
        node.replace_all_uses_with(argument)
        graph.erase_node(node)
    return tensors
