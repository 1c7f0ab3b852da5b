"""Networks that are tables: what a state's one-hot observation gives is what a test says."""

from __future__ import annotations

import torch
from torch import nn

from lit_dqn.networks.qnetwork import QNetwork
from lit_dqn.types import Batch


class Table(nn.Module):
    """A head whose raw outputs [A, N] are looked up by a one-hot observation."""

    def __init__(self, raw, readout):
        super().__init__()
        self.raw_outputs = nn.Parameter(torch.tensor(raw))  # [S, A, N]
        self.readout = readout

    def raw(self, features):
        return torch.einsum("b...s,san->b...an", features, self.raw_outputs)

    def forward(self, features, *arguments):
        return self.readout(self.raw, features, *arguments)


def table(agent, raw):
    """A Q-network with the agent's readout over literal raw outputs [S, A, N]."""
    return QNetwork(nn.Identity(), Table(raw, agent.readout(len(raw))))


def batch_of(state, action, reward, discount, next_state, states=2):
    """A batch over one-hot states."""
    eye = torch.eye(states)
    return Batch(
        obs=eye[state],
        action=torch.tensor(action),
        reward=torch.tensor(reward),
        discount=torch.tensor(discount),
        next_obs=eye[next_state],
        index=torch.arange(len(action)),
    )


BATCH = {
    "state": [0, 0, 1, 1],
    "action": [0, 1, 1, 0],
    "reward": [0.3, 1.0, -0.7, 5.0],
    "discount": [0.9, 0.0, 0.729, 0.5],
    "next_state": [1, 1, 0, 0],
}
"""Arguments of `batch_of`: both actions, an ending, a discount of several steps, a reward off every scale."""
