"""The convolutional network of Mnih et al. (2015), doi:10.1038/nature14236."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge
from pydantic import ConfigDict, validate_call
from torch import nn

from lit_dqn.envs.image_layout import ImageLayout
from lit_dqn.errors import UserError
from lit_dqn.networks.heads import DuelingHead, PlainHead
from lit_dqn.networks.images import Images
from lit_dqn.networks.mlp import MLPEncoder, Widths
from lit_dqn.networks.qnetwork import QNetwork
from lit_dqn.networks.readout import MakeReadout

KERNELS, STRIDES, CHANNELS = (8, 4, 3), (4, 2, 1), (32, 64, 64)
LEAST = 36  # pixels in height and width, so that the last layer has an output


class NatureCNN(QNetwork):
    """Three convolutions and a fully connected layer, ReLU between; section "Model architecture".

    Args:
        obs_shape: shape of one observation, stacked frames included.
        num_actions: A >= 1.
        make_readout: the agent's.
        layout: where its channels are.
        hidden: widths of the fully connected layers, each >= 1, at least one; the last is the head's.
        dueling: a value and an advantage stream (arXiv:1511.06581).
        noisy: the head's layers are noisy (arXiv:1706.10295).
        layer_norm: fully connected hidden layers are normalised before their ReLU (arXiv:1607.06450).

    Raises:
        UserError: the observations are no images, or too small.
    """

    @validate_call(config=ConfigDict(arbitrary_types_allowed=True))
    def __init__(
        self,
        obs_shape: tuple[int, ...],
        num_actions: Annotated[int, Ge(1)],
        make_readout: MakeReadout,
        layout: ImageLayout,
        *,
        hidden: Widths = [512],  # noqa: B006  (never changed)
        dueling: bool = False,
        noisy: bool = False,
        layer_norm: bool = False,
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
        head = DuelingHead if dueling else PlainHead
        super().__init__(
            encoder=nn.Sequential(*layers, MLPEncoder(inputs, hidden[:-1], layer_norm)),
            head=head(
                [inputs, *hidden][-2],
                hidden[-1],
                num_actions,
                make_readout,
                noisy=noisy,
                layer_norm=layer_norm,
            ),
        )
