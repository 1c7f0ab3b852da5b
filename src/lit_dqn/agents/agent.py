"""What every agent is: a loss, what it reads of the network, and how its target network follows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated

from annotated_types import Ge, Gt, Le
from pydantic import validate_call
from torch import Tensor

from lit_dqn.networks.qnetwork import QNetwork
from lit_dqn.networks.readout import Readout, Scalar
from lit_dqn.types import Batch, LossOutput

TargetUpdateInterval = Annotated[int, Ge(1)]
Tau = Annotated[float, Gt(0), Le(1)]


class Agent(ABC):
    """One loss of the family.

    Args:
        double: the online network picks the next action, the target network values it:
            van Hasselt et al. (2016), arXiv:1509.06461, eq. (4).
        target_update_interval: updates between two target syncs, >= 1.
        tau: target <- tau x online + (1 - tau) x target at a sync; 1 is the hard copy.
    """

    @validate_call
    def __init__(
        self,
        *,
        double: bool = False,
        target_update_interval: TargetUpdateInterval = 50,
        tau: Tau = 1.0,
    ) -> None:
        self.double = double
        self.target_update_interval = target_update_interval
        self.tau = tau

    def readout(self, features: int) -> Readout:
        """What the networks' heads give: one value per action unless an agent says otherwise.

        Args:
            features: width of what the encoder gives the head.
        """
        return Scalar(features)

    def advice_on_returns(self, lowest: float, highest: float) -> str | None:
        """A sentence for the user where the discounted returns seen do not go with the options.

        Args:
            lowest, highest: their range; (inf, -inf) before any was seen.
        """
        return None

    @abstractmethod
    def loss(self, q_net: QNetwork, target_net: QNetwork, batch: Batch) -> LossOutput:
        """The per-sample loss of one minibatch; pure: no weights, no logging, no gamma."""


def at_action(values: Tensor, action: Tensor) -> Tensor:
    """What belongs to one action each: values [B, A, ...] and actions [B] -> [B, ...]."""
    index = action.view(-1, 1, *[1] * (values.dim() - 2)).expand(-1, 1, *values.shape[2:])
    return values.gather(1, index).squeeze(1)
