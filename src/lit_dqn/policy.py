"""A trained policy, from its checkpoint file alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lit_dqn.checkpoint_file import HEADER, q_net_weights, read_checkpoint
from lit_dqn.config.build import build
from lit_dqn.envs.spaces import encode_batch, encoded_space, rebuild
from lit_dqn.errors import UserError
from lit_dqn.networks.qnetwork import QNetwork, acting_values


class Policy:
    """Greedy actions in the env's own numbering.

    Args:
        q_net: the network.
        spaces: the checkpoint's description of the env's spaces.
    """

    def __init__(self, q_net: QNetwork, spaces: dict[str, Any]) -> None:
        self._space = rebuild(spaces["observation"])
        self._start = int(spaces["action"]["start"])
        self.q_net = q_net.eval()
        self._values = acting_values(self.q_net)

    def q_values(self, obs: Any) -> NDArray[np.float32]:
        """Observations [B, ...] as the env emits them -> expected returns, float32 [B, A]."""
        encoded = torch.from_numpy(np.ascontiguousarray(encode_batch(self._space, obs)))
        return self._values(encoded).numpy()

    def act(self, obs: Any) -> NDArray[np.int64]:
        """Observations [B, ...] as the env emits them -> actions [B], numbered from the space's `start`."""
        action: NDArray[np.int64] = self.q_values(obs).argmax(axis=1) + self._start
        return action


def load(path: str | Path) -> Policy:
    """The policy of a checkpoint (`last.ckpt` or `best.ckpt`); runs no code from the file.

    Raises:
        UserError: no such file, or not one of ours.
    """
    return policy_of(read_checkpoint(Path(path)))


def policy_of(checkpoint: dict[str, Any], network: Mapping[str, Any] | None = None) -> Policy:
    """The policy of a checkpoint that is read already; see `network_of`."""
    return Policy(network_of(checkpoint, network), checkpoint[HEADER]["spaces"])


def network_of(checkpoint: dict[str, Any], network: Mapping[str, Any] | None = None) -> QNetwork:
    """The checkpoint's online network with its weights.

    Args:
        network: its class and options from a checked configuration, which may name code from outside
            lit_dqn; None takes the file's own, which may not.

    Raises:
        UserError: the weights do not fit the network.
    """
    header = checkpoint[HEADER]
    shape = encoded_space(rebuild(header["spaces"]["observation"])).shape
    values = header["config"]["network"] if network is None else network
    num_actions = header["spaces"]["action"]["n"]
    built: QNetwork = build("network", values, shape, num_actions, trusted=network is not None)
    load_weights(built, checkpoint)
    return built


def load_weights(network: QNetwork, checkpoint: dict[str, Any]) -> None:
    """Put a checkpoint's online weights into a network.

    Raises:
        UserError: they do not fit.
    """
    try:
        network.load_state_dict(q_net_weights(checkpoint))
    except RuntimeError as error:
        raise UserError(
            f"the checkpoint's weights do not fit this network: {str(error).splitlines()[1].strip()}"
        ) from error
