"""What is recorded computes what the function computes, bit for bit, and reads the tensors of now."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from torch import nn

from lit_dqn.agents.dqn import DQN
from lit_dqn.fused_adam import FusedAdam
from lit_dqn.learner import Learner
from lit_dqn.networks.mlp import MLP
from lit_dqn.recorded import Recorded, record
from lit_dqn.types import Batch


def batch_of(seed, size=16, weighted=False, obs_dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    obs, next_obs = (torch.randint(256, (size, 3), generator=g).to(obs_dtype) for _ in range(2))
    return Batch(
        obs=obs,
        action=torch.randint(2, (size,), generator=g),
        reward=torch.randn(size, generator=g),
        discount=0.9 * torch.randint(2, (size,), generator=g),
        next_obs=next_obs,
        index=torch.arange(size),
        weight=torch.rand(size, generator=g) if weighted else None,
    )


def learner_of(network, agent):
    torch.manual_seed(0)
    q_net = MLP((3,), 2, **network)
    learner = Learner(q_net, copy.deepcopy(q_net).requires_grad_(False), DQN(**agent), max_grad_norm=0.5)
    return learner, FusedAdam([learner.online.vector], lr=0.01, fused=True)


@pytest.mark.parametrize("network", [{"hidden": [8, 8]}, {"hidden": [8], "dueling": True}])
@pytest.mark.parametrize("agent", [{"double": True}, {"loss": "huber", "tau": 0.1}])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("obs_dtype", [torch.float32, torch.uint8])
@pytest.mark.parametrize("autocast", [False, True])
def test_a_recorded_learner_does_what_an_eager_one_does(network, agent, weighted, obs_dtype, autocast):
    agent = {"target_update_interval": 2} | agent
    (fast, fast_adam), (eager, eager_adam) = learner_of(network, agent), learner_of(network, agent)
    eager._gradient = eager._set_gradient
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        for seed in range(6):
            batch = batch_of(seed, weighted=weighted, obs_dtype=obs_dtype)
            out, norm = fast.update(batch, fast_adam.step)
            expected, expected_norm = eager.update(batch, eager_adam.step)
            for field in ("loss", "td_error", "priority", "q_taken"):
                assert torch.equal(getattr(out, field), getattr(expected, field)), (seed, field)
            assert torch.equal(norm, expected_norm)
            assert torch.equal(fast.online.vector, eager.online.vector)
            assert torch.equal(fast.target.vector, eager.target.vector)
    assert isinstance(fast._gradient, Recorded)
    assert all(run != fast._gradient.function for run in fast._gradient._runs.values())


def test_python_runs_once_per_shape_and_the_operators_at_every_call():
    calls, scale = [], torch.tensor(2.0)

    def function(x, y):
        calls.append(x.shape)
        return x * scale + y, y

    run = Recorded(function)
    for factor in (2.0, 3.0, -1.0):
        scale.fill_(factor)
        for size in (2, 5):
            x, y = torch.randn(size), torch.randn(size)
            total, same = run(x, y)
            assert torch.equal(total, x * factor + y)
            assert torch.equal(same, y)
    assert calls == [(2,), (5,)]


def test_what_a_recorded_function_changes_is_changed_at_every_call():
    total = torch.zeros(3)

    def accumulate(x):
        return (total.add_(x),)

    run = Recorded(accumulate)
    run(torch.ones(3))
    before = total.clone()  # recording ran it as well
    run(torch.ones(3))
    run(torch.full((3,), 2.0))
    assert torch.equal(total, before + 3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.detach().clone().t().t(),),
        lambda x: (x.t().t().t() + 1,),
        lambda x: (x.view(2, 3) * 2, x.view(3, 2), x.view(-1)),
        lambda x: (x.t().reshape(2, 3), x),
        lambda x: (x.detach()[0], x.t().detach()),
        lambda x: tuple(torch.autograd.grad((x.requires_grad_() ** 3).sum(), x)),
        lambda x: (nn.functional.softmax(x, dim=1).argmax(dim=1),),
    ],
)
def test_renamed_tensors_are_dropped_and_nothing_else(function):
    example, x = torch.randn(2, 3), torch.randn(2, 3)
    with torch.enable_grad():
        run = record(function, example.clone())
        expected = function(x.clone())
    with torch.no_grad():
        found = run(x)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()


def test_recording_draws_nothing_and_what_is_recorded_draws_as_the_function_does():
    def noisy(x):
        return (x + torch.randn(4), torch.rand(2))

    torch.manual_seed(3)
    expected = [noisy(torch.zeros(4)) for _ in range(3)]
    torch.manual_seed(3)
    run = Recorded(noisy)
    for noise, uniform in expected:
        found = run(torch.zeros(4))
        assert torch.equal(found[0], noise)
        assert torch.equal(found[1], uniform)


def test_a_function_that_decides_by_a_value_runs_as_it_is_and_says_so_once(caplog):
    def decides(x):
        return (x + 1,) if x.sum() > 0 else (x - 1,)

    run = Recorded(decides)
    with caplog.at_level(logging.INFO, logger="lit_dqn.recorded"):
        for value in (1.0, -1.0, 2.0):
            expected = value + 1 if value > 0 else value - 1
            assert run(torch.full((2,), value))[0].tolist() == [expected, expected]
    (record,) = caplog.records
    assert "slower" in record.message


def test_an_error_of_the_function_comes_out_as_it_is():
    def fails(x):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        Recorded(fails)(torch.zeros(1))


@pytest.mark.parametrize("recorded", [True, False])
def test_updates_of_one_autocast_context_see_the_weights_of_the_update_before(recorded):
    (together, adam), (apart, other) = learner_of({"hidden": [8]}, {}), learner_of({"hidden": [8]}, {})
    if not recorded:
        together._gradient, apart._gradient = together._set_gradient, apart._set_gradient
    with torch.autocast("cpu", torch.bfloat16):
        for seed in range(4):
            together.update(batch_of(seed), adam.step)
    for seed in range(4):
        with torch.autocast("cpu", torch.bfloat16):
            apart.update(batch_of(seed), other.step)
    assert torch.equal(together.online.vector, apart.online.vector)
