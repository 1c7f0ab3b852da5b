"""One root seed spawns one generator per owner.

Owners are named, so a new owner never shifts another's stream; counters (an env step, say) may be added
to make a seed a pure function of where the run is, which is what makes a resumed run equal.
"""

from __future__ import annotations

import zlib

import numpy as np


def seed_sequence(root: int, owner: str, *counters: int) -> np.random.SeedSequence:
    """The seed sequence of `owner` at `counters`, independent of every other owner's.

    Args:
        root: the run's seed, >= 0.
        owner: a name, e.g. `"exploration"`.
        counters: non-negative integers, e.g. the env step. One owner always gives the same number of
            them: trailing zeros count for nothing, so no counter and the counter 0 are one seed.
    """
    return np.random.SeedSequence([root, zlib.crc32(owner.encode()), *counters])


def numpy_generator(root: int, owner: str, *counters: int) -> np.random.Generator:
    """A PCG64 generator: the only NumPy one whose state loads with `weights_only=True`."""
    return np.random.Generator(np.random.PCG64(seed_sequence(root, owner, *counters)))


def integer_seed(root: int, owner: str, *counters: int) -> int:
    """One seed in [0, 2**31), for generators that take an int (torch, a vector env)."""
    return int(seed_sequence(root, owner, *counters).generate_state(1)[0] >> 1)


def integer_seeds(count: int, root: int, owner: str, *counters: int) -> list[int]:
    """`count` seeds in [0, 2**31), one per single env."""
    return [int(word >> 1) for word in seed_sequence(root, owner, *counters).generate_state(count)]
