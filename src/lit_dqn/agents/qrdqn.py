"""QR-DQN: quantiles of the return at fixed shares."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from annotated_types import Ge, Gt
from pydantic import validate_call
from torch import Tensor

from lit_dqn.agents.agent import at_action
from lit_dqn.agents.munchausen import MunchausenAgent
from lit_dqn.agents.quantile_huber import quantile_huber
from lit_dqn.networks.qnetwork import QNetwork
from lit_dqn.networks.readout import Quantiles
from lit_dqn.types import Batch, LossOutput


class QRDQN(MunchausenAgent):
    """Dabney et al. (2018), arXiv:1710.10044, algorithm 1.

    Args:
        num_quantiles: N >= 1; the loss compares each of them with each.
        kappa: errors up to this size are squared, > 0.
        options: see `MunchausenAgent` and `Agent`.

    Deviations from the paper: the loss is divided by kappa, as in arXiv:1806.06923; it is the priority, too.
    """

    @validate_call
    def __init__(
        self,
        *,
        num_quantiles: Annotated[int, Ge(1)] = 50,
        kappa: Annotated[float, Gt(0)] = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.num_quantiles, self.kappa = num_quantiles, kappa

    def readout(self, features: int) -> Quantiles:
        """See `Agent.readout`."""
        return Quantiles(self.num_quantiles)

    def loss(self, q_net: QNetwork, target_net: QNetwork, batch: Batch) -> LossOutput:
        """See `Agent.loss`."""
        online = q_net(batch.obs)
        quantiles = at_action(online.quantiles, batch.action)  # [B, N]
        with torch.no_grad():
            targets = self._targets(q_net, target_net, batch)  # [B, N]
            q_taken = quantiles.mean(dim=1)  # [B]
            td_error = (targets.mean(dim=1) - q_taken).abs()  # [B]
        loss = quantile_huber(quantiles, online.taus, targets, self.kappa)  # [B]
        return LossOutput(loss=loss, td_error=td_error, priority=loss.detach(), q_taken=q_taken)

    def _targets(self, q_net: QNetwork, target_net: QNetwork, batch: Batch) -> Tensor:
        following = target_net(batch.next_obs)
        reward = batch.reward  # [B]
        if self.munchausen:
            reward = reward + self.log_policy_bonus(target_net(batch.obs).q_values, batch.action)
            quantiles = self.soft_value(following.q_values, following.quantiles)  # [B, N]
        else:
            chooser = q_net(batch.next_obs) if self.double else following
            quantiles = at_action(following.quantiles, chooser.q_values.argmax(dim=1))  # [B, N]
        return reward.unsqueeze(1) + batch.discount.unsqueeze(1) * quantiles
