"""torch's fused Adam without the bookkeeping around its operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter


class FusedAdam(torch.optim.Adam):
    """`torch.optim.Adam(fused=True)`: its state, its checkpoints, its arithmetic; Kingma & Ba (2015).

    Of torch's step on a small network two thirds are spent around the operator: on profiler ranges, hooks,
    grouping by device and dtype. Here are neither hooks nor Adam's variants.

    Args:
        parameters: or groups of them.
        lr, betas, eps: see `torch.optim.Adam`.
    """

    def __init__(
        self,
        parameters: Iterable[Parameter] | Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float],
        eps: float,
    ) -> None:
        super().__init__(parameters, lr=lr, betas=betas, eps=eps, fused=True)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; see `torch.optim.Adam.step`."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        groups = [[p for p in group["params"] if p.grad is not None] for group in self.param_groups]
        if any(p not in self.state for parameters in groups for p in parameters):
            super().step()  # the first step makes the state
            return loss
        for group, parameters in zip(self.param_groups, groups, strict=True):
            if parameters:
                self._step_group(group, parameters)
        return loss

    step.hooked = True  # type: ignore[attr-defined]  # keeps torch from wrapping it

    def _step_group(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        states = [self.state[p] for p in parameters]
        steps = [state["step"] for state in states]
        for count in steps:
            count.add_(1)
        beta1, beta2 = group["betas"]
        torch._fused_adam_(
            parameters,
            [p.grad for p in parameters if p.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            steps,
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=0.0,
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )
