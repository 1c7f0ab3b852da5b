"""A network's parameters as one vector, so that a step over all of them is one operator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import Parameter


class FlatParameters:
    """Moves a module's parameters, and their gradients, into one vector each; the module's are views of it.

    At a millisecond per update, an operator per layer for clipping, stepping and following costs more than
    the arithmetic. Moving the module to another device afterwards breaks the views.

    Args:
        module: its parameters have one dtype and one device.
    """

    def __init__(self, module: nn.Module) -> None:
        self.parameters = list(module.parameters())
        with torch.no_grad():
            self.vector = Parameter(torch.cat([p.reshape(-1) for p in self.parameters]))  # [P]
        self.gradient = torch.zeros_like(self.vector, requires_grad=False)  # [P]
        sizes = [p.numel() for p in self.parameters]
        pieces = zip(torch.split(self.vector.detach(), sizes), torch.split(self.gradient, sizes), strict=True)
        for parameter, (values, gradient) in zip(self.parameters, pieces, strict=True):
            parameter.data = values.view_as(parameter)
            parameter.grad = gradient.view_as(parameter) if parameter.requires_grad else None
        self.vector.grad = self.gradient

    def set_gradient(self, gradients: Sequence[Tensor]) -> None:
        """Take one gradient per parameter."""
        torch.cat([g.reshape(-1) for g in gradients], out=self.gradient)
