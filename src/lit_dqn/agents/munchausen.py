"""Munchausen RL, a switch of several agents: Vieillard et al. (2020), arXiv:2007.14430."""

from __future__ import annotations

from typing import Annotated, Any

from annotated_types import Ge, Gt, Le
from pydantic import validate_call
from torch import Tensor

from lit_dqn.agents.agent import Agent, at_action
from lit_dqn.errors import UserError


class MunchausenAgent(Agent):
    """The policy is a softmax of the target network's values; its log is added to the reward, eq. (1).

    target = reward + alpha [tau log pi(a | s)]_floor^0
             + discount sum_a' pi(a' | s') (q(s', a') - tau log pi(a' | s'))

    With n-step returns the first action's log is added, once.

    Args:
        munchausen: on or off.
        munchausen_tau: temperature of the softmax, > 0, in units of the return.
        munchausen_alpha: share of the log-policy that is added to the reward, in [0, 1].
        munchausen_floor: tau log pi is cut off below it, <= 0.
        options: see `Agent`.

    Raises:
        UserError: together with `double`, which has no greedy action to pick here.
    """

    @validate_call
    def __init__(
        self,
        *,
        munchausen: bool = False,
        munchausen_tau: Annotated[float, Gt(0)] = 0.03,
        munchausen_alpha: Annotated[float, Ge(0), Le(1)] = 0.9,
        munchausen_floor: Annotated[float, Le(0)] = -1.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if munchausen and self.double:
            raise UserError(
                "agent.double=true does not go with agent.munchausen=true: its target has no greedy action "
                "for the online network to pick. Type agent.double=false."
            )
        self.munchausen = munchausen
        self.munchausen_tau, self.munchausen_alpha = munchausen_tau, munchausen_alpha
        self.munchausen_floor = munchausen_floor

    def log_policy_bonus(self, q: Tensor, action: Tensor) -> Tensor:
        """What is added to the reward: the target network's values [B, A] and the actions [B] -> [B]."""
        tau_log_policy = self.munchausen_tau * (q / self.munchausen_tau).log_softmax(dim=1)  # [B, A]
        clipped = at_action(tau_log_policy, action).clamp(self.munchausen_floor, 0.0)  # [B]
        return self.munchausen_alpha * clipped

    def soft_value(self, q: Tensor, values: Tensor) -> Tensor:
        """The softmax policy's mean over actions of `values` [B, A, ...], its entropy included: [B, ...].

        Args:
            q: [B, A] what the policy is the softmax of.
        """
        log_policy = (q / self.munchausen_tau).log_softmax(dim=1)  # [B, A]
        shape = (*log_policy.shape, *[1] * (values.dim() - 2))
        soft = values - self.munchausen_tau * log_policy.view(shape)  # [B, A, ...]
        return (log_policy.exp().view(shape) * soft).sum(dim=1)
