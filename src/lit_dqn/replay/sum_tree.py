"""A sum tree over priorities, in tensors: every level is one operation for the whole batch.

Leaves and sums are float64. A parent is always summed anew from its children, so nothing drifts.
"""

from __future__ import annotations

import torch
from torch import Tensor

FAN_OUT = 16
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
        last = torch.ones_like(leaf, dtype=torch.bool)
        torch.ne(leaf[1:], leaf[:-1], out=last[:-1])
        leaf = leaf[last]
        self._levels[0][leaf] = value[order[last]]
        for families, parents in zip(self._families, self._levels[1:], strict=False):
            leaf = leaf.div(FAN_OUT, rounding_mode="floor")
            parents[leaf] = families.index_select(0, leaf).sum(dim=1)

    def draw(self, share: Tensor) -> Tensor:
        """The leaves at shares [M] float64 in [0, 1) of the total: [M]; none of them has the value 0.

        The total must be above 0.
        """
        cumulative = self._levels[-1].cumsum(0).unsqueeze(0)  # [1, W]
        target = _below(share * cumulative[0, -1], cumulative[0, -1])
        node = torch.searchsorted(cumulative[0], target, right=True)  # [M]
        before = _sum_before(cumulative.expand(len(node), -1), node)
        for families in reversed(self._families[:-1]):
            cumulative = families.index_select(0, node).cumsum(dim=1)  # [M, FAN_OUT]
            target = _below((target - before).clamp(min=0), cumulative[:, -1])
            child = torch.searchsorted(cumulative, target.unsqueeze(1), right=True).squeeze(1)
            before = _sum_before(cumulative, child)
            node = node * FAN_OUT + child
        return node


def _below(target: Tensor, end: Tensor) -> Tensor:
    """Targets strictly below `end`, whatever rounding did: then the search ends at a child above 0."""
    return torch.minimum(target, torch.nextafter(end, torch.zeros_like(end)))


def _sum_before(cumulative: Tensor, child: Tensor) -> Tensor:
    """The sum of what stands before `child` [M] in its row of `cumulative` [M, W]."""
    before = cumulative.gather(1, (child - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
    return torch.where(child > 0, before, 0.0)
