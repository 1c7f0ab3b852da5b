"""Readouts: what an agent makes of a head's raw outputs; every one of them has action values."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

Raw = Callable[[Tensor], Tensor]
"""A head without its readout: features [B, ..., F] -> raw outputs [B, ..., A, N]."""


class Readout(nn.Module, ABC):
    """Reads a head.

    Args:
        outputs: N, raw outputs per action.
    """

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.outputs = outputs

    @abstractmethod
    def forward(self, raw: Raw, features: Tensor, *arguments: Any) -> Any:
        """Features [B, F] -> an output with `q_values` [B, A]."""


MakeReadout = Callable[[int], Readout]
"""The number of features F -> the readout; an agent's `readout` is one."""


class QOutput(NamedTuple):
    """One value per action."""

    q_values: Tensor  # [B, A]


class Scalar(Readout):
    """The raw output is the action's value: Mnih et al. (2015), doi:10.1038/nature14236."""

    def __init__(self, features: int) -> None:
        super().__init__(outputs=1)

    def forward(self, raw: Raw, features: Tensor) -> QOutput:
        return QOutput(raw(features).squeeze(-1))


class CategoricalOutput(NamedTuple):
    """A distribution over fixed values, for each action."""

    q_values: Tensor  # [B, A] its mean
    log_probabilities: Tensor  # [B, A, N]
    atoms: Tensor  # [N] the values


class Categorical(Readout):
    """Probabilities of N evenly spaced values: Bellemare et al. (2017), arXiv:1707.06887, section 4.

    Args:
        num_atoms: N >= 2.
        v_min, v_max: the first and the last value.
    """

    def __init__(self, num_atoms: int, v_min: float, v_max: float) -> None:
        super().__init__(outputs=num_atoms)
        self.v_min, self.v_max = v_min, v_max

    def forward(self, raw: Raw, features: Tensor) -> CategoricalOutput:
        log_probabilities = raw(features).log_softmax(dim=-1)  # [B, A, N]
        atoms = torch.linspace(self.v_min, self.v_max, self.outputs, device=features.device)  # [N]
        return CategoricalOutput(log_probabilities.exp() @ atoms, log_probabilities, atoms)


class QuantileOutput(NamedTuple):
    """Quantiles of the return, for each action."""

    q_values: Tensor  # [B, A] their mean
    quantiles: Tensor  # [B, A, N]
    taus: Tensor  # [1, N] or [B, N] in [0, 1]: of which share each is the quantile


class Quantiles(Readout):
    """Quantiles at N fixed shares (taus), midpoints of equal parts: Dabney et al. (2018), arXiv:1710.10044.

    Args:
        num_quantiles: N >= 1.
    """

    def __init__(self, num_quantiles: int) -> None:
        super().__init__(outputs=num_quantiles)

    def forward(self, raw: Raw, features: Tensor) -> QuantileOutput:
        quantiles = raw(features)  # [B, A, N]
        return QuantileOutput(quantiles.mean(dim=-1), quantiles, _midpoints(self.outputs, features.device))


class ImplicitQuantiles(Readout):
    """Quantiles at shares (taus) drawn uniformly: Dabney et al. (2018), arXiv:1806.06923, eq. (4).

    The taus enter by a cosine embedding that multiplies the features; fresh taus for every observation.
    In evaluation mode they are the midpoints of N equal parts instead, so that a policy is a function.

    Args:
        features: F.
        num_cosines: n of eq. (4), >= 1.
        num_acting: taus drawn where none are asked for, >= 1.
    """

    def __init__(self, features: int, num_cosines: int, num_acting: int) -> None:
        super().__init__(outputs=1)
        self.num_cosines, self.num_acting = num_cosines, num_acting
        self.embedding = nn.Linear(num_cosines, features)

    def forward(self, raw: Raw, features: Tensor, num_taus: int | None = None) -> QuantileOutput:
        """See `Readout.forward`.

        Args:
            num_taus: N; None is `num_acting`.
        """
        count = self.num_acting if num_taus is None else num_taus
        if self.training:
            taus = torch.rand(len(features), count, device=features.device)  # [B, N]
        else:
            taus = _midpoints(count, features.device).expand(len(features), count)
        quantiles = raw(features.unsqueeze(1) * self.embed(taus)).squeeze(-1).transpose(1, 2)  # [B, A, N]
        return QuantileOutput(quantiles.mean(dim=-1), quantiles, taus)

    def embed(self, taus: Tensor) -> Tensor:
        """Levels [B, N] -> relu(Linear(cos(pi i tau))), i = 0 .. n-1: [B, N, F]."""
        multiples = math.pi * torch.arange(self.num_cosines, device=taus.device)  # [n]
        embedded: Tensor = self.embedding((taus.unsqueeze(-1) * multiples).cos()).relu()
        return embedded


def _midpoints(count: int, device: torch.device) -> Tensor:
    """The midpoints of `count` equal parts of [0, 1]: [1, count]."""
    return ((torch.arange(count, device=device) + 0.5) / count).unsqueeze(0)
