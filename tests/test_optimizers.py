"""The optimizers against their formulas, and the learning rate as a function of the env step."""

from __future__ import annotations

import pytest
import torch
from torch.nn import Parameter

from lit_dqn.errors import UserError
from lit_dqn.optimizers import Adam, RMSProp


def test_adam_is_fused_and_takes_every_argument():
    optimizer = Adam(lr=0.01, eps=1e-4, betas=[0.8, 0.9]).build([Parameter(torch.zeros(2))])
    assert isinstance(optimizer, torch.optim.Adam)
    (group,) = optimizer.param_groups
    assert (group["fused"], group["lr"], group["eps"], group["betas"]) == (True, 0.01, 1e-4, (0.8, 0.9))


def test_two_steps_of_adam_are_its_formula():
    parameter = Parameter(torch.tensor([1.0, -2.0]))
    optimizer = Adam(lr=0.1, eps=1e-3, betas=[0.9, 0.99]).build([parameter])
    x = parameter.detach().double().clone()
    m = v = torch.zeros(2, dtype=torch.float64)
    for t, gradient in enumerate((torch.tensor([1.0, -3.0]), torch.tensor([-2.0, 0.5])), start=1):
        parameter.grad = gradient
        optimizer.step()
        g = gradient.double()
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g**2
        x = x - 0.1 * (m / (1 - 0.9**t)) / ((v / (1 - 0.99**t)).sqrt() + 1e-3)
        torch.testing.assert_close(parameter.detach().double(), x, atol=1e-5, rtol=0)


@pytest.mark.parametrize("centered", [True, False])
def test_two_steps_of_rmsprop_are_its_formula(centered):
    parameter = Parameter(torch.tensor([1.0, -2.0]))
    optimizer = RMSProp(lr=0.1, alpha=0.9, eps=0.01, centered=centered).build([parameter])
    assert isinstance(optimizer, torch.optim.RMSprop)
    x = parameter.detach().double().clone()
    square = mean = torch.zeros(2, dtype=torch.float64)
    for gradient in (torch.tensor([1.0, -3.0]), torch.tensor([-2.0, 0.5])):
        parameter.grad = gradient
        optimizer.step()
        g = gradient.double()
        square, mean = 0.9 * square + 0.1 * g**2, 0.9 * mean + 0.1 * g
        variance = square - mean**2 if centered else square
        x = x - 0.1 * g / (variance.sqrt() + 0.01)
        torch.testing.assert_close(parameter.detach().double(), x, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", [Adam, RMSProp])
def test_the_learning_rate_stays_or_falls_linearly_over_env_steps(kind):
    constant = kind(lr=0.5)
    assert [constant.lr(step) for step in (0, 10, 10**9)] == [0.5, 0.5, 0.5]
    decayed = kind(lr=0.5, lr_end=0.1, lr_decay_env_steps=100)
    assert [decayed.lr(step) for step in (0, 25, 50, 100, 10**9)] == pytest.approx([0.5, 0.4, 0.3, 0.1, 0.1])
    to_zero = kind(lr=0.5, lr_end=0.0, lr_decay_env_steps=1)
    assert [to_zero.lr(step) for step in (0, 1, 2)] == [0.5, 0.0, 0.0]
    warming = kind(lr=0.1, lr_end=0.5, lr_decay_env_steps=4)
    assert [warming.lr(step) for step in (0, 2, 4)] == pytest.approx([0.1, 0.3, 0.5])


@pytest.mark.parametrize("kind", [Adam, RMSProp])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("lr", 0.0),
        ("lr", -1e-3),
        ("lr", float("nan")),
        ("lr", float("inf")),
        ("eps", 0.0),
        ("lr_end", -0.1),
        ("lr_decay_env_steps", 0),
        ("max_grad_norm", 0.0),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(kind, option, value):
    with pytest.raises(ValueError, match=option):
        kind(**{option: value})


@pytest.mark.parametrize("betas", [[0.9], [0.9, 0.99, 0.999], [0.9, 1.0], [-0.1, 0.9]])
def test_betas_are_two_decay_rates(betas):
    with pytest.raises(ValueError, match="betas"):
        Adam(betas=betas)


def test_what_clips_is_kept_for_the_learner():
    assert Adam().max_grad_norm == RMSProp().max_grad_norm == 10.0
    assert Adam(max_grad_norm=None).max_grad_norm is None


@pytest.mark.parametrize("half", [{"lr_end": 0.1}, {"lr_decay_env_steps": 100}])
def test_half_of_a_decay_is_refused_since_it_would_change_nothing(half):
    with pytest.raises(UserError, match=r"lr_end and optimizer\.lr_decay_env_steps must be given together"):
        Adam(lr=0.5, **half)
