"""What every network ends with: fully connected layers, of which the last belongs to the head."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

import torch
from annotated_types import Ge, Len
from pydantic import ConfigDict, validate_call
from torch import Tensor, nn

from lit_dqn.networks.heads import DuelingHead, PlainHead
from lit_dqn.networks.qnetwork import QNetwork
from lit_dqn.networks.readout import MakeReadout

Widths = Annotated[list[Annotated[int, Ge(1)]], Len(1)]


class FullyConnectedEncoder(nn.Module):
    """Flatten, scale uint8 to [0, 1], then ReLU layers (none: the input itself)."""

    def __init__(self, inputs: int, hidden: list[int], layer_norm: bool) -> None:
        super().__init__()
        self.inputs = inputs
        widths = [inputs, *hidden]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), *([nn.LayerNorm(after)] if layer_norm else []), nn.ReLU()]
        self.layers = nn.Sequential(*layers)

    def forward(self, obs: Tensor) -> Tensor:
        flat = obs.reshape(len(obs), self.inputs)  # [B, D]; an observation may have no axis at all
        flat = flat.float() / 255 if flat.dtype == torch.uint8 else flat
        features: Tensor = self.layers(flat)
        return features


class FullyConnected(QNetwork):
    """ReLU layers of the given widths; the last one belongs to the head (to each stream when dueling).

    Args:
        inputs: what the first layer takes of one observation.
        num_actions: A >= 1.
        make_readout: the agent's.
        before: modules that make those inputs of an observation, in order; none: it is flattened.
        hidden: widths of the layers, each >= 1, at least one.
        dueling: a value and an advantage stream (arXiv:1511.06581).
        noisy: the head's layers are noisy (arXiv:1706.10295).
        layer_norm: hidden layers are normalised before their ReLU (arXiv:1607.06450).
    """

    @validate_call(config=ConfigDict(arbitrary_types_allowed=True))
    def __init__(
        self,
        inputs: int,
        num_actions: Annotated[int, Ge(1)],
        make_readout: MakeReadout,
        before: Sequence[nn.Module] = (),
        *,
        hidden: Widths,
        dueling: bool = False,
        noisy: bool = False,
        layer_norm: bool = False,
    ) -> None:
        layers = FullyConnectedEncoder(inputs, hidden[:-1], layer_norm)
        head = DuelingHead if dueling else PlainHead
        super().__init__(
            encoder=nn.Sequential(*before, layers) if before else layers,
            head=head(
                [inputs, *hidden][-2],
                hidden[-1],
                num_actions,
                make_readout,
                noisy=noisy,
                layer_norm=layer_norm,
            ),
        )
