"""The loss of C51 against loops written from the paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from lit_dqn.agents.c51 import C51, project
from lit_dqn.errors import UserError
from tables import BATCH, batch_of, table

# Raw outputs of two states, two actions, three atoms.
ONLINE = [[[0.1, 0.5, -0.3], [1.0, 0.0, 0.2]], [[0.3, -0.8, 2.0], [0.4, 0.4, -0.4]]]
TARGET = [[[0.0, 1.0, 0.5], [-1.0, 0.3, 0.6]], [[1.5, 0.2, -0.7], [-0.2, 0.9, 0.8]]]


def softmax(x):
    e = np.exp(np.asarray(x) - np.max(x))
    return e / e.sum()


def projected(probabilities, values, v_min, v_max):
    """Algorithm 1, an atom at a time."""
    count = len(probabilities)
    spacing = (v_max - v_min) / (count - 1)
    m = np.zeros(count)
    for p, value in zip(probabilities, values, strict=True):
        b = (min(max(value, v_min), v_max) - v_min) / spacing
        low, high = math.floor(b + 1e-12), math.ceil(b - 1e-12)
        if low == high:
            m[low] += p
        else:
            m[low] += p * (high - b)
            m[high] += p * (b - low)
    return m


def reference(online, target, batch, v_min, v_max, double):
    atoms = np.linspace(v_min, v_max, len(online[0][0]))
    losses = []
    for i, state in enumerate(batch["state"]):
        following = batch["next_state"][i]
        chooser = online if double else target
        values = [float(softmax(raw) @ atoms) for raw in chooser[following]]
        best = int(np.argmax(values))
        m = projected(
            softmax(target[following][best]),
            batch["reward"][i] + batch["discount"][i] * atoms,
            v_min,
            v_max,
        )
        log_p = np.log(softmax(online[state][batch["action"][i]]))
        losses.append(sum(a * (math.log(a) - b) for a, b in zip(m, log_p, strict=True) if a > 0))
    return losses


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("support", [(-1.0, 1.0), (0.0, 2.0), (-10.0, 0.5)])
def test_the_loss_is_the_divergence_from_the_projected_target_of_the_paper(double, support):
    v_min, v_max = support
    agent = C51(num_atoms=3, v_min=v_min, v_max=v_max, double=double)
    out = agent.loss(table(agent, ONLINE), table(agent, TARGET), batch_of(**BATCH))
    expected = reference(ONLINE, TARGET, BATCH, v_min, v_max, double)
    np.testing.assert_allclose(out.loss.detach(), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(out.priority, np.maximum(expected, 0), rtol=1e-4, atol=1e-6)
    taken = [
        softmax(ONLINE[s][a]) @ np.linspace(v_min, v_max, 3)
        for s, a in zip(BATCH["state"], BATCH["action"], strict=True)
    ]
    np.testing.assert_allclose(out.q_taken, taken, rtol=1e-4, atol=1e-6)


def test_double_lets_the_online_net_choose():
    plain, double = (reference(ONLINE, TARGET, BATCH, -1, 1, double) for double in (False, True))
    assert plain != double


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 1.0, 2.0], [0.2, 0.5, 0.3]),  # on the atoms
        ([0.5, 1.0, 2.0], [0.1, 0.6, 0.3]),  # between two
        ([-7.0, -0.1, 2.0], [0.7, 0.0, 0.3]),  # below the support
        ([9.0, 9.0, 9.0], [0.0, 0.0, 1.0]),  # above it
        ([1.25, 1.25, 1.25], [0.0, 0.75, 0.25]),  # terminal: all mass at the reward
        ([0.0, 0.0, 0.0], [1.0, 0.0, 0.0]),
    ],
)
def test_mass_goes_to_the_nearest_atoms(values, expected):
    found = project(torch.tensor([[0.2, 0.5, 0.3]]), torch.tensor([values]), 0.0, 2.0)
    np.testing.assert_allclose(found[0], expected, atol=1e-6)


@pytest.mark.parametrize(("v_min", "v_max", "count"), [(-10.0, 10.0, 51), (0.0, 100.0, 101), (-0.3, 0.7, 7)])
def test_no_mass_is_lost_and_the_mean_is_kept_inside_the_support(v_min, v_max, count):
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.rand(500, count, generator=generator).softmax(1)
    inside = v_min + (v_max - v_min) * torch.rand(500, count, generator=generator)
    atoms = torch.linspace(v_min, v_max, count)
    found = project(probabilities, inside, v_min, v_max)
    torch.testing.assert_close(found.sum(1), torch.ones(500))
    scale = max(abs(v_min), abs(v_max))
    expected = (probabilities * inside).sum(1)
    torch.testing.assert_close(found @ atoms, expected, atol=1e-5 * scale, rtol=0)
    wild = project(probabilities, 100 * (inside - 1), v_min, v_max)
    torch.testing.assert_close(wild.sum(1), torch.ones(500))
    exact = project(probabilities, atoms.expand(500, count), v_min, v_max)
    torch.testing.assert_close(exact, probabilities, atol=1e-4, rtol=0)


def test_no_gradient_reaches_the_target_net_nor_the_next_observation():
    agent = C51(num_atoms=3, v_min=-1, v_max=1, double=True)
    online, target = table(agent, ONLINE), table(agent, TARGET)
    batch = batch_of([0, 0], [0, 1], [0.5, 0.2], [0.9, 0.9], [1, 1])
    agent.loss(online, target, batch).loss.sum().backward()
    assert target.head.raw_outputs.grad is None
    assert online.head.raw_outputs.grad[1].abs().max() == 0
    assert online.head.raw_outputs.grad[0].abs().min() > 0


def test_a_support_without_room_is_refused():
    with pytest.raises(UserError, match=r"agent\.v_min must be below agent\.v_max, got 1\.0 and 1\.0"):
        C51(v_min=1.0, v_max=1.0)


@pytest.mark.parametrize(
    ("lowest", "highest", "said"),
    [(-1.0, 1.0, False), (-1.1, 0.0, True), (0.0, 99.3, True), (float("inf"), float("-inf"), False)],
)
def test_returns_outside_the_support_are_told(lowest, highest, said):
    advice = C51(v_min=-1.0, v_max=1.0).advice_on_returns(lowest, highest)
    assert (advice is not None) == said
    if advice:
        assert "agent.v_min=-1" in advice
        assert f"{highest:.4g}" in advice
