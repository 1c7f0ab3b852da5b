"""Images as convolutions take them: channels first, floats."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from lit_dqn.envs.image_layout import ImageLayout


class Images(nn.Module):
    """Any layout [B, ...] -> [B, C, H, W]; stacked frames become channels, bytes are scaled to [0, 1].

    The values lie channels-last in memory, which convolutions on a CPU are fastest on.

    Args:
        obs_shape: shape of one observation, stacked frames included.
        layout: tells its axes.

    Raises:
        UserError: see `ImageLayout.axes`.
    """

    def __init__(self, obs_shape: tuple[int, ...], layout: ImageLayout) -> None:
        super().__init__()
        axes = layout.axes()
        self._order = [0, *(1 + axes.index(letter) for letter in "kchw" if letter in axes)]
        size = dict(zip(axes, obs_shape, strict=True))
        self.channels = math.prod(size.get(letter, 1) for letter in "kc")
        self.height, self.width = size["h"], size["w"]

    def forward(self, obs: Tensor) -> Tensor:
        """Observations [B, *obs_shape] of bytes or floats -> float32 [B, C, H, W]."""
        images = obs.permute(self._order).reshape(len(obs), self.channels, self.height, self.width)
        images = images.contiguous(memory_format=torch.channels_last)
        return images.float() / 255 if obs.dtype == torch.uint8 else images
