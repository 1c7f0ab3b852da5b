"""The fully connected Q-network for vector observations."""

from __future__ import annotations

import math
from typing import Any

from lit_dqn.networks.fully_connected import FullyConnected, Widths
from lit_dqn.networks.readout import MakeReadout, Scalar


class MLP(FullyConnected):
    """Fully connected layers on the flattened observation.

    Args:
        obs_shape: shape of one observation.
        num_actions, make_readout, hidden, options: see `FullyConnected`.
    """

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        num_actions: int,
        make_readout: MakeReadout = Scalar,
        *,
        hidden: Widths = [128, 128],  # noqa: B006  (never changed)
        **options: Any,
    ) -> None:
        super().__init__(math.prod(obs_shape), num_actions, make_readout, hidden=hidden, **options)
