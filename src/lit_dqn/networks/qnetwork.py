"""A Q-network is an encoder and a head; what the head returns always has `q_values`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lit_dqn.envs.action_mask import allowed
from lit_dqn.networks.noisy import NoisyLinear
from lit_dqn.types import QFunction

FORBIDDEN = -1e9  # finite: times a discount or a probability of 0 it is 0


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
        self.action_mask: slice | None = None  # where an observation says which actions it allows

    def forward(self, obs: Tensor, *arguments: Any) -> Any:
        """The head's output for observations [B, *obs].

        Args:
            arguments: what the agent's readout takes beside the features, such as a number of samples.
        """
        return self.read(self.encoder(obs), obs, *arguments)

    def read(self, features: Tensor, obs: Tensor, *arguments: Any) -> Any:
        """The head's output for features [B, F] of observations; see `forward`.

        Actions that the observation does not allow have the value `FORBIDDEN`: none is chosen, and none is
        a target's maximum.
        """
        output = self.head(features, *arguments)
        if self.action_mask is None:
            return output
        forbidden = ~allowed(obs, self.action_mask)  # [B, A]
        return output._replace(q_values=output.q_values.masked_fill(forbidden, FORBIDDEN))


def acting_values(network: QNetwork) -> QFunction:
    """The network's action values for acting: no gradient, the caller's device in and out.

    In training mode a noisy network draws its noise here, for each observation its own.
    """
    parameter = next(network.parameters())
    noisy = [layer for layer in network.modules() if isinstance(layer, NoisyLinear)]

    def q_values(obs: Tensor) -> Tensor:
        for layer in noisy:
            layer.independent = True
        try:
            with torch.no_grad():
                values: Tensor = network(obs.to(parameter.device)).q_values
        finally:
            for layer in noisy:
                layer.independent = False
        return values.to(obs.device)

    return q_values


@contextmanager
def without_noise(network: nn.Module) -> Iterator[None]:
    """Evaluation mode inside: nothing a network draws while it learns is drawn."""
    training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(training)
