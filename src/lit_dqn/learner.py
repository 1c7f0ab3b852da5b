"""One gradient step: loss, weight, backward, clip, optimizer step, target sync."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lit_dqn.agents.agent import Agent
from lit_dqn.networks.qnetwork import QNetwork
from lit_dqn.types import Batch, LossOutput


class Learner:
    """Updates the online network and lets the target follow.

    The work of an update is kept away from Lightning and from module attributes: at a millisecond per
    update their bookkeeping would be a third of it.

    Args:
        q_net: the online network.
        target_net: its frozen copy.
        agent: its loss and its target rule.
        max_grad_norm: global gradient norm to scale down to; None does not clip.
    """

    def __init__(
        self, q_net: QNetwork, target_net: QNetwork, agent: Agent, max_grad_norm: float | None
    ) -> None:
        self.q_net, self.target_net, self.agent = q_net, target_net, agent
        self.max_grad_norm = max_grad_norm
        self.updates = 0
        self._online: list[Tensor] = list(q_net.parameters())
        self._target: list[Tensor] = list(target_net.parameters())

    def update(self, batch: Batch, step: Callable[[], Any]) -> tuple[LossOutput, Tensor]:
        """Do one update on a minibatch.

        Args:
            step: the optimizer's step.

        Returns:
            What the loss returned, and the gradient's norm before clipping, [].
        """
        out = self.agent.loss(self.q_net, self.target_net, batch)
        loss = out.loss if batch.weight is None else out.loss * batch.weight
        for parameter in self._online:
            parameter.grad = None
        loss.mean().backward()  # type: ignore[no-untyped-call]
        norm = self._clip()
        step()
        self.updates += 1
        if self.updates % self.agent.target_update_interval == 0:
            self._sync_target()
        return out, norm

    @torch.no_grad()
    def _clip(self) -> Tensor:
        gradients = [p.grad for p in self._online if p.grad is not None]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        if self.max_grad_norm is not None:
            torch._foreach_mul_(gradients, (self.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        return norm

    @torch.no_grad()
    def _sync_target(self) -> None:
        torch._foreach_lerp_(self._target, self._online, self.agent.tau)
