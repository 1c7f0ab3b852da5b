"""One gradient step: loss, weight, backward, clip, optimizer step, target sync."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lit_dqn.agents.agent import Agent
from lit_dqn.networks.flat_parameters import FlatParameters
from lit_dqn.networks.qnetwork import QNetwork
from lit_dqn.recorded import Recorded
from lit_dqn.types import Batch, LossOutput


def is_ours(agent: Agent, network: QNetwork) -> bool:
    """Whether agent and network are known to do nothing but apply operators to parameters and a batch."""
    modules = {type(module).__module__ for module in network.modules()} | {type(agent).__module__}
    return (
        all(name.startswith(("lit_dqn.", "torch.nn.")) for name in modules)
        and next(network.buffers(), None) is None
    )


class Learner:
    """Updates the online network and lets the target follow.

    On a small network most of an update is spent around its arithmetic. So Lightning sees one step a round,
    the parameters are one vector, and the operators from the loss to the clipped gradient are recorded where
    the agent and the network are this package's and keep nothing but parameters; others may do anything and
    run as they are written.

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
        self.flatten()

    def flatten(self) -> None:
        """Lay the parameters out anew; needed after the networks moved to another device."""
        self.online, self.target = FlatParameters(self.q_net), FlatParameters(self.target_net)
        self._buffers = list(zip(self.target_net.buffers(), self.q_net.buffers(), strict=True))
        recordable = is_ours(self.agent, self.q_net)
        self._gradient = Recorded(self._set_gradient) if recordable else self._set_gradient

    @torch.no_grad()
    def update(self, batch: Batch, step: Callable[[], Any]) -> tuple[LossOutput, Tensor]:
        """Do one update on a minibatch.

        Args:
            step: the optimizer's step.

        Returns:
            What the loss returned, without gradient, and the gradient's norm before clipping, [].
        """
        *out, norm = self._gradient(*batch.columns())
        step()
        self.updates += 1
        if self.updates % self.agent.target_update_interval == 0:
            self._sync_target()
        return LossOutput(*out), norm

    @torch.enable_grad()
    def _set_gradient(self, *columns: Tensor) -> tuple[Tensor, ...]:
        """Loss, backward, clip; returns the fields of the loss's output, and the norm before clipping."""
        torch.clear_autocast_cache()  # it would go on using the weights of the update before
        batch = Batch(*columns)
        out = self.agent.loss(self.q_net, self.target_net, batch)
        # The mean of the weighted loss: each item counts by its weight / B.
        size = len(out.loss)
        share = torch.full_like(out.loss, 1 / size) if batch.weight is None else batch.weight / size  # [B]
        gradients = torch.autograd.grad(out.loss, self.online.trainable, share, materialize_grads=True)
        self.online.set_gradient(gradients)
        return out.loss.detach(), out.td_error, out.priority, out.q_taken, self._clip()

    @torch.no_grad()
    def _clip(self) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(self.online.gradient)
        if self.max_grad_norm is not None:
            self.online.gradient.div_((norm / self.max_grad_norm).clamp_(min=1.0))
        return norm

    def _sync_target(self) -> None:
        self.target.vector.lerp_(self.online.vector, self.agent.tau)
        for target, online in self._buffers:
            target.copy_(online)
