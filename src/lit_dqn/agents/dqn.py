"""DQN, with double Q-learning as a switch."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import validate_call
from torch.nn import functional

from lit_dqn.agents.agent import Agent, TargetUpdateInterval, Tau
from lit_dqn.networks.qnetwork import QNetwork
from lit_dqn.types import Batch, LossOutput


class DQN(Agent):
    """Mnih et al. (2015), doi:10.1038/nature14236, algorithm 1.

    Args:
        double: the online network picks the next action, the target network values it:
            van Hasselt et al. (2016), arXiv:1509.06461, eq. (4).
        loss: `mse` (half the squared error) or `huber` (with kappa = 1, the paper's error clipping).
        target_update_interval, tau: see `Agent`.

    Deviations from the paper: none in the loss; the target interval counts updates, as there.
    """

    @validate_call
    def __init__(
        self,
        *,
        double: bool = False,
        loss: Literal["mse", "huber"] = "mse",
        target_update_interval: TargetUpdateInterval = 50,
        tau: Tau = 1.0,
    ) -> None:
        super().__init__(target_update_interval, tau)
        self.double = double
        self.huber = loss == "huber"

    def loss(self, q_net: QNetwork, target_net: QNetwork, batch: Batch) -> LossOutput:
        """See `Agent.loss`."""
        q = q_net(batch.obs).q_values.gather(1, batch.action.unsqueeze(1)).squeeze(1)  # [B]
        with torch.no_grad():
            next_q = target_net(batch.next_obs).q_values  # [B, A]
            if self.double:
                best = q_net(batch.next_obs).q_values.argmax(dim=1, keepdim=True)  # [B, 1]
                next_value = next_q.gather(1, best).squeeze(1)  # [B]
            else:
                next_value = next_q.amax(dim=1)  # [B]
            td_target = batch.reward + batch.discount * next_value  # [B]
            td_error = (td_target - q).abs()  # [B]
        if self.huber:
            loss = functional.smooth_l1_loss(q, td_target, reduction="none")  # [B]
        else:
            loss = 0.5 * functional.mse_loss(q, td_target, reduction="none")  # [B]
        return LossOutput(loss=loss, td_error=td_error, priority=td_error, q_taken=q.detach())
