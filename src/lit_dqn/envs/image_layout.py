"""Where the channels of an image are: said by the user, or told from its shape where that is beyond doubt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lit_dqn.errors import UserError

Layout = Literal["auto", "hwc", "chw"]
CHANNELS = (1, 3, 4)  # gray, RGB, RGBA or four stacked frames


@dataclass(frozen=True)
class ImageLayout:
    """What is known about the axes of an observation.

    Args:
        shape: of one observation of the env, without stacked frames.
        stacked: frames are stacked by the replay, on an axis before these.
        layout: `env.image_layout`.
    """

    shape: tuple[int, ...]
    stacked: bool = False
    layout: Layout = "auto"

    def axes(self) -> str:
        """A letter per axis of what the network sees: k frames, c channels, h height, w width.

        Raises:
            UserError: it is no image, or the order of its axes is in doubt.
        """
        return ("k" if self.stacked else "") + self._axes_of_one()

    def _axes_of_one(self) -> str:
        if len(self.shape) == 2:
            return "hw"
        if len(self.shape) != 3:
            raise UserError(
                "the network needs images [h, w], [h, w, c] or [c, h, w], and the env's observations have "
                f"the shape {list(self.shape)}; type network=mlp."
            )
        if self.layout != "auto":
            return self.layout
        first, last = self.shape[0] in CHANNELS, self.shape[2] in CHANNELS
        if first == last:
            raise UserError(
                f"the env's observations have the shape {list(self.shape)}: type env.image_layout=hwc if the "
                "channels are the last axis, env.image_layout=chw if they are the first."
            )
        return "chw" if first else "hwc"
