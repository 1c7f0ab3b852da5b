"""Our Adam is torch's fused one, bit for bit, with its state."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch.nn import Parameter

from lit_dqn.fused_adam import FusedAdam

OPTIONS = {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-3}


def pair(groups):
    return [
        kind([{"params": [Parameter(torch.ones(n)) for n in sizes]} for sizes in groups], **OPTIONS)
        for kind in (FusedAdam, partial(torch.optim.Adam, fused=True))
    ]


def parameters(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def step(optimizer, seed, skipped=()):
    g = torch.Generator().manual_seed(seed)
    for i, p in enumerate(parameters(optimizer)):
        gradient = torch.randn(p.shape, generator=g)
        p.grad = None if i in skipped else gradient
    optimizer.step()


def assert_equal(one, other):
    for a, b in zip(parameters(one), parameters(other), strict=True):
        assert torch.equal(a, b)
    states = one.state_dict()["state"], other.state_dict()["state"]
    assert states[0].keys() == states[1].keys()
    for key in states[0]:
        for name in ("step", "exp_avg", "exp_avg_sq"):
            assert torch.equal(states[0][key][name], states[1][key][name])


@pytest.mark.parametrize("groups", [[[5]], [[3, 2], [4]]])
def test_its_steps_are_those_of_torchs_fused_adam(groups):
    ours, torchs = pair(groups)
    for seed in range(8):
        for optimizer in (ours, torchs):
            optimizer.param_groups[0]["lr"] = 0.1 / (seed + 1)
            step(optimizer, seed)
        assert_equal(ours, torchs)


def test_a_parameter_without_a_gradient_stays_and_takes_part_later():
    ours, torchs = pair([[3, 2]])
    for seed, skipped in enumerate([(), (1,), (), (0,)]):
        step(ours, seed, skipped)
        step(torchs, seed, skipped)
        assert_equal(ours, torchs)
    ours, torchs = pair([[3, 2]])
    for seed, skipped in enumerate([(1,), (0, 1), (1,), (), ()]):
        step(ours, seed, skipped)
        step(torchs, seed, skipped)
        assert_equal(ours, torchs)


def test_each_goes_on_from_the_others_state():
    ours, torchs = pair([[4]])
    step(ours, 0)
    step(torchs, 0)
    states = copy.deepcopy(ours.state_dict()), copy.deepcopy(torchs.state_dict())
    ours.load_state_dict(states[1])
    torchs.load_state_dict(states[0])
    step(ours, 1)
    step(torchs, 1)
    assert_equal(ours, torchs)


def test_a_closure_is_called_with_gradients_on_before_the_step():
    (ours, _), calls = pair([[2]]), []

    def closure():
        calls.append(torch.is_grad_enabled())
        parameters(ours)[0].grad = torch.ones(2)
        return 7

    assert [ours.step(closure), ours.step(closure)] == [7, 7]
    assert calls == [True, True]
    torch.testing.assert_close(parameters(ours)[0].detach(), torch.full((2,), 0.8), atol=1e-3, rtol=0)
