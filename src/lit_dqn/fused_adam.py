"""torch's fused Adam without the bookkeeping around its operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class FusedAdam(torch.optim.Adam):
    """`torch.optim.Adam(fused=True)`: its state, its checkpoints, its arithmetic.

    Of torch's step on a small network two thirds are spent around the operator: on profiler ranges, hooks,
    grouping by device and dtype. Step hooks are not called.
    """

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
            states = [self.state[p] for p in parameters]
            steps = [state["step"] for state in states]
            for count in steps:
                count.add_(1)
            beta1, beta2 = group["betas"]
            torch._fused_adam_(
                parameters,
                [p.grad for p in parameters],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                steps,
                lr=group["lr"],
                beta1=beta1,
                beta2=beta2,
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=group["maximize"],
            )
        return loss

    step.hooked = True  # type: ignore[attr-defined]  # keeps torch from wrapping it
