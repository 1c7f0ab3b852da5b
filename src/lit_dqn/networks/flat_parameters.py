"""A network's parameters as one vector, so that a step over all of them is one operator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from lit_dqn.errors import UserError


class FlatParameters:
    """Moves a module's parameters, and their gradients, into one vector each; the module's are views of it.

    At a millisecond per update, an operator per layer for clipping, stepping and following costs more than
    the arithmetic. Moving the module to another device afterwards breaks the views.

    Args:
        module: has at least one parameter, all of one dtype and on one device.

    Raises:
        UserError: the parameters have several dtypes.
    """

    def __init__(self, module: nn.Module) -> None:
        parameters = list(module.parameters())
        dtypes = sorted({str(p.dtype) for p in parameters})
        if len(dtypes) > 1:
            raise UserError(f"the network's parameters must have one dtype, got {' and '.join(dtypes)}.")
        with torch.no_grad():
            self.vector = Parameter(torch.cat([p.reshape(-1) for p in parameters]))  # [P]
        self.gradient = torch.zeros_like(self.vector, requires_grad=False)  # [P]; 0 where frozen
        self.trainable = [p for p in parameters if p.requires_grad]
        sizes = [p.numel() for p in parameters]
        pieces = zip(torch.split(self.vector.detach(), sizes), torch.split(self.gradient, sizes), strict=True)
        for parameter, (values, gradient) in zip(parameters, pieces, strict=True):
            parameter.data = values.view_as(parameter)
            parameter.grad = gradient.view_as(parameter) if parameter.requires_grad else None
        self.vector.grad = self.gradient
        self._whole = len(self.trainable) == len(parameters)

    @torch.no_grad()
    def set_gradient(self, gradients: Sequence[Tensor]) -> None:
        """Take one gradient per trainable parameter."""
        if self._whole:
            torch.cat([g.reshape(-1) for g in gradients], out=self.gradient)
            return
        for parameter, gradient in zip(self.trainable, gradients, strict=True):
            assert parameter.grad is not None
            parameter.grad.copy_(gradient)
