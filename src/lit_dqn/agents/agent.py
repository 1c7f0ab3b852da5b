"""What every agent is: a loss, and how its target network follows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated

from annotated_types import Ge, Gt, Le

from lit_dqn.networks.qnetwork import QNetwork
from lit_dqn.types import Batch, LossOutput

TargetUpdateInterval = Annotated[int, Ge(1)]
Tau = Annotated[float, Gt(0), Le(1)]


class Agent(ABC):
    """One loss of the family.

    Args:
        target_update_interval: updates between two target syncs, >= 1.
        tau: target <- tau x online + (1 - tau) x target at a sync; 1 is the hard copy.
    """

    def __init__(self, target_update_interval: int, tau: float) -> None:
        self.target_update_interval = target_update_interval
        self.tau = tau

    @abstractmethod
    def loss(self, q_net: QNetwork, target_net: QNetwork, batch: Batch) -> LossOutput:
        """The per-sample loss of one minibatch; pure: no weights, no logging, no gamma."""
