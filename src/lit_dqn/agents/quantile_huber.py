"""The loss of quantile agents: quantiles regressed on samples, with Huber's rounding near zero."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def quantile_huber(quantiles: Tensor, taus: Tensor, targets: Tensor, kappa: float) -> Tensor:
    """Sum over the N quantiles of the mean over the N' targets: [B].

    Dabney et al. (2018), arXiv:1806.06923, eq. (3); with kappa = 1 also arXiv:1710.10044, eq. (10).

    Args:
        quantiles: [B, N] with gradient.
        taus: [1, N] or [B, N]: of which share each is the quantile.
        targets: [B, N'] without gradient.
        kappa: errors up to this size are squared, > 0.
    """
    shape = (*quantiles.shape, targets.shape[1])
    predicted = quantiles.unsqueeze(2).expand(shape)
    wanted = targets.unsqueeze(1).expand(shape)
    huber = functional.huber_loss(predicted, wanted, reduction="none", delta=kappa)  # [B, N, N']
    above = (wanted < predicted).detach()  # the quantile is too high
    weight = (taus.unsqueeze(2) - above.to(taus.dtype)).abs()
    return (weight * huber).sum(dim=1).mean(dim=1) / kappa
