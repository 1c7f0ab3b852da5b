"""Heads: features to raw outputs for each action, which the agent's readout reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from lit_dqn.networks.noisy import NoisyLinear
from lit_dqn.networks.readout import MakeReadout, Scalar


class Head(nn.Module, ABC):
    """What heads share.

    Args:
        features: F.
        hidden: width of the hidden layer of each stream.
        num_actions: A.
        make_readout: of the agent.
        noisy: the layers are noisy (arXiv:1706.10295).
        layer_norm: the hidden layer is normalised (arXiv:1607.06450) before its ReLU.
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        num_actions: int,
        make_readout: MakeReadout = Scalar,
        *,
        noisy: bool = False,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.readout = make_readout(features)
        self.num_actions = num_actions
        self._linear = NoisyLinear if noisy else nn.Linear
        self._features, self._hidden, self._layer_norm = features, hidden, layer_norm

    def _stream(self, outputs: int) -> nn.Sequential:
        layers: list[nn.Module] = [self._linear(self._features, self._hidden)]
        if self._layer_norm:
            layers.append(nn.LayerNorm(self._hidden))
        return nn.Sequential(*layers, nn.ReLU(), self._linear(self._hidden, outputs))

    def _by_action(self, outputs: Tensor) -> Tensor:
        return outputs.view(*outputs.shape[:-1], self.num_actions, self.readout.outputs)

    @abstractmethod
    def raw(self, features: Tensor) -> Tensor:
        """Features [B, ..., F] -> [B, ..., A, N], N the readout's number of outputs per action."""

    def forward(self, features: Tensor, *arguments: Any) -> Any:
        return self.readout(self.raw, features, *arguments)


class PlainHead(Head):
    """One stream: Mnih et al. (2015), doi:10.1038/nature14236."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.values = self._stream(self.num_actions * self.readout.outputs)

    def raw(self, features: Tensor) -> Tensor:
        return self._by_action(self.values(features))


class DuelingHead(Head):
    """A value and an advantage stream; advantages are centred: Wang et al. (2016), arXiv:1511.06581, eq. (9).

    With several outputs per action each is centred by itself, as in Rainbow (arXiv:1710.02298, section 3).
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.value = self._stream(self.readout.outputs)
        self.advantage = self._stream(self.num_actions * self.readout.outputs)

    def raw(self, features: Tensor) -> Tensor:
        value = self.value(features).unsqueeze(-2)  # [..., 1, N]
        advantage = self._by_action(self.advantage(features))  # [..., A, N]
        raw: Tensor = value + advantage - advantage.mean(dim=-2, keepdim=True)
        return raw
