"""The convolutional network of Mnih et al. (2015), doi:10.1038/nature14236."""

from __future__ import annotations

from typing import Any

from torch import nn

from lit_dqn.envs.image_layout import ImageLayout
from lit_dqn.errors import UserError
from lit_dqn.networks.fully_connected import FullyConnected, Widths
from lit_dqn.networks.images import Images
from lit_dqn.networks.readout import MakeReadout

KERNELS, STRIDES, CHANNELS = (8, 4, 3), (4, 2, 1), (32, 64, 64)
LEAST = 36  # pixels in height and width, so that the last layer has an output


class NatureCNN(FullyConnected):
    """Three convolutions and a fully connected layer, ReLU between; section "Model architecture".

    Args:
        obs_shape: shape of one observation, stacked frames included.
        num_actions, make_readout, hidden, options: see `FullyConnected`.
        layout: where its channels are.

    Raises:
        UserError: the observations are no images, or too small.
    """

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        num_actions: int,
        make_readout: MakeReadout,
        layout: ImageLayout,
        *,
        hidden: Widths = [512],  # noqa: B006  (never changed)
        **options: Any,
    ) -> None:
        images = Images(obs_shape, layout)
        height, width = images.height, images.width
        if min(height, width) < LEAST:
            raise UserError(
                f"network=nature_cnn needs images of at least {LEAST} x {LEAST}, got {height} x {width}; "
                "type network=impala."
            )
        layers: list[nn.Module] = [images]
        before = images.channels
        for channels, kernel, stride in zip(CHANNELS, KERNELS, STRIDES, strict=True):
            layers += [nn.Conv2d(before, channels, kernel, stride), nn.ReLU()]
            before = channels
            height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
        inputs = before * height * width
        super().__init__(inputs, num_actions, make_readout, layers, hidden=hidden, **options)
