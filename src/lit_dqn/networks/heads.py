"""Heads: features to action values."""

from __future__ import annotations

from torch import Tensor, nn

from lit_dqn.networks.qnetwork import QOutput


def _stream(features: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


class ScalarHead(nn.Module):
    """One hidden layer, then one value per action: Mnih et al. (2015), doi:10.1038/nature14236."""

    def __init__(self, features: int, hidden: int, num_actions: int) -> None:
        super().__init__()
        self.values = _stream(features, hidden, num_actions)

    def forward(self, features: Tensor) -> QOutput:
        return QOutput(self.values(features))


class DuelingHead(nn.Module):
    """A value and an advantage stream, each with its hidden layer; advantages are centred.

    Wang et al. (2016), arXiv:1511.06581, eq. (9).
    """

    def __init__(self, features: int, hidden: int, num_actions: int) -> None:
        super().__init__()
        self.value = _stream(features, hidden, 1)
        self.advantage = _stream(features, hidden, num_actions)

    def forward(self, features: Tensor) -> QOutput:
        value = self.value(features)  # [B, 1]
        advantage = self.advantage(features)  # [B, A]
        return QOutput(value + advantage - advantage.mean(dim=1, keepdim=True))
