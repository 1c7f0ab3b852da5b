"""IQN: quantiles of the return at shares (taus) drawn anew for every sample."""

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
from lit_dqn.networks.readout import ImplicitQuantiles
from lit_dqn.types import Batch, LossOutput

Count = Annotated[int, Ge(1)]


class IQN(MunchausenAgent):
    """Dabney et al. (2018), arXiv:1806.06923, section 3.

    A tau is a quantile's share here; `tau`, without a number, is the target network's.

    Args:
        num_online_taus: N, taus of the online network in a loss.
        num_target_taus: N', taus of the target network.
        num_acting_taus: K, taus whose mean is an action value, in a target's choice and when acting.
        num_cosines: width of the cosine embedding.
        kappa: errors up to this size are squared, > 0.
        options: see `MunchausenAgent` and `Agent`.

    Deviations from the paper: policies are evaluated at K evenly spaced taus, not random ones; the loss is
    the priority, too.
    """

    @validate_call
    def __init__(
        self,
        *,
        num_online_taus: Count = 8,
        num_target_taus: Count = 8,
        num_acting_taus: Count = 32,
        num_cosines: Count = 64,
        kappa: Annotated[float, Gt(0)] = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.num_online_taus, self.num_target_taus = num_online_taus, num_target_taus
        self.num_acting_taus, self.num_cosines, self.kappa = num_acting_taus, num_cosines, kappa

    def readout(self, features: int) -> ImplicitQuantiles:
        """See `Agent.readout`."""
        return ImplicitQuantiles(features, self.num_cosines, self.num_acting_taus)

    def loss(self, q_net: QNetwork, target_net: QNetwork, batch: Batch) -> LossOutput:
        """See `Agent.loss`."""
        online = q_net(batch.obs, self.num_online_taus)
        quantiles = at_action(online.quantiles, batch.action)  # [B, N]
        with torch.no_grad():
            targets = self._targets(q_net, target_net, batch)  # [B, N']
            q_taken = quantiles.mean(dim=1)  # [B]
            td_error = (targets.mean(dim=1) - q_taken).abs()  # [B]
        loss = quantile_huber(quantiles, online.taus, targets, self.kappa)  # [B]
        return LossOutput(loss=loss, td_error=td_error, priority=loss.detach(), q_taken=q_taken)

    def _targets(self, q_net: QNetwork, target_net: QNetwork, batch: Batch) -> Tensor:
        features = target_net.encoder(batch.next_obs)  # [B, F]
        following = target_net.read(features, batch.next_obs, self.num_target_taus).quantiles  # [B, A, N']
        if self.double:
            q = q_net(batch.next_obs).q_values  # [B, A]
        else:
            q = target_net.read(features, batch.next_obs).q_values
        reward = batch.reward  # [B]
        if self.munchausen:
            reward = reward + self.log_policy_bonus(target_net(batch.obs).q_values, batch.action)
            quantiles = self.soft_value(q, following)  # [B, N']
        else:
            quantiles = at_action(following, q.argmax(dim=1))  # [B, N']
        return reward.unsqueeze(1) + batch.discount.unsqueeze(1) * quantiles
