"""The sum tree against plain cumulative sums."""

from __future__ import annotations

import pytest
import torch

from lit_dqn.replay.sum_tree import TOP, SumTree

SIZES = [1, 5, 16, 17, TOP, TOP + 1, 16 * TOP + 3]


def filled(size, share_of_zeros=0.5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(size, dtype=torch.float64, generator=generator)
    values[torch.rand(size, generator=generator) < share_of_zeros] = 0.0
    values[-1] = 0.25
    tree = SumTree(size, torch.device("cpu"))
    tree.set(torch.arange(size), values)
    return tree, values


@pytest.mark.parametrize("size", SIZES)
def test_a_share_finds_the_leaf_that_a_cumulative_sum_finds(size):
    tree, values = filled(size)
    share = torch.rand(4000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    cumulative = values.cumsum(0)
    found = tree.draw(share)
    # Rounding may decide otherwise only where a share falls on the border of two leaves.
    below, above = cumulative[found] - values[found], cumulative[found]
    target = share * cumulative[-1]
    assert ((target >= below - 1e-9) & (target <= above + 1e-9)).all()
    assert torch.isclose(tree.total, values.sum())


@pytest.mark.parametrize("size", SIZES)
def test_leaves_of_value_zero_are_never_drawn_at_the_ends_either(size):
    tree, values = filled(size, share_of_zeros=0.95)
    below_one = torch.nextafter(
        torch.tensor(1.0, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64)
    )
    ends = torch.tensor([0.0, 1e-300, 0.5, float(below_one)], dtype=torch.float64)
    assert (values[tree.draw(ends)] > 0).all()
    assert (values[tree.draw(torch.rand(5000, dtype=torch.float64))] > 0).all()


def test_one_leaf_takes_every_draw_whatever_its_size():
    for value in (1e-300, 1e-9, 1.0, 1e300):
        tree = SumTree(100_000, torch.device("cpu"))
        tree.set(torch.tensor([77_777]), torch.tensor([value], dtype=torch.float64))
        assert tree.draw(torch.rand(50, dtype=torch.float64)).tolist() == [77_777] * 50


def test_of_a_leaf_that_is_set_twice_the_last_value_counts():
    tree = SumTree(10, torch.device("cpu"))
    tree.set(torch.tensor([3, 4, 3, 3]), torch.tensor([1.0, 5.0, 2.0, 7.0], dtype=torch.float64))
    assert tree.leaves.tolist() == [0, 0, 0, 7, 5, 0, 0, 0, 0, 0]
    assert float(tree.total) == 12.0


def test_a_million_updates_leave_no_drift():
    tree, values = filled(50_000)
    generator = torch.Generator().manual_seed(2)
    for _ in range(250):
        leaf = torch.randint(50_000, (4000,), generator=generator)
        value = torch.rand(4000, dtype=torch.float64, generator=generator) * 1e6
        tree.set(leaf, value)
        values.numpy()[leaf.numpy()] = value.numpy()  # of a leaf that occurs twice, the last value stays
    assert torch.equal(tree.leaves, values)
    fresh = SumTree(50_000, torch.device("cpu"))
    fresh.set(torch.arange(50_000), values)
    assert torch.equal(tree.total, fresh.total)
