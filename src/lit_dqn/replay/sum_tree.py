"""A sum tree over priorities, in tensors: every level is one operation for the whole batch.

Leaves and sums are float64. A parent is always summed anew from its children, so nothing drifts.
"""

from __future__ import annotations

import torch
from torch import Tensor

FAN_OUT_BITS = 4
FAN_OUT = 1 << FAN_OUT_BITS
BELOW_ONE = 1 - 2**-52
TOP = 4096  # at most so many sums on the uppermost level, which is searched flat


class SumTree:
    """Draws leaves in proportion to their values.

    Args:
        size: number of leaves, >= 1.
        device: where it lies and is searched.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        self.size = size
        widths = [size]
        while widths[-1] > TOP:
            widths.append(-(-widths[-1] // FAN_OUT))
        # Each level but the uppermost is padded to whole families; padding stays 0 and is never drawn.
        padded = [-(-width // FAN_OUT) * FAN_OUT for width in widths]
        self._levels = [torch.zeros(width, dtype=torch.float64, device=device) for width in padded]
        self._families = [level.view(-1, FAN_OUT) for level in self._levels]

    def __getitem__(self, leaf: Tensor) -> Tensor:
        """Values of leaves [M], float64."""
        return self._levels[0].index_select(0, leaf)

    @property
    def leaves(self) -> Tensor:
        """All values, [size] float64."""
        return self._levels[0][: self.size]

    @property
    def total(self) -> Tensor:
        """The sum of all leaves, [] float64."""
        return self._levels[-1].sum()

    def set(self, leaf: Tensor, value: Tensor) -> None:
        """Give leaves [M] new values [M] float64 >= 0; where a leaf occurs twice the last one counts."""
        leaf, order = leaf.sort(stable=True)
        last = torch.searchsorted(leaf, leaf, right=True) - 1  # of the run of equal leaves
        self._levels[0].index_put_((leaf,), value[order[last]])
        for families, parents in zip(self._families, self._levels[1:], strict=False):
            leaf = leaf >> FAN_OUT_BITS
            parents.index_put_((leaf,), families.index_select(0, leaf).sum(dim=1))

    def draw(self, share: Tensor) -> Tensor:
        """The leaves at shares [M] float64 in [0, 1) of the total: [M]; none of them has the value 0.

        The total must be above 0.
        """
        top = self._levels[-1].new_zeros(len(self._levels[-1]) + 1)
        torch.cumsum(self._levels[-1], 0, out=top[1:])
        target = _within(share * top[-1], top[-1])
        node = torch.searchsorted(top, target, right=True) - 1  # [M]
        before = top.index_select(0, node)
        for families in reversed(self._families[:-1]):
            sums = target.new_zeros(len(node), FAN_OUT + 1)  # of what stands before each child, and of all
            torch.cumsum(families.index_select(0, node), 1, out=sums[:, 1:])
            target = _within(target - before, sums[:, -1])
            child = torch.searchsorted(sums, target.unsqueeze(1), right=True) - 1  # [M, 1]
            before = sums.gather(1, child).squeeze(1)
            node = (node << FAN_OUT_BITS) + child.squeeze(1)
        return node


def _within(target: Tensor, end: Tensor) -> Tensor:
    """Targets in [0, end), whatever rounding did to them: then the search ends at a child above 0."""
    return torch.minimum(target.clamp_(min=0), end * BELOW_ONE)
