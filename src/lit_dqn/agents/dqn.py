"""DQN, with double Q-learning and Munchausen as switches."""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import validate_call
from torch import Tensor
from torch.nn import functional

from lit_dqn.agents.agent import at_action
from lit_dqn.agents.munchausen import MunchausenAgent
from lit_dqn.networks.qnetwork import QNetwork
from lit_dqn.types import Batch, LossOutput


class DQN(MunchausenAgent):
    """Mnih et al. (2015), doi:10.1038/nature14236, algorithm 1.

    Args:
        loss: `mse` (half the squared error) or `huber` (with kappa = 1, the paper's error clipping).
        options: see `MunchausenAgent` and `Agent`.

    Deviations from the paper: none in the loss; the target interval counts updates, as there.
    """

    @validate_call
    def __init__(self, *, loss: Literal["mse", "huber"] = "mse", **options: Any) -> None:
        super().__init__(**options)
        self.huber = loss == "huber"

    def loss(self, q_net: QNetwork, target_net: QNetwork, batch: Batch) -> LossOutput:
        """See `Agent.loss`."""
        q = at_action(q_net(batch.obs).q_values, batch.action)  # [B]
        with torch.no_grad():
            td_target = self._td_target(q_net, target_net, batch)  # [B]
            td_error = (td_target - q).abs()  # [B]
        if self.huber:
            loss = functional.smooth_l1_loss(q, td_target, reduction="none")  # [B]
        else:
            loss = 0.5 * functional.mse_loss(q, td_target, reduction="none")  # [B]
        return LossOutput(loss=loss, td_error=td_error, priority=td_error, q_taken=q.detach())

    def _td_target(self, q_net: QNetwork, target_net: QNetwork, batch: Batch) -> Tensor:
        next_q: Tensor = target_net(batch.next_obs).q_values  # [B, A]
        if self.munchausen:
            bonus = self.log_policy_bonus(target_net(batch.obs).q_values, batch.action)  # [B]
            return batch.reward + bonus + batch.discount * self.soft_value(next_q, next_q)
        if self.double:
            best = q_net(batch.next_obs).q_values.argmax(dim=1)  # [B]
            return batch.reward + batch.discount * at_action(next_q, best)
        return batch.reward + batch.discount * next_q.amax(dim=1)
