"""Optimizers, with what belongs to a step: the learning-rate schedule and gradient clipping."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Annotated, Any

import torch
from annotated_types import Ge, Gt, Len, Lt
from pydantic import AllowInfNan, validate_call
from torch.nn import Parameter

from lit_dqn.errors import UserError
from lit_dqn.fused_adam import FusedAdam
from lit_dqn.schedules import Linear

Positive = Annotated[float, Gt(0), AllowInfNan(False)]
NonNegative = Annotated[float, Ge(0), AllowInfNan(False)]
DecayRate = Annotated[float, Ge(0), Lt(1)]
Steps = Annotated[int, Gt(0)]


class OptimizerConfig(ABC):
    """How to step.

    Args:
        lr: learning rate at env step 0, > 0.
        lr_end: learning rate once it has decayed, >= 0; None keeps `lr`.
        lr_decay_env_steps: env steps of linear decay from `lr` to `lr_end`; goes with `lr_end`.
        max_grad_norm: gradients are scaled down to this global norm, > 0; None does not clip.

    Raises:
        UserError: only one of `lr_end` and `lr_decay_env_steps` is given.
    """

    def __init__(
        self, lr: float, lr_end: float | None, lr_decay_env_steps: int | None, max_grad_norm: float | None
    ) -> None:
        if (lr_end is None) != (lr_decay_env_steps is None):
            raise UserError(
                "optimizer.lr_end and optimizer.lr_decay_env_steps must be given together, "
                f"got {lr_end} and {lr_decay_env_steps}."
            )
        self.lr = Linear(lr, lr if lr_end is None else lr_end, lr_decay_env_steps or 0)
        self.max_grad_norm = max_grad_norm

    @abstractmethod
    def build(self, parameters: Iterable[Parameter]) -> torch.optim.Optimizer:
        """The torch optimizer over these parameters."""


class Adam(OptimizerConfig):
    """Kingma & Ba (2015), arXiv:1412.6980, in torch's fused form.

    Args:
        eps: added to the root of the second moment, > 0.
        betas: decay rates of the two moments, each in [0, 1).
    """

    @validate_call
    def __init__(
        self,
        *,
        lr: Positive = 1e-3,
        eps: Positive = 1e-8,
        betas: Annotated[list[DecayRate], Len(2, 2)] = [0.9, 0.999],  # noqa: B006  (never changed)
        lr_end: NonNegative | None = None,
        lr_decay_env_steps: Steps | None = None,
        max_grad_norm: Positive | None = 10.0,
    ) -> None:
        super().__init__(lr, lr_end, lr_decay_env_steps, max_grad_norm)
        self.arguments: dict[str, Any] = {"lr": lr, "eps": eps, "betas": (betas[0], betas[1])}

    def build(self, parameters: Iterable[Parameter]) -> torch.optim.Optimizer:
        return FusedAdam(parameters, **self.arguments)


class RMSProp(OptimizerConfig):
    """Hinton (2012), lecture 6e; centred as in Mnih et al. (2015).

    Args:
        alpha: decay rate of the mean squared gradient, in [0, 1).
        eps: added to the root of the mean square, > 0 (torch adds it outside the root).
        centered: divide by the standard deviation instead of the root mean square.
    """

    @validate_call
    def __init__(
        self,
        *,
        lr: Positive = 2.5e-4,
        alpha: DecayRate = 0.95,
        eps: Positive = 0.01,
        centered: bool = True,
        lr_end: NonNegative | None = None,
        lr_decay_env_steps: Steps | None = None,
        max_grad_norm: Positive | None = 10.0,
    ) -> None:
        super().__init__(lr, lr_end, lr_decay_env_steps, max_grad_norm)
        self.arguments: dict[str, Any] = {"lr": lr, "alpha": alpha, "eps": eps, "centered": centered}

    def build(self, parameters: Iterable[Parameter]) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(parameters, foreach=True, **self.arguments)
