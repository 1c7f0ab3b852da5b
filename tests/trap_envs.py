"""Trap environments: tiny Gymnasium tasks, each built to make one class of trainer fault visible.

Needs only gymnasium (>= 1.0) and numpy.

How to use
----------
* By class:           ``trap_envs.CountingEnv()``
* By id:              ``import trap_envs; gymnasium.make("Trap/Counting-v0")``
* By id, no import:   ``gymnasium.make("trap_envs:Trap/Counting-v0")``   (module must be importable)

Several environments come with an exact answer (an "oracle") computed here by plain loops:

* ``counting_trace``     every transition a correct collector must have stored, in order
* ``nstep_oracle``       the n-step return, bootstrap discount and bootstrap observation
* ``stack_oracle``       what a k-frame stack must hold at a given transition
* ``KeepOrCashEnv / KeepOnlyEnv``  ``.q_star`` and ``.q_if_truncation_terminal``: right and wrong fixpoints
* ``ChainEnv.q_star``    exact optimal action values of a corridor

"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

# --------------------------------------------------------------------------------------
# 1. Exactly identifiable transitions
# --------------------------------------------------------------------------------------


class CountingEnv(gym.Env):
    """Every transition names itself.

    obs    = [episode number, step in episode, last action]   (last action -1 after reset)
    reward = 100 * episode + step just completed
    Episode lengths and the way they end are fixed cycles, so the whole stream is known beforehand.

    ``endings`` entries: "term", "trunc" or "both".
    """

    metadata = {"render_modes": []}

    def __init__(
        self,
        lengths: Sequence[int] = (5, 3, 1, 4),
        endings: Sequence[str] = ("term", "trunc"),
        n_actions: int = 3,
        first_episode: int = 0,
        dtype: str = "float32",
    ):
        self.lengths = tuple(int(x) for x in lengths)
        self.endings = tuple(endings)
        assert all(x >= 1 for x in self.lengths) and set(self.endings) <= {"term", "trunc", "both"}
        self.dtype = np.dtype(dtype)
        self.observation_space = spaces.Box(-1.0, 1e6, shape=(3,), dtype=self.dtype)
        self.action_space = spaces.Discrete(n_actions)
        self.episode = int(first_episode) - 1
        self.t = 0
        self.uid = 0  # running count of env steps, never reset
        self.needs_reset = True

    def _obs(self, last_action: int) -> np.ndarray:
        return np.array([self.episode, self.t, last_action], dtype=self.dtype)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.episode += 1
        self.t = 0
        self.needs_reset = False
        return self._obs(-1), {"episode_id": self.episode, "t": 0, "uid": self.uid}

    def step(self, action):
        if self.needs_reset:
            raise RuntimeError(
                "CountingEnv.step called on a finished episode: the collector must reset first"
            )
        a = int(action)
        assert self.action_space.contains(a), f"action {action!r} is outside {self.action_space}"
        self.t += 1
        self.uid += 1
        reward = float(100 * self.episode + self.t)
        length = self.lengths[self.episode % len(self.lengths)]
        terminated = truncated = False
        if self.t >= length:
            how = self.endings[self.episode % len(self.endings)]
            terminated = how in ("term", "both")
            truncated = how in ("trunc", "both")
            self.needs_reset = True
        info = {"episode_id": self.episode, "t": self.t, "uid": self.uid}
        return self._obs(a), reward, terminated, truncated, info


@dataclass
class Transition:
    obs: np.ndarray
    action: int
    reward: float
    next_obs: np.ndarray  # always the true successor: the FINAL observation when the episode ends
    terminated: bool
    truncated: bool

    @property
    def ends(self) -> bool:
        return self.terminated or self.truncated


def counting_trace(actions: Sequence[int], **env_kwargs) -> list[Transition]:
    """The transitions a correct single-environment collector stores for these actions."""
    env = CountingEnv(**env_kwargs)
    obs, _ = env.reset()
    out = []
    for a in actions:
        nxt, r, term, trunc, _ = env.step(a)
        out.append(Transition(obs, int(a), r, nxt, term, trunc))
        obs = env.reset()[0] if (term or trunc) else nxt
    return out


def nstep_oracle(trace: Sequence[Transition], i: int, n: int, gamma: float):
    """(return, bootstrap_discount, bootstrap_obs, steps_used), or None where the stream is too short.

    Rules: stop at n steps or at the end of the episode, whichever is first.  A true termination gives
    bootstrap_discount 0.  A truncation bootstraps from the final observation with gamma ** steps_used.
    If both flags are set, termination wins.
    """
    total = 0.0
    for k in range(n):
        if i + k >= len(trace):
            return None
        tr = trace[i + k]
        total += gamma**k * tr.reward
        if tr.terminated:
            return total, 0.0, tr.next_obs, k + 1
        if tr.truncated or k == n - 1:
            return total, gamma ** (k + 1), tr.next_obs, k + 1
    raise AssertionError("unreachable")


def stack_oracle(trace: Sequence[Transition], i: int, k: int, pad: str = "first") -> list[np.ndarray]:
    """The k frames (oldest first) the agent saw when it chose ``trace[i].action``.

    Frames never come from an earlier episode.  ``pad``: "first" repeats the reset frame, "zero" uses zeros.
    """
    frames = [trace[i].obs]
    j = i
    while len(frames) < k and j > 0 and not trace[j - 1].ends:
        j -= 1
        frames.append(trace[j].obs)
    while len(frames) < k:
        frames.append(frames[-1].copy() if pad == "first" else np.zeros_like(frames[-1]))
    return frames[::-1]


class FrameIdEnv(gym.Env):
    """Image version of the counter: each frame is filled with one byte, 16 * (episode % 15 + 1) + t.

    Episodes may be shorter than the frame stack, which exposes stacks that leak across a reset.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        lengths: Sequence[int] = (2, 5, 1),
        endings: Sequence[str] = ("term", "trunc"),
        shape: Sequence[int] = (84, 84),
        n_actions: int = 2,
        render_mode: str | None = None,
    ):
        assert max(lengths) < 16
        self.lengths, self.endings, self.shape = tuple(lengths), tuple(endings), tuple(shape)
        self.observation_space = spaces.Box(0, 255, shape=self.shape, dtype=np.uint8)
        self.action_space = spaces.Discrete(n_actions)
        self.render_mode = render_mode
        self.episode, self.t = -1, 0

    @staticmethod
    def code(episode: int, t: int) -> int:
        return 16 * (episode % 15 + 1) + t

    def _obs(self):
        return np.full(self.shape, self.code(self.episode, self.t), dtype=np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.t = 0
        return self._obs(), {}

    def step(self, action):
        self.t += 1
        done = self.t >= self.lengths[self.episode % len(self.lengths)]
        how = self.endings[self.episode % len(self.endings)]
        return self._obs(), float(self.t), done and how == "term", done and how == "trunc", {}

    def render(self):
        if self.render_mode == "rgb_array":
            return np.full((64, 64, 3), self.code(self.episode, self.t), dtype=np.uint8)
        return None


# --------------------------------------------------------------------------------------
# 2. Tasks with a known right answer
# --------------------------------------------------------------------------------------


class KeepOrCashEnv(gym.Env):
    """One state; the right CHOICE is made only when a time limit is not treated as an ending.

    action 0 "cash": reward ``cash`` and a true termination.
    action 1 "keep": reward 1; the task goes on for ever, but is cut off (truncated) after ``limit`` steps.
    With gamma 0.9 and cash 4, keep is worth 10, so keep is right.

    The default limit is 1 on purpose: then every "keep" is a cut step whatever the policy is, so a trainer
    which drops the bootstrap at the cut values keep at exactly 1 and always cashes.  With a larger limit the
    share of cut steps depends on the policy, and a wrong trainer hovers instead of choosing wrongly.
    """

    metadata = {"render_modes": []}

    def __init__(self, limit: int = 1, cash: float = 4.0):
        self.limit, self.cash = int(limit), float(cash)
        self.observation_space = spaces.Box(0.0, 1.0, shape=(1,), dtype=np.float32)
        self.action_space = spaces.Discrete(2)
        self.t = 0

    @staticmethod
    def _obs():
        return np.ones(1, dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._obs(), {}

    def step(self, action):
        self.t += 1
        if int(action) == 0:
            return self._obs(), self.cash, True, False, {}
        return self._obs(), 1.0, False, self.t >= self.limit, {}

    def q_star(self, gamma: float) -> np.ndarray:
        v = max(self.cash, 1.0 / (1.0 - gamma))
        return np.array([self.cash, 1.0 + gamma * v])

    def q_if_truncation_terminal(self, gamma: float) -> np.ndarray:
        """The wrong answer (exact for limit 1 only, see the class text)."""
        assert self.limit == 1
        return np.array([self.cash, 1.0])


class KeepOnlyEnv(KeepOrCashEnv):
    """The value-only twin: a single action, reward 1, cut after ``limit`` steps, never a termination.

    Right: Q = 1 / (1 - gamma) (10 for gamma 0.9).  Cut seen as an end: 1 / (1 - gamma * (limit - 1) / limit)
    (3.571 for limit 5), whatever the policy, because there is only one.
    """

    def __init__(self, limit: int = 5):
        super().__init__(limit=limit)
        self.action_space = spaces.Discrete(1)

    def step(self, action):
        assert int(action) == 0
        return super().step(1)

    def q_star(self, gamma: float) -> np.ndarray:
        return np.array([1.0 / (1.0 - gamma)])

    def q_if_truncation_terminal(self, gamma: float) -> np.ndarray:
        return np.array([1.0 / (1.0 - gamma * (self.limit - 1) / self.limit)])


class OneStepEnv(gym.Env):
    """Ends on the first step after reset.  Q is exactly the reward: no bootstrap may leak in.

    ``ending``: "term", "trunc" or "both".  For "term" and "both", Q(s, a) = reward[a] whatever gamma is.
    """

    metadata = {"render_modes": []}

    def __init__(self, rewards: Sequence[float] = (0.0, 1.0), ending: str = "term"):
        assert ending in ("term", "trunc", "both")
        self.rewards, self.ending = tuple(float(r) for r in rewards), ending
        self.observation_space = spaces.Box(0.0, 1.0, shape=(1,), dtype=np.float32)
        self.action_space = spaces.Discrete(len(self.rewards))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action):
        term, trunc = self.ending in ("term", "both"), self.ending in ("trunc", "both")
        return np.ones(1, dtype=np.float32), self.rewards[int(action)], term, trunc, {}


class ChainEnv(gym.Env):
    """Corridor 0..n-1.  Right (1) moves on, left (0) moves back; reaching n-1 pays 1 and terminates."""

    metadata = {"render_modes": []}

    def __init__(self, n: int = 5, one_hot: bool = True):
        self.n, self.one_hot, self.pos = int(n), one_hot, 0
        self.observation_space = (
            spaces.Box(0.0, 1.0, shape=(self.n,), dtype=np.float32) if one_hot else spaces.Discrete(self.n)
        )
        self.action_space = spaces.Discrete(2)

    def _obs(self):
        if not self.one_hot:
            return int(self.pos)
        x = np.zeros(self.n, dtype=np.float32)
        x[self.pos] = 1.0
        return x

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pos = 0
        return self._obs(), {}

    def step(self, action):
        self.pos = min(self.pos + 1, self.n - 1) if int(action) == 1 else max(self.pos - 1, 0)
        done = self.pos == self.n - 1
        return self._obs(), 1.0 if done else 0.0, done, False, {}

    def q_star(self, gamma: float) -> np.ndarray:
        v = np.array([gamma ** (self.n - 2 - s) for s in range(self.n - 1)] + [0.0])
        q = np.zeros((self.n, 2))
        for s in range(self.n - 1):
            q[s, 1] = 1.0 if s + 1 == self.n - 1 else gamma * v[s + 1]
            q[s, 0] = gamma * v[max(s - 1, 0)]
        return q


class DiscreteStartEnv(gym.Env):
    """Actions are numbered from ``start``.  Anything outside start..start+n-1 raises.

    Only the LAST action pays, so a trainer which maps network index i to action i either crashes or
    never finds the reward.  The same goes for storing the raw action and using it to index Q values.
    """

    metadata = {"render_modes": []}

    def __init__(self, n: int = 3, start: int = 1, length: int = 4):
        self.n, self.start, self.length, self.t = int(n), int(start), int(length), 0
        self.observation_space = spaces.Box(0.0, 1.0, shape=(2,), dtype=np.float32)
        self.action_space = spaces.Discrete(self.n, start=self.start)
        self.seen: list[int] = []

    def _obs(self):
        return np.array([self.t / self.length, 1.0], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._obs(), {}

    def step(self, action):
        a = int(action)
        if not self.start <= a < self.start + self.n:
            raise ValueError(f"action {a} is outside [{self.start}, {self.start + self.n})")
        self.seen.append(a)
        self.t += 1
        r = 1.0 if a == self.start + self.n - 1 else 0.0
        return self._obs(), r, self.t >= self.length, False, {}


class SingleActionEnv(OneStepEnv):
    """Discrete(1): the greedy and the random action are the same; dueling heads must not divide by n-1."""

    def __init__(self):
        super().__init__(rewards=(1.0,))


# --------------------------------------------------------------------------------------
# 3. Observation kinds
# --------------------------------------------------------------------------------------


class _Short(gym.Env):
    """Base for the small variants below: 2 actions, action 1 pays 1, episode of ``length`` steps."""

    metadata = {"render_modes": []}
    length = 6

    def __init__(self):
        self.action_space = spaces.Discrete(2)
        self.t = 0

    def _obs(self) -> Any:
        raise NotImplementedError

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._obs(), {}

    def step(self, action):
        self.t += 1
        paid = 1.0 if np.isscalar(action) and int(action) == 1 else 0.0
        return self._obs(), paid, self.t >= self.length, False, {}


class ImageEnv(_Short):
    """uint8 image, HWC or CHW, with a bright block whose position tells which action pays.

    layout "HWC" or "CHW".  The default sizes differ in every axis, so a wrong transpose is a shape error
    or a different picture, never a silent pass.  ``channels=1`` and an ambiguous 3x3x3 are also worth trying.
    """

    def __init__(self, layout: str = "HWC", height: int = 40, width: int = 36, channels: int = 3):
        super().__init__()
        assert layout in ("HWC", "CHW")
        self.layout, self.h, self.w, self.c = layout, int(height), int(width), int(channels)
        shape = (self.h, self.w, self.c) if layout == "HWC" else (self.c, self.h, self.w)
        self.observation_space = spaces.Box(0, 255, shape=shape, dtype=np.uint8)
        self.side = 0

    def _obs(self):
        img = np.zeros((self.h, self.w, self.c), dtype=np.uint8)
        half = max(1, self.w // 2)
        img[:, :half] = 255 if self.side == 0 else 0
        img[:, half:] = 255 if self.side == 1 else 0
        return np.ascontiguousarray(img.transpose(2, 0, 1)) if self.layout == "CHW" else img

    def reset(self, *, seed=None, options=None):
        super(_Short, self).reset(seed=seed)
        self.t, self.side = 0, int(self.np_random.integers(2))
        return self._obs(), {}

    def step(self, action):
        r = 1.0 if int(action) == self.side else 0.0
        self.t += 1
        self.side = int(self.np_random.integers(2))
        return self._obs(), r, self.t >= self.length, False, {}


class Float64ObsEnv(_Short):
    """float64 observations.  A float32 network fed with them raises a dtype error unless they are cast."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Box(-np.inf, np.inf, shape=(3,), dtype=np.float64)

    def _obs(self):
        return np.array([1 / 3, self.t + 1e-9, -self.t], dtype=np.float64)


class HugeObsEnv(_Short):
    """Large observations (3 MiB each by default): one million of them is ~3 TB of replay memory.

    A trainer should work the size out and refuse before it allocates (or touches) anything.
    """

    def __init__(self, shape: Sequence[int] = (3, 1024, 1024)):
        super().__init__()
        self.observation_space = spaces.Box(0, 255, shape=tuple(shape), dtype=np.uint8)

    def _obs(self):
        return np.full(self.observation_space.shape, self.t, dtype=np.uint8)


class AliasedObsEnv(_Short):
    """Hands out the SAME array every time and overwrites it in place.  A buffer which keeps a reference
    ends up with obs == next_obs everywhere.  Correct: obs[i] == i and next_obs[i] == i + 1."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Box(0.0, 1e6, shape=(4,), dtype=np.float32)
        self._shared = np.zeros(4, dtype=np.float32)

    def _obs(self):
        self._shared[:] = self.t
        return self._shared


class ReadOnlyObsEnv(_Short):
    """Observations whose memory may not be written: in-place preprocessing raises, torch.from_numpy warns."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Box(0.0, 1e6, shape=(4,), dtype=np.float32)

    def _obs(self):
        x = np.full(4, self.t, dtype=np.float32)
        x.flags.writeable = False
        return x


# --------------------------------------------------------------------------------------
# 4. Action kinds DQN cannot do, and strict action types
# --------------------------------------------------------------------------------------


class UnsupportedActionEnv(_Short):
    """kind: "box", "tuple", "multidiscrete", "multibinary" or "dict".  Expect one clear sentence, before training."""

    SPACES: dict[str, Callable[[], spaces.Space]] = {
        "box": lambda: spaces.Box(-1.0, 1.0, shape=(2,), dtype=np.float32),
        "tuple": lambda: spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))),
        "multidiscrete": lambda: spaces.MultiDiscrete([2, 3]),
        "multibinary": lambda: spaces.MultiBinary(3),
        "dict": lambda: spaces.Dict({"a": spaces.Discrete(2)}),
    }

    def __init__(self, kind: str = "box"):
        super().__init__()
        self.action_space = self.SPACES[kind]()
        self.observation_space = spaces.Box(0.0, 1e6, shape=(1,), dtype=np.float32)

    def _obs(self):
        return np.array([self.t], dtype=np.float32)


class StrictActionTypeEnv(_Short):
    """Accepts only a Python int or a NumPy integer scalar: refuses tensors, floats, bools and (1,) arrays."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Box(0.0, 1e6, shape=(1,), dtype=np.float32)

    def _obs(self):
        return np.array([self.t], dtype=np.float32)

    def step(self, action):
        if isinstance(action, (bool, np.bool_)) or not isinstance(action, (int, np.integer)):
            raise TypeError(f"action must be an integer scalar, got {type(action).__name__}: {action!r}")
        return super().step(action)


# --------------------------------------------------------------------------------------
# 5. Rewards, infos
# --------------------------------------------------------------------------------------


class RewardKindEnv(_Short):
    """The same reward in several dresses.  Whatever the dress, the stored reward must be the scalar 0.5
    and a batch of them must have shape (B,), not (B, 1): the latter broadcasts a (B, B) loss."""

    KINDS: dict[str, Callable[[], Any]] = {
        "float": lambda: 0.5,
        "int": lambda: 1,
        "bool": lambda: True,
        "float64": lambda: np.float64(0.5),
        "float32": lambda: np.float32(0.5),
        "array0": lambda: np.array(0.5),
        "array1": lambda: np.array([0.5]),
        "array1_int": lambda: np.array([1]),
    }

    def __init__(self, kind: str = "float"):
        super().__init__()
        self.kind = kind
        self.make_reward = self.KINDS[kind]
        self.observation_space = spaces.Box(0.0, 1e6, shape=(1,), dtype=np.float32)

    def _obs(self):
        return np.array([self.t], dtype=np.float32)

    def step(self, action):
        obs, _, term, trunc, info = super().step(action)
        return obs, self.make_reward(), term, trunc, info


class BigRewardEnv(_Short):
    """Rewards of size ``scale``: clipping, Huber loss and float32 sums should stay finite."""

    def __init__(self, scale: float = 1e12):
        super().__init__()
        self.scale = float(scale)
        self.observation_space = spaces.Box(0.0, 1e6, shape=(1,), dtype=np.float32)

    def _obs(self):
        return np.array([self.t], dtype=np.float32)

    def step(self, action):
        obs, r, term, trunc, info = super().step(action)
        return obs, r * self.scale, term, trunc, info


class ChangingInfoEnv(_Short):
    """info changes its keys and the type of its values from step to step; vector wrappers choke on that.

    It also uses names which wrappers like to use themselves ("episode", "final_obs", "lives").
    """

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Box(0.0, 1e6, shape=(1,), dtype=np.float32)

    def _obs(self):
        return np.array([self.t], dtype=np.float32)

    def _info(self) -> dict:
        menu = [
            {},
            {"lives": 3},
            {"note": "text", "lives": 2.5},
            {"note": None, "path": [1, 2, 3]},
            {"path": np.arange(self.t + 1)},
            {"nested": {"deep": {"er": self.t}}},
            {"episode": "a user's own word", "final_obs": "likewise"},
        ]
        return menu[self.t % len(menu)]

    def reset(self, *, seed=None, options=None):
        obs, _ = super().reset(seed=seed, options=options)
        return obs, self._info()

    def step(self, action):
        obs, r, term, trunc, _ = super().step(action)
        return obs, r, term, trunc, self._info()


# --------------------------------------------------------------------------------------
# 6. Misbehaviour
# --------------------------------------------------------------------------------------


class BadNumberEnv(_Short):
    """From env step ``at_step`` (counted over the whole life), one value is NaN or infinite.

    where: "obs", "reward" or "reset_obs".  Expect: stop (or a loud warning) naming the env and the step,
    weights still finite, priorities still finite, and the last checkpoint usable.
    """

    def __init__(self, where: str = "obs", at_step: int = 10, value: str = "nan"):
        super().__init__()
        assert where in ("obs", "reward", "reset_obs")
        self.where, self.at_step, self.value = where, int(at_step), float(value)
        self.observation_space = spaces.Box(-np.inf, np.inf, shape=(3,), dtype=np.float32)
        self.total = 0

    def _obs(self):
        return np.full(3, self.t, dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed, options=options)
        if self.where == "reset_obs" and self.total >= self.at_step:
            obs[0] = self.value
        return obs, info

    def step(self, action):
        obs, r, term, trunc, info = super().step(action)
        self.total += 1
        if self.total >= self.at_step:
            if self.where == "obs":
                obs[1] = self.value
            elif self.where == "reward":
                r = self.value
        return obs, r, term, trunc, info


class RaisingEnv(_Short):
    """Raises at env step ``at_step``, in "step", "reset" (the at_step-th one), "close" or "init".

    exc: "runtime", "keyboard" (KeyboardInterrupt) or "exit" (SystemExit).
    """

    EXC = {"runtime": RuntimeError, "keyboard": KeyboardInterrupt, "exit": SystemExit}

    def __init__(self, where: str = "step", at_step: int = 10, exc: str = "runtime"):
        super().__init__()
        assert where in ("step", "reset", "close", "init")
        self.where, self.at_step, self.exc = where, int(at_step), self.EXC[exc]
        self.observation_space = spaces.Box(0.0, 1e6, shape=(1,), dtype=np.float32)
        self.total = self.resets = 0
        if where == "init":
            self._raise("init")

    def _raise(self, what: str):
        raise self.exc(f"trap: planned failure in {what}")

    def _obs(self):
        return np.array([self.t], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        if self.where == "reset" and self.resets >= self.at_step:
            self._raise(f"reset {self.resets}")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.total += 1
        if self.where == "step" and self.total >= self.at_step:
            self._raise(f"step {self.total}")
        return super().step(action)

    def close(self):
        if self.where == "close":
            self._raise("close")


class EndlessEnv(_Short):
    """Never terminates, never truncates.  Training, evaluation and the first progress report must all
    still happen: nothing may wait for an episode to finish."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Box(0.0, np.inf, shape=(1,), dtype=np.float32)

    def _obs(self):
        return np.array([float(self.t % 1000)], dtype=np.float32)

    def step(self, action):
        self.t += 1
        return self._obs(), 1.0 if int(action) == 1 else 0.0, False, False, {}


class SlowEnv(EndlessEnv):
    """Sleeps at every step (for Ctrl-C, time limit and throughput tests)."""

    def __init__(self, seconds: float = 0.01):
        super().__init__()
        self.seconds = float(seconds)

    def step(self, action):
        time.sleep(self.seconds)
        return super().step(action)


class SeedIgnoringEnv(_Short):
    """Ignores reset(seed=...): draws from the operating system.  No trainer can make it repeatable; a run
    should not claim that it is (a reproducibility check would say so), and it must not crash."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Box(0.0, 1.0, shape=(2,), dtype=np.float32)

    def _obs(self):
        raw = np.frombuffer(os.urandom(8), dtype=np.uint32)
        return (raw / np.float64(2**32)).astype(np.float32).clip(0.0, 1.0)


class LegacyGlobalRngEnv(_Short):
    """Draws from NumPy's GLOBAL generator, as old user code does.  It repeats only if the trainer also
    seeds the global generators; and an evaluation copy of it disturbs the training stream."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Box(0.0, 1.0, shape=(2,), dtype=np.float32)

    def _obs(self):
        return np.random.random(2).astype(np.float32)


class SeededNoiseEnv(_Short):
    """Draws only from self.np_random, and keeps the seeds it was given in ``seeds_seen``.

    Good for: same seed -> same run; n parallel copies -> n different streams; a second reset without a seed
    must continue the stream, not restart it; evaluation must not move the training stream.
    """

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Box(0.0, 1.0, shape=(2,), dtype=np.float32)
        self.seeds_seen: list[int | None] = []

    def _obs(self):
        return self.np_random.random(2).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        self.seeds_seen.append(seed)
        return super().reset(seed=seed, options=options)


class LegacyApiEnv:
    """Old-style interface: reset() -> obs, step() -> 4 values, and not a gymnasium.Env.

    Expect: a clear sentence which says that the old interface is not supported, not "not enough values to unpack".
    """

    metadata: dict = {}
    render_mode = None
    spec = None

    def __init__(self):
        self.observation_space = spaces.Box(0.0, 1e6, shape=(1,), dtype=np.float32)
        self.action_space = spaces.Discrete(2)
        self.t = 0

    def reset(self):
        self.t = 0
        return np.array([0.0], dtype=np.float32)

    def step(self, action):
        self.t += 1
        return np.array([self.t], dtype=np.float32), 1.0, self.t >= 5, {}

    def close(self):
        pass


class NoRenderEnv(_Short):
    """Has no render mode at all.  Asking for video must fail (or warn) at the start, not after the training."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Box(0.0, 1e6, shape=(1,), dtype=np.float32)
        self.render_mode = None

    def _obs(self):
        return np.array([self.t], dtype=np.float32)


# --------------------------------------------------------------------------------------
# 7. Registration
# --------------------------------------------------------------------------------------

REGISTRY: dict[str, tuple[str, dict]] = {
    "Trap/Counting-v0": ("CountingEnv", {}),
    "Trap/FrameId-v0": ("FrameIdEnv", {}),
    "Trap/KeepOrCash-v0": ("KeepOrCashEnv", {}),
    "Trap/KeepOnly-v0": ("KeepOnlyEnv", {}),
    "Trap/OneStep-v0": ("OneStepEnv", {}),
    "Trap/OneStepTrunc-v0": ("OneStepEnv", {"ending": "trunc"}),
    "Trap/Chain-v0": ("ChainEnv", {}),
    "Trap/ChainDiscrete-v0": ("ChainEnv", {"one_hot": False}),
    "Trap/DiscreteStart1-v0": ("DiscreteStartEnv", {"start": 1}),
    "Trap/SingleAction-v0": ("SingleActionEnv", {}),
    "Trap/ImageHWC-v0": ("ImageEnv", {"layout": "HWC"}),
    "Trap/ImageCHW-v0": ("ImageEnv", {"layout": "CHW"}),
    "Trap/ImageGrayHWC-v0": ("ImageEnv", {"layout": "HWC", "channels": 1}),
    "Trap/ImageAmbiguous-v0": ("ImageEnv", {"layout": "HWC", "height": 3, "width": 3, "channels": 3}),
    "Trap/Float64Obs-v0": ("Float64ObsEnv", {}),
    "Trap/HugeObs-v0": ("HugeObsEnv", {}),
    "Trap/AliasedObs-v0": ("AliasedObsEnv", {}),
    "Trap/ReadOnlyObs-v0": ("ReadOnlyObsEnv", {}),
    "Trap/BoxAction-v0": ("UnsupportedActionEnv", {"kind": "box"}),
    "Trap/TupleAction-v0": ("UnsupportedActionEnv", {"kind": "tuple"}),
    "Trap/MultiDiscreteAction-v0": ("UnsupportedActionEnv", {"kind": "multidiscrete"}),
    "Trap/MultiBinaryAction-v0": ("UnsupportedActionEnv", {"kind": "multibinary"}),
    "Trap/DictAction-v0": ("UnsupportedActionEnv", {"kind": "dict"}),
    "Trap/StrictActionType-v0": ("StrictActionTypeEnv", {}),
    **{f"Trap/Reward_{k}-v0": ("RewardKindEnv", {"kind": k}) for k in RewardKindEnv.KINDS},
    "Trap/BigReward-v0": ("BigRewardEnv", {}),
    "Trap/ChangingInfo-v0": ("ChangingInfoEnv", {}),
    "Trap/NanObs-v0": ("BadNumberEnv", {"where": "obs"}),
    "Trap/NanResetObs-v0": ("BadNumberEnv", {"where": "reset_obs"}),
    "Trap/NanReward-v0": ("BadNumberEnv", {"where": "reward"}),
    "Trap/InfReward-v0": ("BadNumberEnv", {"where": "reward", "value": "inf"}),
    "Trap/RaiseInStep-v0": ("RaisingEnv", {"where": "step"}),
    "Trap/RaiseInReset-v0": ("RaisingEnv", {"where": "reset", "at_step": 2}),
    "Trap/RaiseInInit-v0": ("RaisingEnv", {"where": "init"}),
    "Trap/RaiseInClose-v0": ("RaisingEnv", {"where": "close"}),
    "Trap/InterruptInStep-v0": ("RaisingEnv", {"where": "step", "exc": "keyboard"}),
    "Trap/ExitInStep-v0": ("RaisingEnv", {"where": "step", "exc": "exit"}),
    "Trap/Endless-v0": ("EndlessEnv", {}),
    "Trap/Slow-v0": ("SlowEnv", {}),
    "Trap/SeedIgnoring-v0": ("SeedIgnoringEnv", {}),
    "Trap/LegacyGlobalRng-v0": ("LegacyGlobalRngEnv", {}),
    "Trap/SeededNoise-v0": ("SeededNoiseEnv", {}),
    "Trap/LegacyApi-v0": ("LegacyApiEnv", {}),
    "Trap/NoRender-v0": ("NoRenderEnv", {}),
}


def register_all() -> None:
    """Idempotent.  Runs on import.  Entry points are strings, so the ids also work in child processes."""
    for env_id, (cls, kwargs) in REGISTRY.items():
        if env_id not in gym.registry:
            gym.register(id=env_id, entry_point=f"{__name__}:{cls}", kwargs=dict(kwargs))


if __name__ == "__main__":  # make "trap_envs:..." entry points resolve to this very module
    sys.modules.setdefault("trap_envs", sys.modules["__main__"])

register_all()
