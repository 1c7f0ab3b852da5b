"""C51: the return's distribution over fixed values."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from annotated_types import Ge
from pydantic import validate_call
from torch import Tensor

from lit_dqn.agents.agent import Agent, at_action
from lit_dqn.errors import UserError
from lit_dqn.networks.qnetwork import QNetwork
from lit_dqn.networks.readout import Categorical
from lit_dqn.types import Batch, LossOutput


class C51(Agent):
    """Bellemare et al. (2017), arXiv:1707.06887, algorithm 1.

    Args:
        num_atoms: values in the support, >= 2.
        v_min, v_max: the least and the greatest of them, in units of the discounted return.
        options: see `Agent`.

    Raises:
        UserError: v_min is not below v_max.

    Deviations from the paper: the loss is the KL divergence from the projected target, whose gradient is the
    cross-entropy's; it is the priority, too, as in Rainbow (Hessel et al. (2018), arXiv:1710.02298).
    """

    @validate_call
    def __init__(
        self,
        *,
        num_atoms: Annotated[int, Ge(2)] = 51,
        v_min: float = -10.0,
        v_max: float = 10.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if not v_min < v_max:
            raise UserError(f"agent.v_min must be below agent.v_max, got {v_min} and {v_max}.")
        self.num_atoms, self.v_min, self.v_max = num_atoms, v_min, v_max

    def readout(self, features: int) -> Categorical:
        """See `Agent.readout`."""
        return Categorical(self.num_atoms, self.v_min, self.v_max)

    def loss(self, q_net: QNetwork, target_net: QNetwork, batch: Batch) -> LossOutput:
        """See `Agent.loss`."""
        online = q_net(batch.obs)
        log_probabilities = at_action(online.log_probabilities, batch.action)  # [B, N]
        with torch.no_grad():
            following = target_net(batch.next_obs)
            chooser = q_net(batch.next_obs) if self.double else following
            best = chooser.q_values.argmax(dim=1)  # [B]
            probabilities = at_action(following.log_probabilities, best).exp()  # [B, N]
            values = batch.reward.unsqueeze(1) + batch.discount.unsqueeze(1) * online.atoms  # [B, N]
            target = project(probabilities, values, self.v_min, self.v_max)  # [B, N]
            q_taken = at_action(online.q_values, batch.action)  # [B]
            td_error = ((target * online.atoms).sum(dim=1) - q_taken).abs()  # [B]
        loss = (torch.xlogy(target, target) - target * log_probabilities).sum(dim=1)  # [B]
        return LossOutput(loss=loss, td_error=td_error, priority=loss.detach().clamp(min=0), q_taken=q_taken)

    def advice_on_returns(self, lowest: float, highest: float) -> str | None:
        """See `Agent.advice_on_returns`."""
        if highest < lowest or (self.v_min <= lowest and highest <= self.v_max):
            return None
        return (
            f"discounted returns from {lowest:.4g} to {highest:.4g} were seen, but the support reaches from "
            f"agent.v_min={self.v_min:g} to agent.v_max={self.v_max:g}: values beyond it cannot be learnt."
        )


def project(probabilities: Tensor, values: Tensor, v_min: float, v_max: float) -> Tensor:
    """Move the mass at `values` [B, N] to the nearest atoms on both sides, eq. (7); none of it is lost.

    Args:
        probabilities: [B, N].
        v_min, v_max: the first and the last of N evenly spaced atoms; what lies beyond goes to them.
    """
    last = probabilities.shape[1] - 1
    position = ((values.clamp(v_min, v_max) - v_min) * (last / (v_max - v_min))).clamp(0, last)  # [B, N]
    below = position.floor()
    share = position - below  # of the atom above
    index = below.long()
    projected = torch.zeros_like(probabilities)
    projected = projected.scatter_add(1, index, probabilities * (1 - share))
    return projected.scatter_add(1, (index + 1).clamp(max=last), probabilities * share)
