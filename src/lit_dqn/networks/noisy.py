"""Linear layers with learnt noise on their weights: Fortunato et al. (2018), arXiv:1706.10295."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class NoisyLinear(nn.Module):
    """Weights mu + sigma x noise in training mode, mu otherwise; factorised noise, eq. (10) and (11).

    Noise is drawn at every call, from torch's global generator, and each observation has its own: what
    several envs explore differs, and the networks and passes of an update do not share theirs.

    Deviation from the paper: it holds one noise for a whole minibatch.

    Args:
        inputs, outputs: widths.
        sigma: initial size of the noise, sigma_0 of section 3.2.
    """

    def __init__(self, inputs: int, outputs: int, sigma: float = 0.5) -> None:
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((outputs, inputs), sigma * bound))
        self.bias_sigma = nn.Parameter(torch.full((outputs,), sigma * bound))

    def forward(self, features: Tensor) -> Tensor:
        """Features [B, ..., inputs] -> [B, ..., outputs]; all that belongs to one b shares its noise."""
        mean = functional.linear(features, self.weight, self.bias)
        if not self.training:
            return mean
        between = [1] * (features.dim() - 2)
        into = _scaled(torch.randn(len(features), *between, self.inputs, device=features.device))
        out = _scaled(torch.randn(len(features), *between, self.outputs, device=features.device))
        return mean + out * functional.linear(features * into, self.weight_sigma, self.bias_sigma)


def _scaled(noise: Tensor) -> Tensor:
    return noise.sign() * noise.abs().sqrt()
