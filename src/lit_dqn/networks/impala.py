"""The residual network of IMPALA: Espeholt et al. (2018), arXiv:1802.01561, figure 3 (right)."""

from __future__ import annotations

from typing import Annotated, Any

from annotated_types import Ge
from pydantic import ConfigDict, validate_call
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm as with_spectral_norm

from lit_dqn.envs.image_layout import ImageLayout
from lit_dqn.networks.fully_connected import FullyConnected, Widths
from lit_dqn.networks.images import Images
from lit_dqn.networks.readout import MakeReadout

CHANNELS = (16, 32, 32)
POOLED = 6  # Clark et al. (2024), arXiv:2411.03820


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x)))): [B, C, H, W] -> the same shape."""

    def __init__(self, channels: int, spectral_norm: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
        )
        if spectral_norm:
            with_spectral_norm(self.layers[1])
            with_spectral_norm(self.layers[3])

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = images + self.layers(images)
        return out


class Impala(FullyConnected):
    """Three sections of convolution, pooling and two residual blocks, then a fully connected layer.

    Args:
        obs_shape: shape of one observation, stacked frames included.
        num_actions, make_readout, hidden, options: see `FullyConnected`.
        layout: where its channels are.
        width: factor on the 16, 32 and 32 channels of the sections, >= 1.
        adaptive_pool: the last section's output is max-pooled to 6 x 6, whatever its size (arXiv:2411.03820).
        spectral_norm: of the residual blocks' convolutions (arXiv:1802.05957; in Q-learning
            arXiv:2105.05246).

    Raises:
        UserError: the observations are no images.
    """

    @validate_call(config=ConfigDict(arbitrary_types_allowed=True))
    def __init__(
        self,
        obs_shape: tuple[int, ...],
        num_actions: int,
        make_readout: MakeReadout,
        layout: ImageLayout,
        *,
        hidden: Widths = [256],  # noqa: B006  (never changed)
        width: Annotated[int, Ge(1)] = 1,
        adaptive_pool: bool = False,
        spectral_norm: bool = False,
        **options: Any,
    ) -> None:
        images = Images(obs_shape, layout)
        size = (images.height, images.width)
        layers: list[nn.Module] = [images]
        before = images.channels
        for section in CHANNELS:
            channels = section * width
            layers += [
                nn.Conv2d(before, channels, 3, padding=1),
                nn.MaxPool2d(3, stride=2, padding=1),
                ResidualBlock(channels, spectral_norm),
                ResidualBlock(channels, spectral_norm),
            ]
            before, size = channels, ((size[0] + 1) // 2, (size[1] + 1) // 2)
        layers.append(nn.ReLU())
        if adaptive_pool:
            layers.append(nn.AdaptiveMaxPool2d(POOLED))
            size = (POOLED, POOLED)
        inputs = before * size[0] * size[1]
        super().__init__(inputs, num_actions, make_readout, layers, hidden=hidden, **options)
