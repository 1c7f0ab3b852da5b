"""Linear layers with learnt noise on their weights: Fortunato et al. (2018), arXiv:1706.10295."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class NoisyLinear(nn.Module):
    """Weights mu + sigma x noise in training mode, mu otherwise; factorised noise, eq. (10) and (11).

    Noise is drawn at every call, from torch's global generator: the networks and passes of an update do not
    share theirs, a minibatch does, as in the paper. With `independent` each observation has its own, so that
    envs that act at once explore differently.

    Args:
        inputs, outputs: widths.
        sigma: initial size of the noise, sigma_0 of section 3.2.
    """

    independent = False

    def __init__(self, inputs: int, outputs: int, sigma: float = 0.5) -> None:
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((outputs, inputs), sigma * bound))
        self.bias_sigma = nn.Parameter(torch.full((outputs,), sigma * bound))

    def forward(self, features: Tensor) -> Tensor:
        """Features [B, ..., inputs] -> [B, ..., outputs]; all that belongs to one b has the same noise."""
        mean = functional.linear(features, self.weight, self.bias)
        if not self.training:
            return mean
        shape = [len(features) if self.independent else 1, *[1] * (features.dim() - 2)]
        into = _scaled(torch.randn(*shape, self.inputs, device=features.device))
        out = _scaled(torch.randn(*shape, self.outputs, device=features.device))
        return mean + out * functional.linear(features * into, self.weight_sigma, self.bias_sigma)


def _scaled(noise: Tensor) -> Tensor:
    return noise.sign() * noise.abs().sqrt()
