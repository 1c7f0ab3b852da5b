"""A Q-network is an encoder and a head; what the head returns always has `q_values`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lit_dqn.types import QFunction


class QOutput(NamedTuple):
    """What a scalar head returns."""

    q_values: Tensor  # [B, A]


class QNetwork(nn.Module):
    """Encoder, then head.

    Args:
        encoder: observations [B, *obs] -> features [B, F]; takes the observation's own dtype.
        head: features [B, F] -> an output with `q_values` [B, A].
    """

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def forward(self, obs: Tensor) -> QOutput:
        output: QOutput = self.head(self.encoder(obs))
        return output


def acting_values(network: QNetwork) -> QFunction:
    """The network's action values for acting: no gradient, the caller's device in and out."""
    parameter = next(network.parameters())

    def q_values(obs: Tensor) -> Tensor:
        with torch.no_grad():
            values: Tensor = network(obs.to(parameter.device)).q_values
        return values.to(obs.device)

    return q_values
