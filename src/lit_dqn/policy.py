"""A trained policy, from its checkpoint file alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lit_dqn.agents.agent import Agent
from lit_dqn.checkpoint_file import HEADER, q_net_weights, read_checkpoint
from lit_dqn.config.build import build, objects_taken
from lit_dqn.envs.action_mask import mask_slice
from lit_dqn.envs.frame_stack import FrameStack
from lit_dqn.envs.image_layout import ImageLayout
from lit_dqn.envs.spaces import encode_batch, encoded_space, rebuild
from lit_dqn.errors import UserError
from lit_dqn.networks.qnetwork import QNetwork, acting_values

READOUT = 3  # which of a network's objects the readout is


class Policy:
    """Greedy actions in the env's own numbering.

    Args:
        q_net: the network.
        spaces: the checkpoint's description of the env's spaces.
        stack: with k > 1 frames, observations are [B, k, ...], oldest first, as they were trained on.
    """

    def __init__(self, q_net: QNetwork, spaces: dict[str, Any], stack: FrameStack) -> None:
        self.stack = stack
        self._space = rebuild(spaces["observation"])
        self._start = int(spaces["action"]["start"])
        self.q_net = q_net.eval()
        self._values = acting_values(self.q_net)

    def q_values(self, obs: Any) -> NDArray[np.float32]:
        """Observations [B, ...] as the env emits them -> expected returns, float32 [B, A]."""
        return self._values(torch.from_numpy(np.ascontiguousarray(self._encoded(obs)))).numpy()

    def act(self, obs: Any) -> NDArray[np.int64]:
        """Observations [B, ...] as the env emits them -> actions [B], numbered from the space's `start`."""
        action: NDArray[np.int64] = self.q_values(obs).argmax(axis=1) + self._start
        return action

    def player(self) -> Callable[[Any, bool], int]:
        """For one env: (observation, whether it begins an episode) -> action; keeps earlier frames."""
        stack = copy(self.stack)

        def act(obs: Any, first: bool) -> int:
            frame = encode_batch(self._space, batch_of_one(obs))
            if first:
                stack.start(frame)
            else:
                stack.push(frame, np.zeros(1, dtype=bool))
            values = self._values(torch.from_numpy(np.ascontiguousarray(stack.frames)))
            return int(values.argmax(dim=1)) + self._start

        return act

    def _encoded(self, obs: Any) -> NDArray[Any]:
        if self.stack.count == 1:
            return encode_batch(self._space, obs)
        frames = encode_batch(self._space, merge_axes(obs, self.stack.count))  # [B * k, *encoded]
        return frames.reshape(-1, self.stack.count, *frames.shape[1:])


def load(path: str | Path, trust: bool = False) -> Policy:
    """The policy of a checkpoint (`last.ckpt` or `best.ckpt`).

    Args:
        trust: import an agent or a network that the file names and that lies outside lit_dqn. Without it no
            code from the file runs.

    Raises:
        UserError: no such file, or not one of ours; a foreign class without `trust`.
    """
    checkpoint = read_checkpoint(Path(path))
    return policy_of(checkpoint, checkpoint[HEADER]["config"] if trust else None)


def policy_of(checkpoint: dict[str, Any], config: Mapping[str, Any] | None = None) -> Policy:
    """The policy of a checkpoint that is read already; see `network_of`."""
    header = checkpoint[HEADER]
    stack = FrameStack.of(header["config"]["buffer"])
    return Policy(network_of(checkpoint, config), header["spaces"], stack)


def batch_of_one(obs: Any) -> Any:
    """One observation as a batch [1, ...], inside Dict and Tuple too."""
    if isinstance(obs, dict):
        return {key: batch_of_one(value) for key, value in obs.items()}
    if isinstance(obs, tuple):
        return tuple(batch_of_one(value) for value in obs)
    return [obs]


def merge_axes(obs: Any, count: int) -> Any:
    """Stacked frames [B, count, ...] as a batch [B * count, ...], inside Dict and Tuple too.

    Raises:
        ValueError: the second axis has another length.
    """
    if isinstance(obs, dict):
        return {key: merge_axes(value, count) for key, value in obs.items()}
    if isinstance(obs, tuple):
        return tuple(merge_axes(value, count) for value in obs)
    array = np.asarray(obs)
    if array.ndim < 2 or array.shape[1] != count:
        raise ValueError(f"observations must be stacks [B, {count}, ...], got the shape {list(array.shape)}")
    return array.reshape(-1, *array.shape[2:])


def network_of(checkpoint: dict[str, Any], config: Mapping[str, Any] | None = None) -> QNetwork:
    """The checkpoint's online network with its weights.

    Args:
        config: a checked configuration, whose agent and network may be code from outside lit_dqn; None
            takes the file's own, which may not.

    Raises:
        UserError: the weights do not fit the network.
    """
    header = checkpoint[HEADER]
    space, num_actions = rebuild(header["spaces"]["observation"]), header["spaces"]["action"]["n"]
    stacked = {"buffer": header["config"]["buffer"]}  # as it was trained
    values, trusted = (header["config"], False) if config is None else ({**config, **stacked}, True)
    _, built = agent_and_network(values, encoded_space(space).shape, num_actions, trusted)
    built.action_mask = mask_slice(space, num_actions)
    load_weights(built, checkpoint)
    return built


def agent_and_network(
    config: Mapping[str, Any], shape: tuple[int, ...], num_actions: int, trusted: bool
) -> tuple[Agent, QNetwork]:
    """The agent, and a new network that gives what the agent reads.

    Args:
        shape: of one observation, without stacked frames.
        trusted: see `build`.

    Raises:
        UserError: the network knows nothing of readouts, but the agent reads more than a value per action.
    """
    agent: Agent = build("agent", config["agent"], trusted=trusted)
    stack = FrameStack.of(config["buffer"])
    layout = ImageLayout(shape, stack.count > 1, config["env"].get("image_layout", "auto"))
    objects = (stack.shape(shape), num_actions, agent.readout, layout)
    network: QNetwork = build("network", config["network"], *objects, trusted=trusted)
    taken = objects_taken(type(network))
    if taken is not None and taken < READOUT and type(agent).readout is not Agent.readout:
        raise UserError(
            f"network {type(network).__name__} gives one value per action, but agent "
            f"{type(agent).__name__} reads more: its constructor must take a third object, the readout."
        )
    return agent, network


def load_weights(network: QNetwork, checkpoint: dict[str, Any]) -> None:
    """Put a checkpoint's online weights into a network.

    Raises:
        UserError: they do not fit.
    """
    try:
        network.load_state_dict(q_net_weights(checkpoint))
    except RuntimeError as error:
        first = str(error).splitlines()[1].strip()
        reason = first if len(first) <= 120 else first[:117] + "..."
        raise UserError(f"the checkpoint's weights do not fit this network: {reason}") from error
